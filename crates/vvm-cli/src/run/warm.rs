//! `vvm run --warm`: an app that is started before it leads, and dead by the deadline if it must be. [`WarmApp`] owns
//! one [`Tree`] of processes after another, and the socket. [`WarmRunner`] is the service of one leadership: it hands
//! the leadership to the app, and returns when it may be released.

mod socket;
mod tree;

use super::{
    command::{Backoff, CommandRunner},
    control::Control,
};
use crate::{
    announce::say_text,
    contained::{NotStarted, describe},
    leadership::{self, Leadership},
};
use async_trait::async_trait;
use futures_util::FutureExt as _;
use ielections::{Standing, Timing};
pub(super) use socket::NoSocket;
use socket::Socket;
use std::{
    collections::{HashMap, HashSet},
    ffi::OsString,
    future::{pending, ready},
    pin::pin,
    sync::Arc,
    time::Duration,
};
use tokio::sync::{broadcast, mpsc, watch};
use tokio_util::sync::CancellationToken;
use tree::{RefusalLog, SILENT_START, Tree};
use vvm_cli::warm::{
    machine::{AfterStop, AppEvent, EndReason, Limits, Machine, Term, Times},
    protocol::Reason,
};
use vvm_clock::{DisplayDuration, Instant};
use vvm_containment::{Controls, Supervision};
use vvm_host::{
    Host, NotReady,
    status::{HostStatus, Role},
};
use vvm_orch::{BoxError, Service, ServiceContext, Work};
use vvm_storage::ElectionKey;

#[derive(Debug)]
enum AppRequest {
    Lead(Box<AcquiredLeadership>),
    Stop(Reason),
}

#[derive(Debug)]
struct AcquiredLeadership {
    leadership: Leadership,
    standing: Standing,
    progress: watch::Sender<Progress>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Progress {
    Arming,
    Leads,
    /// The leadership may be released (I6).
    Over,
}

#[derive(Debug)]
pub(super) struct WarmRunner {
    runner: CommandRunner,
    app: mpsc::UnboundedSender<AppRequest>,
}

#[async_trait]
impl Service<ElectionKey> for WarmRunner {
    fn name(&self) -> &str {
        "app"
    }

    async fn start(self: Box<Self>, cx: ServiceContext<ElectionKey>) -> Result<Work, BoxError> {
        let Self { runner, app } = *self;
        let leadership = runner.leadership(&cx.slot, &cx.standing);
        runner.deadline_is_in_force(&cx.stop).await?;
        let (progress, follows) = watch::channel(Progress::Arming);
        let led =
            AcquiredLeadership { leadership: leadership.clone(), standing: cx.standing.clone(), progress };
        // An app that has ended leads no more.
        app.send(AppRequest::Lead(Box::new(led))).map_err(|_| NotReady)?;
        let control = Arc::clone(&runner.control);
        let mut led = LedHere { follows, app, stop: cx.stop, standing: cx.standing, control };
        if led.becomes(Progress::Leads).await == Progress::Over {
            return Err(NotReady.into());
        }
        runner.leads(runner.run.leadership.get_or_init(|| leadership));
        Ok(Box::pin(async move {
            led.becomes(Progress::Over).await;
            Ok(())
        }))
    }
}

struct LedHere {
    follows: watch::Receiver<Progress>,
    app: mpsc::UnboundedSender<AppRequest>,
    stop: CancellationToken,
    standing: Standing,
    control: Arc<Control>,
}

impl LedHere {
    /// Waits until the app has come that far, or is over, and asks it to stop when this service has to. Never
    /// returns if the app is gone without proof: then this process ends, and releases nothing (I6).
    async fn becomes(&mut self, wanted: Progress) -> Progress {
        let mut is_asked = false;
        loop {
            let seen = *self.follows.borrow_and_update();
            if seen == wanted || seen == Progress::Over {
                return seen;
            }
            tokio::select! {
                biased;
                changed = self.follows.changed() => match changed {
                    Ok(()) => {}
                    // The app has ended before it was asked. `lead` was not sent, so nothing has to stop.
                    Err(_) if seen == Progress::Arming => return Progress::Over,
                    Err(_) => pending::<()>().await,
                },
                () = self.stop.cancelled(), if !is_asked => {
                    is_asked = true;
                    let reason = if self.standing.loss().is_some() {
                        Reason::Lost
                    } else if self.control.stop.is_cancelled() {
                        Reason::Terminating
                    } else {
                        Reason::StepDown
                    };
                    let _ = self.app.send(AppRequest::Stop(reason));
                }
            }
        }
    }
}

#[derive(Debug)]
pub(super) struct WarmApp {
    runner: CommandRunner,
    socket: Socket,
    requests: mpsc::UnboundedReceiver<AppRequest>,
    requesting: mpsc::UnboundedSender<AppRequest>,
    ready: watch::Sender<bool>,
    refusals: RefusalLog,
}

impl WarmApp {
    /// Makes the app of `runner`'s command. `host` campaigns only while it is ready. Needs the context of a runtime.
    pub(super) fn new(runner: &CommandRunner, host: &mut Host) -> Result<Self, NoSocket> {
        let (requesting, requests) = mpsc::unbounded_channel();
        let (ready, is_ready) = watch::channel(false);
        host.campaign_while(is_ready);
        let socket = Socket::listen(Arc::clone(&runner.clock))?;
        let refusals = RefusalLog::default();
        Ok(Self { runner: runner.clone(), socket, requests, requesting, ready, refusals })
    }

