//! What the machine does after each event, as far as `evidence/check` does not show it in all orders. Connections are numbers,
//! and the leadership has epoch 7.

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const LIMITS: Limits = Limits {
    start: SECOND.saturating_mul(10),
    alive: None,
    stop: SECOND.saturating_mul(8),
    least_to_stop: SECOND,
};

fn at(seconds: u64) -> Instant {
    Instant::ORIGIN.after(Duration::from_secs(seconds))
}

fn epoch(number: u64) -> Epoch {
    Epoch::new(number).unwrap()
}

fn decimal(number: u64) -> Decimal {
    Decimal(epoch(number))
}

fn times(seconds: u64) -> Times {
    Times { stop_by: at(seconds - 3), kill_at: at(seconds) }
}

fn term(number: u64) -> Term {
    Term { slot: 1, epoch: epoch(number) }
}

const HELLO: FromApp = FromApp::Hello { version: VERSION };
const HELLO_OF_LATER: FromApp = FromApp::Hello { version: VERSION + 1 };
const READY: FromApp = FromApp::Ready { ready: true };

fn failed(number: u64) -> FromApp {
    FromApp::Failed { epoch: decimal(number), reason: "no\ndisk".into() }
}

struct Scene(Machine);

impl Scene {
    fn new() -> Self {
        Self(Machine::new(LIMITS, AfterStop::Restart))
    }

    /// A standby with these connections, which became ready in this order.
    fn ready(connections: &[Connection]) -> Self {
        let mut scene = Self::new();
        for connection in connections {
            for event in [
                AppEvent::Connected(*connection),
                AppEvent::Said(*connection, HELLO),
                AppEvent::Said(*connection, READY),
            ] {
                scene.on(event);
            }
        }
        scene
    }

    /// The first of these connections leads under epoch 7, with a deadline at 16 s.
    fn leading(connections: &[Connection]) -> Self {
        let mut scene = Self::ready(connections);
        scene.on(AppEvent::Won(term(7), times(16)));
        scene.on(AppEvent::InForce);
        scene
    }

    /// The same, after the host has asked the leader to stop.
    fn stopping(connections: &[Connection]) -> Self {
        let mut scene = Self::leading(connections);
        scene.on(AppEvent::Stop(Reason::StepDown));
        scene
    }

    fn kept(mut self) -> Self {
        self.0.after_stop = AfterStop::Keep;
        self
    }

    fn on(&mut self, event: AppEvent) -> Vec<Effect> {
        self.0.on(at(0), event)
    }
}

fn lead(connection: Connection) -> Effect {
    let Times { stop_by, kill_at } = times(16);
    let (stop_by, kill_at) = (stop_by.into(), kill_at.into());
    Effect::Send(connection, ToApp::Lead { slot: 1, epoch: decimal(7), stop_by, kill_at })
}

#[test]
fn participant_leads_once_its_deadline_is_in_force_and_stops_when_it_is_told() {
    let mut scene = Scene::new();
    assert_eq!(scene.on(AppEvent::Connected(1)), [Effect::Greet(1)]);
    assert_eq!(scene.on(AppEvent::Said(1, HELLO)), []);
    assert_eq!(scene.on(AppEvent::Said(1, READY)), [Effect::Ready(true)]);
    assert_eq!(scene.on(AppEvent::Won(term(7), times(16))), []);
    assert_eq!(scene.on(AppEvent::InForce), [lead(1), Effect::Leads]);
    assert_eq!(scene.0.due(), at(10));
    assert_eq!(scene.on(AppEvent::Said(1, FromApp::Leading { epoch: decimal(7) })), []);
    assert_eq!(scene.0.due(), Instant::NEVER);
    let (stop_by, kill_at) = (at(17).into(), at(20).into());
    let renewed = ToApp::Renewed { epoch: decimal(7), stop_by, kill_at };
    assert_eq!(scene.on(AppEvent::Moved(times(20))), [Effect::Send(1, renewed)]);
    assert_eq!(scene.on(AppEvent::AtRisk), [Effect::Send(1, ToApp::AtRisk { epoch: decimal(7) })]);
    let stop = ToApp::Stop {
        epoch: decimal(7),
        reason: Reason::StepDown,
        stop_by: at(8).into(),
        kill_at: at(20).into(),
    };
    let ends = Effect::Ends(EndReason::Asked(Reason::StepDown));
    assert_eq!(
        scene.on(AppEvent::Stop(Reason::StepDown)),
        [ends, Effect::Send(1, stop), Effect::Ready(false)]
    );
    assert_eq!(scene.on(AppEvent::Said(1, FromApp::Stopped { epoch: decimal(7) })), [Effect::KillTree]);
    // (I6) Only the proof allows the release.
    assert_eq!(scene.on(AppEvent::Closed(1)), [Effect::Close(1)]);
    assert_eq!(scene.on(AppEvent::TreeGone), [Effect::Over]);
}

