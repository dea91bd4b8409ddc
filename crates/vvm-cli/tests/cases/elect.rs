//! `vvm elect`: hooks at the beginning and at the end of a leadership. After its death its demoter runs the
//! on-loss hook, whose success leads to a release.

use crate::VVM;
use harness::{Lines, Trial, eventually};
use nix::sys::ptrace;
use rustix::process::{Pid, Signal, kill_process};
use std::{
    os::unix::process::ExitStatusExt as _,
    process::{Child, Command, Stdio},
    time::Duration,
};
use vvm_clock::SystemClock;

const ON_LEAD: &str = "echo lead $VVM_LEADER_EPOCH";
const ON_LOSS: &str = "echo loss $VVM_LEADER_EPOCH";

/// A `vvm elect`.
pub(super) struct Elect {
    pub(super) child: Child,
    pub(super) stdout: Lines,
    pub(super) stderr: Lines,
}

impl Elect {
    pub(super) fn start(trial: &Trial, on_lead: &str, on_loss: &str, options: &[&str]) -> Self {
        Self::start_through(trial, &["env"], on_lead, on_loss, options)
    }

    /// Started through another command, which it replaces.
    fn start_through(
        trial: &Trial,
        through: &[&str],
        on_lead: &str,
        on_loss: &str,
        options: &[&str],
    ) -> Self {
        let (storage, name) = (trial.storage(), trial.name());
        let given = ["elect", "--storage", &storage, "--name", &name];
        let mut child = Command::new(through[0])
            .args(&through[1..])
            .arg(VVM.path())
            .args(given)
            .args(["--on-lead", on_lead, "--on-loss", on_loss])
            .args(["--on-start", "keep"].iter().filter(|_| !options.contains(&"--on-start")))
            .args(options)
            .env("TRIAL", trial.mark())
            .env("VVM_LOCAL_DIR", trial.local_dir())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = Lines::of("stdout", child.stdout.take().unwrap());
        let stderr = Lines::of("stderr", child.stderr.take().unwrap());
        Self { child, stdout, stderr }
    }

    /// Starts one with [`ON_LEAD`], and returns it with the epoch that this hook was told.
    fn leading(trial: &Trial, on_loss: &str, options: &[&str]) -> (Self, u64) {
        let mut elect = Self::start(trial, ON_LEAD, on_loss, options);
        let led = epoch(&elect.stdout.wait_for("lead"));
        (elect, led)
    }

    pub(super) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Ends it by TERM, and returns what [`Self::finish`] does.
    pub(super) fn stop(self) -> (i32, Vec<String>, Vec<String>) {
        self.signal(Signal::TERM);
        self.finish()
    }

    /// Kills it. Returns what it and then its demoter have said.
    fn kill(mut self) -> (Vec<String>, Vec<String>) {
        self.signal(Signal::KILL);
        self.child.wait().unwrap();
        (self.stdout.rest(), self.stderr.rest())
    }

    /// Status, standard output, standard error.
    pub(super) fn finish(mut self) -> (i32, Vec<String>, Vec<String>) {
        let status = self.child.wait().unwrap();
        let code = status.code().unwrap_or_else(|| panic!("{status}"));
        (code, self.stdout.rest(), self.stderr.rest())
    }
}