    pub(super) fn services(&self) -> impl Fn(CommandRunner) -> WarmRunner + use<> {
        let app = self.requesting.clone();
        move |runner| WarmRunner { runner, app: app.clone() }
    }

    /// Runs the app beside `host`, until the host has ended and no process of the app is left. After a stop while the
    /// storage opens, `host` waits for the storage (I10): then it ends this process once the app has ended. Not cancel
    /// safe: dropped, it has everything killed, and nothing waits for that.
    pub(super) async fn beside(self, host: impl Future) {
        let over = CancellationToken::new();
        let runner = self.runner.clone();
        let mut host = pin!(host);
        let hosting = async {
            let is_opening = tokio::select! {
                biased;
                () = runner.control.stopped_while_opening() => true,
                _ = &mut host => false,
            };
            over.cancel();
            is_opening
        };
        let running = async {
            if let Err(refusal) = self.run(&over).await {
                let _ = runner.control.not_started.set(Arc::new(refusal));
                runner.control.stop.cancel();
            }
        };
        if let (true, ()) = tokio::join!(hosting, running) {
            runner.end_while_opening();
        }
    }

    async fn run(mut self, over: &CancellationToken) -> Result<(), NotStarted> {
        let mut backoff = Backoff::from_args(&self.runner.args.work);
        let mut is_first = true;
        loop {
            let began = self.runner.clock.now();
            let ended = match self.run_tree(over).await {
                Ok(ended) => ended,
                Err(refusal) if is_first => return Err(refusal),
                Err(refusal) => TreeEnd { text: refusal.to_string(), was_wanted: false },
            };
            is_first = false;
            if self.is_to_end(over) {
                return Ok(());
            }
            let pause = match ended.was_wanted {
                true => Duration::ZERO,
                false => backoff.after_a_run_of(self.runner.clock.now().since(began)),
            };
            let name = self.runner.election_name();
            let released = released(&self.runner.status);
            tokio::select! {
                biased;
                () = stopped(&self.runner.control, over) => return Ok(()),
                // Nothing is ready, so nothing is claimed. A slot that was just won is released.
                () = refuse_all(&mut self.requests) => {}
                () = async {
                    released.await;
                    // Not before: a host that has lost its leadership mostly ends.
                    let when = if pause.is_zero() { "at once".into() } else { format!("in {}", DisplayDuration(pause)) };
                    say_text!("{name}: {}; starting the app again {when}", ended.text);
                    self.runner.clock.sleep(pause).await;
                } => {}
            }
        }
    }