/// Shows I6.
#[test]
fn leadership_of_which_no_lead_was_sent_is_released_at_once() {
    let not_ready = || AppEvent::Said(1, FromApp::Ready { ready: false });
    for (event, also) in [
        (not_ready(), vec![Effect::Over, Effect::Ready(false)]),
        (AppEvent::Closed(1), vec![Effect::Close(1), Effect::Over, Effect::Ready(false)]),
        (AppEvent::Stop(Reason::StepDown), vec![Effect::Over]),
    ] {
        let mut scene = Scene::ready(&[1]);
        scene.on(AppEvent::Won(term(7), times(16)));
        assert_eq!(scene.on(event.clone()), also, "{event:?}");
        assert_eq!(scene.on(AppEvent::InForce), [], "{event:?}");
    }
    let mut scene = Scene::new();
    assert_eq!(scene.on(AppEvent::Won(term(7), times(16))), [Effect::Over], "no connection is ready");
}

#[test]
fn one_connection_leads_and_no_other_gets_its_epoch() {
    let mut scene = Scene::leading(&[1, 2]);
    for message in [
        FromApp::Leading { epoch: decimal(7) },
        FromApp::Resign { epoch: decimal(7) },
        FromApp::Stopped { epoch: decimal(7) },
        failed(7),
        FromApp::Ready { ready: false },
    ] {
        assert_eq!(scene.on(AppEvent::Said(2, message.clone())), [], "of another connection: {message:?}");
    }
    assert_eq!(scene.0.due(), at(10), "the leader has not answered");
    assert_eq!(Scene::leading(&[1, 2]).on(AppEvent::Closed(2)), [Effect::Close(2)]);
    let mut scene = Scene::leading(&[1, 2]);
    let gone = [Effect::Close(1), Effect::Ends(EndReason::Gone), Effect::TermTree, Effect::Ready(false)];
    assert_eq!(scene.on(AppEvent::Closed(1)), gone);
    assert_eq!(scene.on(AppEvent::InForce), [], "connection 2 is ready");
    assert_eq!(scene.on(AppEvent::Won(term(8), times(16))), [Effect::Over], "the tree is ending");
    assert_eq!(scene.on(AppEvent::InForce), []);
}

/// Those that `evidence/check` does not model, or that no case of a real app shows. Shows I6.
#[test]
fn every_end_has_its_reason_and_waits_for_the_proof() {
    let asked = |reason| Effect::Ends(EndReason::Asked(reason));
    let said = |message| AppEvent::Said(1, message);
    let leading = || Scene::leading(&[1]);
    let stopping = || Scene::stopping(&[1]);
    let fails = || Effect::Ends(EndReason::Failed("no\ndisk".into()));
    let garbled = || (Effect::Ends(EndReason::Garbled), Some(Effect::TermTree));
    let table: [(Scene, AppEvent, (Effect, Option<Effect>)); 7] = [
        (leading().kept(), said(failed(7)), (fails(), Some(Effect::TermTree))),
        (stopping().kept(), said(failed(7)), (fails(), Some(Effect::TermTree))),
        (leading(), AppEvent::Garbled(1, "?".into()), garbled()),
        (leading(), said(HELLO_OF_LATER), garbled()),
        (leading(), said(FromApp::Ready { ready: false }), (asked(Reason::NotReady), None)),
        (leading(), AppEvent::Stop(Reason::Lost), (asked(Reason::Lost), None)),
        (leading(), AppEvent::Quit, (asked(Reason::Terminating), None)),
    ];
    for (mut scene, event, (ends, ends_tree)) in table {
        let effects = scene.on(event.clone());
        assert!(effects.contains(&ends), "{event:?}: {effects:?}");
        let found = effects.iter().find(|effect| matches!(effect, Effect::TermTree | Effect::KillTree));
        assert_eq!(found, ends_tree.as_ref(), "{event:?}");
        assert!(!effects.contains(&Effect::Over), "{event:?}: released without proof");
        let after = scene.on(AppEvent::TreeGone);
        assert!(after.contains(&Effect::Over), "{event:?}: {after:?}");
    }
}