/// The epoch that a hook was told.
fn epoch(line: &str) -> u64 {
    line.split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn standby_leads_with_a_larger_epoch_after_a_stopped_leader() {
    let trial = VVM.trial();
    let (first, led) = Elect::leading(&trial, ON_LOSS, &[]);
    let mut second = Elect::start(&trial, ON_LEAD, ON_LOSS, &[]);
    second.stderr.wait_for("waiting for leadership");
    let (code, said, errors) = first.stop();
    assert_eq!((code, said), (0, vec![format!("lead {led}"), format!("loss {led}")]));
    let logged = |what: &str| errors.iter().any(|line| line.contains(what));
    for line in [
        "running the on-lead hook",
        "the on-lead hook has succeeded",
        ": stop requested; running the on-loss hook",
        "the on-loss hook has succeeded",
    ] {
        assert!(logged(line), "{line}: {errors:#?}");
    }
    assert!(!logged("no longer leading"), "{errors:#?}");
    assert!(epoch(&second.stdout.wait_for("lead")) > led);
    second.signal(Signal::INT);
    assert_eq!(second.finish().0, 0);
}

/// The demoter died with the machine, which may have been promoted.
#[test]
fn machine_is_demoted_before_its_first_claim() {
    let trial = VVM.trial();
    let on_loss = "sleep 0.3; echo loss $VVM_LEADER_EPOCH $VVM_LEADER_REASON";
    let (elect, led) = Elect::leading(&trial, on_loss, &["--on-start", "demote"]);
    let (code, said, errors) = elect.stop();
    let expected = ["loss 0 start".to_owned(), format!("lead {led}"), format!("loss {led}")];
    assert_eq!((code, &said[..]), (0, &expected[..]), "{errors:#?}");
}

#[test]
fn machine_that_is_not_demoted_at_the_start_campaigns_and_says_so_in_the_end() {
    let trial = VVM.trial();
    let (leader, _) = Elect::leading(&trial, ON_LOSS, &[]);
    let mut standby = Elect::start(&trial, ON_LEAD, "exit 7", &["--on-start", "demote"]);
    standby.stderr.wait_for("the on-loss hook ended with exit status: 7");
    standby.stderr.wait_for("waiting for leadership");
    let (code, said, errors) = standby.stop();
    assert_eq!((code, said), (1, Vec::new()), "{errors:#?}");
    assert!(errors.last().unwrap().ends_with("demote this machine by hand"), "{errors:#?}");
    assert_eq!(leader.stop().0, 0);
}

/// HUP: the terminal is lost, or its shell ends.
#[test]
fn hangup_or_quit_of_a_leader_runs_the_on_loss_hook_and_releases() {
    for signal in [Signal::HUP, Signal::QUIT] {
        let trial = VVM.trial();
        let on_loss = "echo begun; sleep 0.3; echo midway; sleep 0.3; echo loss $VVM_LEADER_EPOCH";
        let (mut elect, led) = Elect::leading(&trial, on_loss, &[]);
        elect.signal(signal);
        elect.stdout.wait_for("midway");
        if signal == Signal::HUP {
            // The shell's hangup follows the kernel's. It must not end the hook at once.
            elect.signal(signal);
        }
        let (code, said, _) = elect.finish();
        assert_eq!((code, said.last()), (0, Some(&format!("loss {led}"))));
        assert_eq!(trial.run(["true"]).with(["--acquire-timeout", "0"]).finish().code(), 0);
    }
}

#[test]
fn second_term_ends_a_leader_that_a_hangup_has_told_to_stop() {
    let trial = VVM.trial();
    let on_loss = "echo begun; sleep 0.3; echo midway; exec sleep 1000";
    let (mut elect, _) = Elect::leading(&trial, on_loss, &["--hook-timeout", "1h"]);
    elect.signal(Signal::HUP);
    elect.stdout.wait_for("begun");
    elect.signal(Signal::TERM);
    elect.stdout.wait_for("midway");
    elect.signal(Signal::TERM);
    assert_eq!(elect.child.wait().unwrap().signal(), Some(Signal::TERM.as_raw()));
}

#[test]
fn hangup_that_was_ignored_at_the_start_stays_ignored() {
    let trial = VVM.trial();
    let ignoring = ["sh", "-c", "trap '' HUP; exec \"$@\"", "sh"];
    let mut elect = Elect::start_through(&trial, &ignoring, ON_LEAD, ON_LOSS, &[]);
    elect.stdout.wait_for("lead");
    elect.signal(Signal::HUP);
    trial.must("pause", &["--by", "alice"]);
    elect.stdout.wait_for("loss");
    // A second hangup does not end the candidate either.
    elect.signal(Signal::HUP);
    trial.must("resume", &[]);
    elect.stdout.wait_for("lead");
    assert_eq!(elect.stop().0, 0);
}

#[test]
fn loss_runs_the_on_loss_hook_and_another_campaign_follows() {
    let trial = VVM.trial();
    let (mut elect, led) = Elect::leading(&trial, ON_LOSS, &["--ttl", harness::SHORT_TTL]);
    let history = |epoch: u64| {
        let (_, out, _) = trial.about("history", &[]);
        out.lines().find(|line| line.contains(&epoch.to_string())).map(str::to_owned)
    };
    eventually("the start is noted", || history(led).is_some());
    let outage = trial.outage();
    assert_eq!(epoch(&elect.stdout.wait_for("loss")), led);
    elect.stderr.wait_for("waiting for leadership");
    drop(outage);
    let again = epoch(&elect.stdout.wait_for("lead"));
    assert!(again > led);
    // It could not be written while the storage did not answer, and is with the next start.
    eventually("the loss is noted", || history(led).is_some_and(|row| row.contains("  leadership lost: ")));
    let (code, said, _) = elect.stop();
    assert_eq!((code, said.last()), (0, Some(&format!("loss {again}"))));
}

/// It could not run the hook in time, and runs it as soon as it continues.
#[test]
fn process_stopped_past_its_deadline_runs_on_loss_once_when_it_continues() {
    let trial = VVM.trial();
    let (mut first, led) = Elect::leading(&trial, ON_LOSS, &["--ttl", harness::SHORT_TTL]);
    // A process that is stopped while it writes its history would hold the lock of the database.
    eventually("the history", || trial.must("history", &[]).contains(&led.to_string()));
    first.signal(Signal::STOP);
    let (second, next) = Elect::leading(&trial, ON_LOSS, &["--ttl", harness::SHORT_TTL]);
    assert!(next > led);
    first.signal(Signal::CONT);
    assert_eq!(epoch(&first.stdout.wait_for("loss")), led);
    let (code, said, _) = first.stop();
    // 80 by its deadline, or 0 if it released its leadership before the deadline was checked.
    assert!([0, 80].contains(&code), "{code}");
    assert_eq!(said, [format!("lead {led}"), format!("loss {led}")]);
    second.stop();
}

/// It would find its own record expired, claim it, and end without having run the on-lead hook.
#[test]
fn process_stopped_past_its_ttl_claims_nothing_while_its_on_loss_hook_runs() {
    let trial = VVM.trial();
    let on_loss = "echo begun; sleep 1; echo done";
    let (elect, led) = Elect::leading(&trial, on_loss, &["--ttl", harness::SHORT_TTL]);
    // A process that is stopped while it writes its history would hold the lock of the database.
    eventually("the history", || trial.must("history", &[]).contains(&led.to_string()));
    elect.signal(Signal::STOP);
    eventually("the record has expired", || trial.status(&[]).1.contains("stale"));
    elect.signal(Signal::CONT);
    let (code, said, errors) = elect.finish();
    assert_eq!((code, said.last().map(String::as_str)), (80, Some("done")), "{errors:#?}");
    let table = trial.status(&[]).1;
    assert!(table.contains(&led.to_string()), "{led}: {table}");
}

/// The storage is locked, so the leader can't renew. A separate thread runs the hook.
#[test]
fn on_loss_hook_past_the_deadline_completes_before_vvm_exits_with_80() {
    let trial = VVM.trial();
    let on_loss = "echo begun; sleep 2; echo done";
    let (mut elect, _) = Elect::leading(&trial, on_loss, &["--ttl", harness::SHORT_TTL]);
    let outage = trial.outage();
    elect.stdout.wait_for("begun");
    let (code, said, errors) = elect.finish();
    drop(outage);
    assert_eq!((code, said.last().map(String::as_str)), (80, Some("done")), "{errors:#?}");
    assert!(errors.iter().any(|line| line.contains("the kill deadline has passed")), "{errors:#?}");
}

#[test]
fn on_loss_hook_waits_for_the_end_of_the_on_lead_hook() {
    let trial = VVM.trial();
    let on_lead = "echo begun; trap '' TERM; sleep 1004 & sleep 1004; :";
    let options = ["--hook-timeout", "1h"];
    let mut elect = Elect::start(&trial, on_lead, ON_LOSS, &options);
    elect.stdout.wait_for("begun");
    eventually("its child", || trial.processes().of("sleep 1004").len() == 2);
    let (code, said, _) = elect.stop();
    assert_eq!((code, said.len()), (0, 2), "{said:?}");
    assert!(said[1].starts_with("loss"), "{said:?}");
    assert!(trial.processes().0.is_empty(), "{:?}", trial.processes().describe());
}

/// As if it hung in the kernel: a tracer keeps it from its parent after its death.
#[test]
fn killed_hook_that_can_not_be_reaped_delays_no_demotion() {
    let trial = VVM.trial();
    let on_lead = "echo lead $VVM_LEADER_EPOCH; exec sleep 1005";
    let mut elect = Elect::start(&trial, on_lead, ON_LOSS, &["--hook-timeout", "1h"]);
    let led = epoch(&elect.stdout.wait_for("lead"));
    let hook = nix::unistd::Pid::from_raw(trial.process("sleep 1005").as_raw_pid());
    // This thread is the tracer until its end.
    ptrace::seize(hook, ptrace::Options::empty()).unwrap();
    let (code, said, errors) = elect.stop();
    assert_eq!((code, said.last()), (0, Some(&format!("loss {led}"))), "{errors:#?}");
}

#[test]
fn failing_on_lead_hook_releases_the_leadership() {
    let hooks =
        [("exit 3", "ended with exit status: 3"), ("sleep 1000", "took longer than --hook-timeout 200ms")];
    for (on_lead, why) in hooks {
        let trial = VVM.trial();
        let elect = Elect::start(&trial, on_lead, ON_LOSS, &["--hook-timeout", "200ms"]);
        let (code, said, errors) = elect.finish();
        assert_eq!((code, said.len()), (1, 1), "{errors:#?}");
        assert!(errors.iter().any(|line| line.contains(why)), "{errors:#?}");
        let history = trial.must("history", &[]);
        assert!(history.contains(&format!("  the on-lead hook {why}")), "{history}");
        assert_eq!(trial.run(["true"]).with(["--acquire-timeout", "0"]).finish().code(), 0);
    }
}

#[test]
fn stop_whose_on_loss_hook_failed_ends_with_status_1_and_releases() {
    let hooks = [("exit 7", "ended with exit status: 7"), ("sleep 1000 & sleep 1000", "took longer than")];
    for (on_loss, why) in hooks {
        let trial = VVM.trial();
        let (elect, _) = Elect::leading(&trial, on_loss, &["--hook-timeout", "200ms"]);
        let (code, _, errors) = elect.stop();
        assert_eq!(code, 1, "{errors:#?}");
        let last = errors.last().unwrap();
        assert!(last.contains("ended: stopped") && last.contains("the on-loss hook"), "{errors:#?}");
        assert!(last.contains(why), "{errors:#?}");
        let history = trial.must("history", &[]);
        assert!(history.contains("stop requested; the on-loss hook") && history.contains(why), "{history}");
        assert!(trial.processes().0.is_empty(), "{:?}", trial.processes().describe());
        assert_eq!(trial.run(["true"]).with(["--acquire-timeout", "0"]).finish().code(), 0);
    }
}

/// The TTL. A standby that leads sooner must have got a released slot.
const LONG: Duration = Duration::from_secs(60);

#[test]
fn standby_leads_at_once_after_a_killed_leader_whose_on_loss_hook_has_run() {
    let trial = VVM.trial();
    let start = |on_lead| Elect::start(&trial, on_lead, ON_LOSS, &["--ttl", "60s"]);
    // Its on-lead hook still runs.
    let mut first = start("echo lead $VVM_LEADER_EPOCH; sleep 0.3; echo midway; sleep 1000");
    let led = first.stdout.wait_for("lead").replace("lead", "loss");
    // By then the demoter knows its process.
    first.stdout.wait_for("midway");
    let mut second = start(ON_LEAD);
    second.stderr.wait_for("waiting for leadership");
    let killed_at = SystemClock::read();
    let (out, said) = first.kill();
    assert_eq!(out.last(), Some(&led));
    assert!(said.iter().any(|line| line.contains("released by the demoter")), "{said:#?}");
    second.stdout.wait_for("lead");
    assert!(SystemClock::read().since(killed_at) < LONG / 2, "it waited for the TTL");
    assert_eq!(trial.processes().with("sleep 1000"), []);
    assert_eq!(second.stop().0, 0);
}

#[test]
fn record_expires_after_a_killed_leader_whose_on_loss_hook_fails() {
    let trial = VVM.trial();
    let (leader, _) = Elect::leading(&trial, "exit 7", &["--ttl", "60s"]);
    let held = trial.slots();
    let (_, said) = leader.kill();
    let refusal = "expires by its TTL: the on-loss hook ended with exit status: 7";
    assert!(said.iter().any(|line| line.contains(refusal)), "{said:#?}");
    assert_eq!(trial.slots()[0]["holder"], held[0]["holder"]);
}

#[test]
fn dead_demoter_is_reported_and_another_one_demotes_after_the_next_claim() {
    let trial = VVM.trial();
    let (mut elect, _) = Elect::leading(&trial, ON_LOSS, &["--ttl", harness::SHORT_TTL]);
    let demoters = || trial.processes().with("stage-demote");
    let first = demoters();
    kill_process(first[0], Signal::KILL).unwrap();
    // The next renewal moves the deadline.
    elect.stderr.wait_for("the demoter has ended or hangs");
    for command in ["pause", "resume"] {
        trial.must(command, &[]);
    }
    elect.stderr.wait_for("another one was started");
    let led = epoch(&elect.stdout.wait_for("lead"));
    assert_ne!(demoters(), first);
    assert_eq!(elect.kill().0.last(), Some(&format!("loss {led}")));
}

#[test]
fn candidate_that_is_killed_leaves_its_demoter_nothing_to_do() {
    let trial = VVM.trial();
    let (leader, _) = Elect::leading(&trial, ON_LOSS, &[]);
    let mut standby = Elect::start(&trial, ON_LEAD, ON_LOSS, &[]);
    standby.stderr.wait_for("waiting for leadership");
    let (out, said) = standby.kill();
    assert_eq!(out, Vec::<String>::new());
    assert!(said.last().unwrap().contains("waiting for leadership"), "{said:#?}");
    assert_eq!(leader.stop().0, 0);
    eventually("no process is left", || trial.processes().0.is_empty());
}

#[test]
fn elect_is_refused_with_the_cause_and_its_status() {
    let trial = VVM.trial();
    trial.run(["true"]).with(["--slots", "2"]).finish();
    let (missing, hint) = trial.storage_that_was_never_made();
    let (storage, name) = (trial.storage(), trial.name());
    for (files, storage, options, code, said) in [
        ("64", &missing, &[][..], 69, hint),
        ("4", &storage, &["--slots", "2"], 71, "ulimit -n"),
        ("64", &storage, &["--slots", "3"], 78, "has 2 slots in this storage, not 3"),
    ] {
        let limited = format!("ulimit -n {files}; exec \"$@\"");
        let mut elect = Command::new("sh");
        elect.args(["-c", &limited, "sh", VVM.path(), "elect"]).env("TRIAL", trial.mark());
        elect.args(["--storage", storage, "--name", &name, "--on-lead", "echo lead", "--on-loss", "true"]);
        elect.args(["--on-start", "keep"]);
        let output = elect.args(options).stdin(Stdio::null()).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), output.stdout), (Some(code), Vec::new()), "{options:?}: {error}");
        assert!(error.contains(said), "{options:?}: {error}");
    }
}