    fn is_to_end(&self, over: &CancellationToken) -> bool {
        self.runner.control.stop.is_cancelled() || over.is_cancelled()
    }

    async fn run_tree(&mut self, over: &CancellationToken) -> Result<TreeEnd, NotStarted> {
        let CommandRunner { starter, control, clock, .. } = self.runner.clone();
        // First, so that no signal is lost while the app starts.
        let mut signals = control.signals.subscribe();
        let starting = starter.start_in(self.environment())?;
        let keeper = starting.keeper();
        let tree_signals = broadcast::Sender::new(64);
        let (stop, kill) = (CancellationToken::new(), control.kill.child_token());
        let controls = Controls {
            signals: tree_signals.subscribe(),
            stop: stop.clone(),
            stop_signal: self.runner.args.stop_signal,
            kill: kill.clone(),
            deadline: starter.deadline.clone(),
        };
        let mut supervision = Supervision::new(starting, Arc::clone(&clock), starter.timeouts(), controls);
        let executed = tokio::select! {
            biased;
            executed = supervision.executed() => executed,
            // An execution may hang (I10). The stop takes the same steps before and after it.
            () = stopped(&control, over) => Ok(()),
            () = refuse_all(&mut self.requests) => Ok(()),
        };
        if let Err(refusal) = executed {
            self.runner.proven(supervision.kill_at_once().run().await, None);
            return Err(refusal.into());
        }
        let mut in_force = supervision.in_force();
        let mut deadline = starter.deadline.clone();
        let mut tree = Tree {
            machine: Machine::new(self.limits(), self.runner.args.after_stop),
            keeper,
            app: self,
            stop: stop.clone(),
            kill,
            led: None,
            silent: HashMap::new(),
            standbys: HashSet::new(),
            ending: None,
        };
        let mut supervised = pin!(supervision.run());
        let mut is_quitting = false;
        let mut is_warned = false;
        // When the slot that was won last is given up, unless its deadline is in force before.
        let mut armed = (None, Instant::NEVER);
        let mut in_a_row = 0;
        let mut told_at = clock.now().after(SILENT_START);
        let ended = loop {
            let standing = tree.led.as_ref().map(|led| led.standing.clone());
            let at_risk = async {
                match &standing {
                    Some(standing) => drop(standing.at_risk().await),
                    None => pending().await,
                }
            };
            let (is_arming, is_leading) = (tree.machine.is_arming(), tree.machine.is_leading());
            let event = tokio::select! {
                biased;
                ended = &mut supervised => break ended,
                Ok(passed) = signals.recv() => {
                    // A stop request reaches the app when its work has stopped.
                    if !passed.asks {
                        let _ = tree_signals.send(passed);
                    }
                    continue;
                }
                () = stopped(&control, over), if !is_quitting => {
                    is_quitting = true;
                    AppEvent::Quit
                }
                Some(request) = tree.app.requests.recv() => match request {
                    AppRequest::Lead(led) => {
                        // Without a deadline, the leadership is over already.
                        let Some(at) = *deadline.borrow_and_update() else {
                            led.progress.send_replace(Progress::Over);
                            continue;
                        };
                        armed = (Some(at), clock.now().after(tree.app.runner.args.candidate.ttl.get() / 4));
                        is_warned = false;
                        let term = Term { slot: led.leadership.slot, epoch: led.leadership.epoch };
                        tree.led = Some(*led);
                        if tree.app.runner.args.after_stop == AfterStop::Keep {
                            tree.standbys = tree.processes().into_iter().collect();
                        }
                        AppEvent::Won(term, tree.app.runner.times(at))
                    }
                    AppRequest::Stop(reason) => AppEvent::Stop(reason),
                },
                heard = tree.app.socket.next(keeper), if in_a_row < MOST_IN_A_ROW => {
                    in_a_row += 1;
                    match tree.read(heard) {
                        Some(event) => event,
                        None => continue,
                    }
                }
                // The deadline of an earlier leadership was earlier.
                Ok(_) = in_force.wait_for(|at| at.is_some() && *at >= armed.0), if is_arming => AppEvent::InForce,
                () = clock.sleep_until(armed.1), if is_arming => AppEvent::NotInForce,
                Ok(()) = deadline.changed(), if tree.led.is_some() => {
                    let Some(at) = *deadline.borrow_and_update() else { continue };
                    is_warned = false;
                    AppEvent::Moved(tree.app.runner.times(at))
                }
                () = at_risk, if is_leading && !is_warned => {
                    is_warned = true;
                    AppEvent::AtRisk
                }
                () = clock.sleep_until(tree.machine.due()) => AppEvent::Tick,
                () = ready(()), if in_a_row == MOST_IN_A_ROW => {
                    in_a_row = 0;
                    continue;
                }
                () = clock.sleep_until(told_at) => {
                    told_at = Instant::NEVER;
                    tree.tell_what_is_missing();
                    continue;
                }
            };
            tree.on(event);
        };
        let was_wanted = stop.is_cancelled() || tree.kill.is_cancelled();
        let last = tree.app.runner.proven(ended, tree.led.as_ref().map(|led| &led.leadership));
        while let Some(heard) = tree.app.socket.next(keeper).now_or_never() {
            if let Some(event) = tree.read(heard) {
                tree.on(event);
            }
        }
        tree.on(AppEvent::TreeGone);
        tree.app.socket.close_all();
        let ending = tree.ending.take();
        let was_wanted = was_wanted && ending.as_ref().is_some_and(EndReason::is_wanted);
        let text = ending.map_or_else(|| describe(&last), |ending| ending.to_string());
        Ok(TreeEnd { text, was_wanted })
    }