#[test]
fn reason_of_a_failure_is_one_short_line() {
    let text = |reason: &str| EndReason::Failed(reason.into()).to_string();
    assert_eq!(text("no\ndisk\x1b[1m"), "the app failed: no disk [1m");
    assert_eq!(text(&"é".repeat(4000)).chars().count(), "the app failed: ".len() + LONGEST_REASON);
}

#[test]
fn stop_after_a_loss_leaves_time_for_term_before_the_deadline() {
    let mut scene = Scene::leading(&[1]);
    scene.on(AppEvent::Moved(times(3)));
    let stop =
        ToApp::Stop { epoch: decimal(7), reason: Reason::Lost, stop_by: at(2).into(), kill_at: at(3).into() };
    assert!(scene.on(AppEvent::Stop(Reason::Lost)).contains(&Effect::Send(1, stop)));
    assert_eq!(scene.0.due(), at(2));
    let mut asked_before = Scene::stopping(&[1]);
    for (kill_at, due) in [(20, 8), (3, 2)] {
        asked_before.on(AppEvent::Moved(times(kill_at)));
        assert_eq!(asked_before.0.due(), at(due));
    }
}

#[test]
fn connections_that_break_the_rules_are_refused() {
    let refused = |scene: &mut Scene, event: AppEvent, reason: &str| {
        let effects = scene.on(event);
        let [Effect::Send(1, ToApp::Refused { reason: said }), Effect::Close(1), ..] = &effects[..] else {
            panic!("{effects:?}");
        };
        assert!(said.contains(reason), "{said}");
        assert_eq!(scene.on(AppEvent::Said(1, READY)), [], "it is closed");
    };
    let connected = || {
        let mut scene = Scene::new();
        scene.on(AppEvent::Connected(1));
        scene
    };
    refused(&mut connected(), AppEvent::Said(1, HELLO_OF_LATER), "version 1");
    refused(&mut connected(), AppEvent::Said(1, READY), "the first message is \"hello\"");
    refused(&mut connected(), AppEvent::Garbled(1, "no JSON".into()), "no JSON");
}

#[test]
fn standby_is_ready_while_one_connection_is() {
    let mut scene = Scene::ready(&[1, 2]);
    assert_eq!(scene.on(AppEvent::Said(1, READY)), [], "said twice");
    assert_eq!(scene.on(AppEvent::Said(1, FromApp::Ready { ready: false })), []);
    assert_eq!(scene.on(AppEvent::Closed(2)), [Effect::Close(2), Effect::Ready(false)]);
    assert_eq!(scene.on(AppEvent::Said(1, READY)), [Effect::Ready(true)]);
    assert_eq!(scene.on(AppEvent::TreeGone), [Effect::Ready(false)]);
}

#[test]
fn end_of_vvm_stops_the_work_and_then_the_tree_by_term() {
    let mut standby = Scene::ready(&[1]);
    assert_eq!(standby.on(AppEvent::Quit), [Effect::TermTree, Effect::Ready(false)]);
    assert_eq!(standby.on(AppEvent::Won(term(7), times(16))), [Effect::Over]);
    let mut leader = Scene::leading(&[1]);
    leader.on(AppEvent::Quit);
    let stopped = || AppEvent::Said(1, FromApp::Stopped { epoch: decimal(7) });
    assert_eq!(leader.on(stopped()), [Effect::TermTree]);
    assert_eq!(leader.on(stopped()), [], "said twice");
    assert_eq!(leader.on(AppEvent::TreeGone), [Effect::Over]);
}

/// Shows I4 and I6.
#[test]
fn kept_app_stands_by_after_stopped_and_leads_again_once_its_new_deadline_is_in_force() {
    let mut scene = Scene::stopping(&[1]).kept();
    let stopped = || AppEvent::Said(1, FromApp::Stopped { epoch: decimal(7) });
    assert_eq!(scene.on(stopped()), [Effect::Keeps, Effect::Over, Effect::Ready(true)]);
    assert_eq!(scene.on(stopped()), [], "said twice");
    assert_eq!(scene.on(AppEvent::Won(term(8), times(40))), []);
    assert_eq!(scene.on(stopped()), [], "of an earlier epoch");
    let Times { stop_by, kill_at } = times(40);
    let (stop_by, kill_at) = (stop_by.into(), kill_at.into());
    let lead = ToApp::Lead { slot: 1, epoch: decimal(8), stop_by, kill_at };
    assert_eq!(scene.on(AppEvent::InForce), [Effect::Send(1, lead), Effect::Leads]);
    assert_eq!(scene.on(AppEvent::Closed(1))[1..3], [Effect::Ends(EndReason::Gone), Effect::TermTree]);
}

#[test]
fn kept_app_that_gives_up_leads_again_only_when_it_is_ready_again() {
    let stopped = || AppEvent::Said(1, FromApp::Stopped { epoch: decimal(7) });
    let mut resigned = Scene::leading(&[1]).kept();
    resigned.on(AppEvent::Said(1, FromApp::Resign { epoch: decimal(7) }));
    assert_eq!(resigned.on(stopped()), [Effect::Keeps, Effect::Over]);
    let mut done = Scene::leading(&[1]).kept();
    let ends = Effect::Ends(EndReason::Stopped);
    assert_eq!(done.on(stopped()), [ends, Effect::Keeps, Effect::Over, Effect::Ready(false)]);
    for mut scene in [resigned, done] {
        assert_eq!(scene.on(AppEvent::Said(1, READY)), [Effect::Ready(true)]);
    }
}

/// The protocol asks for it: it needs no message to stop at `stop_by`, which its clock may show first.
#[test]
fn app_that_stops_by_itself_when_it_is_not_renewed_has_lost_and_stays_ready() {
    let expired = || {
        let mut scene = Scene::leading(&[1]).kept();
        let stopped = AppEvent::Said(1, FromApp::Stopped { epoch: decimal(7) });
        assert_eq!(scene.0.on(times(16).stop_by.before(CLOCKS_DIFFER), stopped), []);
        scene
    };
    let lost = Effect::Ends(EndReason::Asked(Reason::Lost));
    assert_eq!(expired().on(AppEvent::Stop(Reason::Lost)), [lost.clone(), Effect::Keeps, Effect::Over]);
    let mut restarted = expired();
    restarted.0.after_stop = AfterStop::Restart;
    assert_eq!(restarted.on(AppEvent::Stop(Reason::Lost)), [lost, Effect::KillTree, Effect::Ready(false)]);
    let unasked = [Effect::Ends(EndReason::Stopped), Effect::Keeps, Effect::Over, Effect::Ready(false)];
    assert_eq!(expired().on(AppEvent::Moved(times(20))), unasked, "a late renewal");
    assert_eq!(expired().on(AppEvent::Moved(times(15))), [], "the loss follows");
    let gone = [Effect::Close(1), Effect::Ends(EndReason::Stopped), Effect::TermTree, Effect::Ready(false)];
    assert_eq!(expired().on(AppEvent::Closed(1)), gone);
    assert_eq!(
        expired().on(AppEvent::TreeGone),
        [Effect::Ends(EndReason::Gone), Effect::Over, Effect::Ready(false)]
    );
}

#[test]
fn end_of_vvm_ends_a_kept_app_too() {
    let mut scene = Scene::leading(&[1]).kept();
    scene.on(AppEvent::Quit);
    assert_eq!(scene.on(AppEvent::Said(1, FromApp::Stopped { epoch: decimal(7) })), [Effect::TermTree]);
}

#[test]
fn app_that_has_to_say_alive_and_does_not_is_ended() {
    let says = |message| AppEvent::Said(1, message);
    let alive = |number| FromApp::Alive { epoch: decimal(number) };
    let mut scene = Scene::leading(&[1, 2]);
    scene.0.limits.alive = Some(SECOND.saturating_mul(3));
    scene.0.on(at(1), says(alive(7)));
    assert_eq!(scene.0.due(), at(10), "it has not said that it leads");
    scene.0.on(at(5), says(FromApp::Leading { epoch: decimal(7) }));
    assert_eq!(scene.0.due(), at(8));
    scene.0.on(at(7), says(alive(7)));
    assert_eq!(scene.0.due(), at(10));
    for event in [says(alive(6)), AppEvent::Said(2, alive(7))] {
        scene.0.on(at(9), event);
        assert_eq!(scene.0.due(), at(10), "of an earlier epoch, or of another connection");
    }
    let ends = [Effect::Ends(EndReason::NotAlive), Effect::TermTree, Effect::Ready(false)];
    assert_eq!(scene.0.on(at(10), AppEvent::Tick), ends);
}