    /// That of this process, with the socket, and without other variables of `vvm` and the storage's credentials.
    fn environment(&self) -> Vec<(OsString, OsString)> {
        let kept = leadership::inherited(std::env::vars_os(), self.runner.args.candidate.withheld());
        kept.chain([("VVM_SOCKET".into(), self.socket.path().into())]).collect()
    }

    fn limits(&self) -> Limits {
        let args = &self.runner.args;
        let least_to_stop = self.runner.starter.timeouts().least_to_stop;
        Limits { start: args.start_timeout, alive: args.alive_within, stop: args.stop_timeout, least_to_stop }
    }
}

/// So many messages are handled before all else is looked at again. An app that sends without a pause must not keep a
/// time limit of its own from ending it.
const MOST_IN_A_ROW: u32 = 64;

struct TreeEnd {
    text: String,
    was_wanted: bool,
}

async fn stopped(control: &Control, over: &CancellationToken) {
    tokio::select! {
        biased;
        () = control.stop.cancelled() => {}
        () = over.cancelled() => {}
    }
}

/// Waits until this process leads no more, and campaigns again. Never returns if it is about to end.
async fn released(status: &HostStatus) {
    let mut roles = status.roles();
    let campaigns = |role: &Role| matches!(role, Role::Opening | Role::Unready | Role::Campaigning);
    let _ = roles.wait_for(campaigns).await;
}

/// Has slots that were just won released, while there is no app.
async fn refuse_all(requests: &mut mpsc::UnboundedReceiver<AppRequest>) {
    while let Some(request) = requests.recv().await {
        if let AppRequest::Lead(led) = request {
            led.progress.send_replace(Progress::Over);
        }
    }
    pending().await
}

impl CommandRunner {
    fn times(&self, kill_at: Instant) -> Times {
        Times { stop_by: kill_at.before(Timing::new(self.args.candidate.ttl).stopping()), kill_at }
    }
}
