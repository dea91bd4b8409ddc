//! `vvm elect`: hooks at the beginning and at the end of a leadership. After its death its demoter runs the
//! on-loss hook, whose success leads to a release.

use crate::VVM;
use harness::{Running, SHORT_TTL, Trial, eventually, gives_pid_namespaces};
use nix::{
    libc::SYS_write,
    sys::{
        ptrace,
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
};
use rustix::process::{Pid, Signal, kill_process};
use std::{fs, process::Command, sync::mpsc::channel, thread, time::Duration};
use vvm_clock::SystemClock;

const ON_LEAD: &str = "echo lead $VVM_LEADER_EPOCH";
const ON_LOSS: &str = "echo loss $VVM_LEADER_EPOCH";

fn leading(trial: &Trial, on_loss: &str, options: &[&str]) -> (Running, u64) {
    let mut elect = trial.elect(ON_LEAD, on_loss).with(options.iter().copied()).start();
    let led = epoch(&elect.stdout.wait_for("lead"));
    (elect, led)
}

fn epoch(line: &str) -> u64 {
    line.split(' ').nth(1).unwrap().parse().unwrap()
}

fn is_released(trial: &Trial) {
    assert_eq!(trial.run(["true"]).with(["--acquire-timeout", "0"]).finish().code(), 0);
}

#[test]
fn standby_leads_with_a_larger_epoch_after_a_stopped_leader() {
    let trial = VVM.trial();
    let (first, led) = leading(&trial, ON_LOSS, &[]);
    let mut second = trial.elect(ON_LEAD, ON_LOSS).waiting();
    let first = first.stop();
    first.assert_code(0);
    assert_eq!(first.stdout, [format!("lead {led}"), format!("loss {led}")]);
    for line in [
        "running the on-lead hook",
        "the on-lead hook has succeeded",
        ": stop requested; running the on-loss hook",
        "the on-loss hook has succeeded",
    ] {
        first.assert_says(line);
    }
    assert!(!first.says("no longer leading"), "{:#?}", first.stderr);
    assert!(epoch(&second.stdout.wait_for("lead")) > led);
    second.signal(Signal::INT);
    second.finish().assert_code(0);
}

/// The demoter died with the machine, which may have been promoted. In a container, `vvm` is process 1.
#[test]
fn machine_is_demoted_before_its_first_claim() {
    let as_process_1: &[&str] = &["unshare", "--pid", "--fork", "--mount-proc"];
    let settings = if gives_pid_namespaces() { vec![&["env"], as_process_1] } else { vec![&["env"][..]] };
    for through in settings {
        let trial = VVM.trial();
        let on_loss = "sleep 0.3; echo loss $VVM_LEADER_EPOCH $VVM_LEADER_REASON";
        let run = trial.elect(ON_LEAD, on_loss).with(["--on-start", "demote"]);
        let mut elect = run.through(through.iter().copied()).start();
        let led = epoch(&elect.stdout.wait_for("lead"));
        kill_process(trial.process(&format!("{} elect", VVM.path())), Signal::TERM).unwrap();
        let finished = elect.finish();
        finished.assert_code(0);
        assert_eq!(finished.stdout, ["loss 0 start".into(), format!("lead {led}"), format!("loss {led}")]);
    }
}

#[test]
fn machine_that_is_not_demoted_at_the_start_campaigns_and_says_so_in_the_end() {
    let trial = VVM.trial();
    let (leader, _) = leading(&trial, ON_LOSS, &[]);
    let mut standby = trial.elect(ON_LEAD, "exit 7").with(["--on-start", "demote"]).start();
    standby.stderr.wait_for("the on-loss hook ended with exit status: 7");
    standby.stderr.wait_for("waiting for leadership");
    let finished = standby.stop();
    finished.assert_code(1);
    assert_eq!(finished.stdout, [""; 0]);
    assert!(finished.stderr.last().unwrap().ends_with("demote this machine by hand"), "{finished:#?}");
    leader.stop().assert_code(0);
}

#[test]
fn hangup_or_quit_of_a_leader_runs_the_on_loss_hook_and_releases() {
    for signal in [Signal::HUP, Signal::QUIT] {
        let trial = VVM.trial();
        let on_loss = "echo begun; sleep 0.3; echo midway; sleep 0.3; echo loss $VVM_LEADER_EPOCH";
        let (mut elect, led) = leading(&trial, on_loss, &[]);
        elect.signal(signal);
        elect.stdout.wait_for("midway");
        if signal == Signal::HUP {
            // The shell's hangup follows the kernel's. It must not end the hook at once.
            elect.signal(signal);
        }
        let finished = elect.finish();
        finished.assert_code(0);
        assert_eq!(finished.stdout.last(), Some(&format!("loss {led}")));
        is_released(&trial);
    }
}

#[test]
fn second_term_ends_a_leader_that_a_hangup_has_told_to_stop() {
    let trial = VVM.trial();
    let on_loss = "echo begun; sleep 0.3; echo midway; exec sleep 1000";
    let (mut elect, _) = leading(&trial, on_loss, &["--hook-timeout", "1h"]);
    elect.signal(Signal::HUP);
    elect.stdout.wait_for("begun");
    elect.signal(Signal::TERM);
    elect.stdout.wait_for("midway");
    elect.signal(Signal::TERM);
    elect.wait();
    trial.processes().kill();
    assert_eq!(elect.finish().signal(), Signal::TERM.as_raw());
}

#[test]
fn ignored_hangup_stays_ignored_and_ignored_chld_hides_no_end_of_a_hook() {
    let trial = VVM.trial();
    let ignoring = ["env", "--ignore-signal=HUP", "--ignore-signal=CHLD"];
    let mut elect = trial.elect(ON_LEAD, ON_LOSS).through(ignoring).start();
    elect.stdout.wait_for("lead");
    elect.signal(Signal::HUP);
    trial.must("pause", &["--by", "alice"]);
    elect.stdout.wait_for("loss");
    elect.signal(Signal::HUP);
    trial.must("resume", &[]);
    elect.stdout.wait_for("lead");
    elect.stop().assert_code(0);
}

#[test]
fn loss_runs_the_on_loss_hook_and_another_campaign_follows() {
    let trial = VVM.trial();
    let (mut elect, led) = leading(&trial, ON_LOSS, &["--ttl", SHORT_TTL]);
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
    let finished = elect.stop();
    finished.assert_code(0);
    assert_eq!(finished.stdout.last(), Some(&format!("loss {again}")));
}

/// Stops a leader that has written its history: it would hold the lock of the database otherwise.
fn stop_the_process(trial: &Trial, elect: &Running, led: u64) {
    eventually("the history", || trial.must("history", &[]).contains(&led.to_string()));
    elect.signal(Signal::STOP);
}

#[test]
fn process_stopped_past_its_deadline_runs_on_loss_once_when_it_continues() {
    let trial = VVM.trial();
    let (mut first, led) = leading(&trial, ON_LOSS, &["--ttl", SHORT_TTL]);
    stop_the_process(&trial, &first, led);
    let (second, next) = leading(&trial, ON_LOSS, &["--ttl", SHORT_TTL]);
    assert!(next > led);
    first.signal(Signal::CONT);
    assert_eq!(epoch(&first.stdout.wait_for("loss")), led);
    let finished = first.stop();
    // 80 by its deadline, or 0 if it released its leadership before the deadline was checked.
    assert!([0, 80].contains(&finished.code()), "{finished:#?}");
    assert_eq!(finished.stdout, [format!("lead {led}"), format!("loss {led}")]);
    second.stop();
}

/// It would find its own record expired, claim it, and end without having run the on-lead hook.
#[test]
fn process_stopped_past_its_ttl_claims_nothing_while_its_on_loss_hook_runs() {
    let trial = VVM.trial();
    let (elect, led) = leading(&trial, "echo begun; sleep 1; echo done", &["--ttl", SHORT_TTL]);
    stop_the_process(&trial, &elect, led);
    eventually("the record has expired", || trial.status(&[]).1.contains("stale"));
    elect.signal(Signal::CONT);
    let finished = elect.finish();
    finished.assert_code(80);
    assert_eq!(finished.stdout.last().unwrap(), "done");
    let table = trial.status(&[]).1;
    assert!(table.contains(&led.to_string()), "{led}: {table}");
}

#[test]
fn on_loss_hook_past_the_deadline_completes_before_vvm_exits_with_80() {
    let trial = VVM.trial();
    let (mut elect, _) = leading(&trial, "echo begun; sleep 2; echo done", &["--ttl", SHORT_TTL]);
    let outage = trial.outage();
    elect.stdout.wait_for("begun");
    let finished = elect.finish();
    drop(outage);
    finished.assert_code(80);
    assert_eq!(finished.stdout.last().unwrap(), "done");
    finished.assert_says("the kill deadline has passed");
}

/// Lets each thread of a process hang once it prints, as on a disk that hangs.
fn hang_when_it_prints(process: Pid) {
    let (hangs, hung) = channel();
    thread::spawn(move || {
        for thread in fs::read_dir(format!("/proc/{process}/task")).unwrap() {
            let thread = nix::unistd::Pid::from_raw(
                thread.unwrap().file_name().into_string().unwrap().parse().unwrap(),
            );
            ptrace::seize(thread, ptrace::Options::PTRACE_O_TRACESYSGOOD).unwrap();
            ptrace::interrupt(thread).unwrap();
        }
        hangs.send(()).unwrap();
        let ours = WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD;
        while let Ok(status) = waitpid(None, Some(ours)) {
            let Some(thread) = status.pid() else { continue };
            let _ended = match status {
                WaitStatus::PtraceSyscall(_) if prints(thread) => continue,
                WaitStatus::Stopped(_, signal) => ptrace::syscall(thread, signal),
                _ => ptrace::syscall(thread, None),
            };
        }
    });
    hung.recv().unwrap();
}

/// Whether a stopped thread is in a `write` of more than a wake-up.
fn prints(thread: nix::unistd::Pid) -> bool {
    let call = fs::read_to_string(format!("/proc/{thread}/syscall")).unwrap_or_default();
    let words = call.split(' ').collect::<Vec<_>>();
    let length = |word: &str| usize::from_str_radix(word.trim_start_matches("0x"), 16).unwrap();
    words[0] == SYS_write.to_string() && length(words[3]) > 8
}

#[test]
fn on_loss_hook_starts_while_what_prints_hangs() {
    let trial = VVM.trial();
    let (mut elect, led) = leading(&trial, ON_LOSS, &["--ttl", SHORT_TTL]);
    hang_when_it_prints(elect.guardian);
    let outage = trial.outage();
    kill_process(trial.processes().with("stage-demote")[0], Signal::KILL).unwrap();
    assert_eq!(elect.stdout.wait_for("loss"), format!("loss {led}"));
    drop(outage);
    elect.signal(Signal::KILL);
}

#[test]
fn on_lead_hook_gives_way_at_the_deadline_while_what_prints_hangs() {
    let trial = VVM.trial();
    let on_lead = "echo lead $VVM_LEADER_EPOCH; exec sleep 1005";
    let elect = trial.elect(on_lead, ON_LOSS).with(["--hook-timeout", "1h", "--ttl", SHORT_TTL]);
    let mut elect = elect.start();
    let led = epoch(&elect.stdout.wait_for("lead"));
    hang_when_it_prints(elect.guardian);
    let outage = trial.outage();
    assert_eq!(elect.stdout.wait_for("loss"), format!("loss {led}"));
    drop(outage);
    elect.signal(Signal::KILL);
}

#[test]
fn demoter_that_hangs_when_it_prints_has_started_the_on_loss_hook() {
    let trial = VVM.trial();
    let (mut elect, led) = leading(&trial, ON_LOSS, &[]);
    let demoter = trial.processes().with("stage-demote")[0];
    hang_when_it_prints(demoter);
    elect.signal(Signal::KILL);
    assert_eq!(elect.stdout.wait_for("loss"), format!("loss {led}"));
    kill_process(demoter, Signal::KILL).unwrap();
}

#[test]
fn on_loss_hook_waits_for_the_end_of_the_on_lead_hook() {
    let trial = VVM.trial();
    let on_lead = "echo begun; trap '' TERM; sleep 1004 & sleep 1004; :";
    let mut elect = trial.elect(on_lead, ON_LOSS).with(["--hook-timeout", "1h"]).start();
    elect.stdout.wait_for("begun");
    eventually("its child", || trial.processes().of("sleep 1004").len() == 2);
    let finished = elect.stop();
    finished.assert_code(0);
    assert!(finished.stdout.len() == 2 && finished.stdout[1].starts_with("loss"), "{finished:#?}");
    assert!(trial.processes().0.is_empty(), "{:?}", trial.processes().describe());
}

/// As if it hung in the kernel: a tracer keeps it from its parent after its death.
#[test]
fn killed_hook_that_can_not_be_reaped_delays_no_demotion() {
    let trial = VVM.trial();
    let on_lead = "echo lead $VVM_LEADER_EPOCH; exec sleep 1005";
    let mut elect = trial.elect(on_lead, ON_LOSS).with(["--hook-timeout", "1h"]).start();
    let led = epoch(&elect.stdout.wait_for("lead"));
    let hook = nix::unistd::Pid::from_raw(trial.process("sleep 1005").as_raw_pid());
    // This thread is the tracer until its end.
    ptrace::seize(hook, ptrace::Options::empty()).unwrap();
    let finished = elect.stop();
    finished.assert_code(0);
    assert_eq!(finished.stdout.last(), Some(&format!("loss {led}")));
}

#[test]
fn failing_on_lead_hook_releases_the_leadership() {
    let hooks =
        [("exit 3", "ended with exit status: 3"), ("sleep 1000", "took longer than --hook-timeout 200ms")];
    for (on_lead, why) in hooks {
        let trial = VVM.trial();
        let finished = trial.elect(on_lead, ON_LOSS).with(["--hook-timeout", "200ms"]).finish();
        finished.assert_ended(1, why);
        assert_eq!(finished.stdout.len(), 1, "the on-loss hook has run");
        let history = trial.must("history", &[]);
        assert!(history.contains(&format!("  the on-lead hook {why}")), "{history}");
        is_released(&trial);
    }
}

#[test]
fn failing_on_lead_hook_ends_vvm_elect_although_the_leadership_ends_meanwhile() {
    let end = |said: &str, end: fn(&Trial)| {
        let trial = VVM.trial();
        let gate = trial.folder().join("gate");
        let on_loss = format!("echo loss; until test -e {}; do sleep 0.01; done", gate.display());
        let elect = trial.elect("echo lead; exit 3", &on_loss).with(["--log-format", "json"]);
        let mut elect = elect.start();
        elect.stdout.wait_for("loss");
        end(&trial);
        elect.stderr.wait_for(said);
        fs::write(gate, "").unwrap();
        elect.stderr.wait_for("ended: the on-lead hook ended with exit status: 3");
        elect.finish().assert_code(1);
    };
    thread::scope(|scope| {
        scope.spawn(|| end("stopping: lost: ", Trial::take_away));
        scope.spawn(|| {
            end("stopping the work: paused", |trial| drop(trial.about("pause", &["--wait", "no"])))
        });
    });
}

#[test]
fn stop_whose_on_loss_hook_failed_ends_with_status_1_and_releases() {
    let hooks = [("exit 7", "ended with exit status: 7"), ("sleep 1000 & sleep 1000", "took longer than")];
    for (on_loss, why) in hooks {
        let trial = VVM.trial();
        let (elect, _) = leading(&trial, on_loss, &["--hook-timeout", "200ms"]);
        let finished = elect.stop();
        finished.assert_code(1);
        let last = finished.stderr.last().unwrap();
        assert!(last.contains("ended: stopped") && last.contains("the on-loss hook"), "{last}");
        assert!(last.contains(why), "{last}");
        let history = trial.must("history", &[]);
        assert!(history.contains("stop requested; the on-loss hook") && history.contains(why), "{history}");
        assert!(trial.processes().0.is_empty(), "{:?}", trial.processes().describe());
        is_released(&trial);
    }
}

/// The TTL. A standby that leads sooner must have got a released slot.
const LONG: Duration = Duration::from_secs(60);

#[test]
fn standby_leads_at_once_after_a_killed_leader_whose_on_loss_hook_has_run() {
    let trial = VVM.trial();
    let elect = |on_lead| trial.elect(on_lead, ON_LOSS).with(["--ttl", "60s"]);
    let mut first = elect("echo lead $VVM_LEADER_EPOCH; sleep 0.3; echo midway; sleep 1000").start();
    let led = first.stdout.wait_for("lead").replace("lead", "loss");
    // By then the demoter knows its process.
    first.stdout.wait_for("midway");
    let mut second = elect(ON_LEAD).waiting();
    let killed_at = SystemClock::read();
    first.signal(Signal::KILL);
    let of_the_demoter = first.finish();
    assert_eq!(of_the_demoter.stdout.last(), Some(&led));
    of_the_demoter.assert_says("released by the demoter");
    second.stdout.wait_for("lead");
    assert!(SystemClock::read().since(killed_at) < LONG / 2, "it waited for the TTL");
    assert_eq!(trial.processes().with("sleep 1000"), []);
    second.stop().assert_code(0);
}

/// Also if its demoter has no timer, for want of room for its signal.
#[test]
fn record_expires_after_a_killed_leader_whose_on_loss_hook_fails() {
    for (on_loss, limit, why) in [
        ("exit 7", "--sigpending=64", "the on-loss hook ended with exit status: 7"),
        ("true", "--sigpending=0", "Resource temporarily unavailable"),
    ] {
        let trial = VVM.trial();
        let elect = trial.elect(ON_LEAD, on_loss).with(["--ttl", "60s"]);
        let mut leader = elect.through(["prlimit", limit]).start();
        leader.stdout.wait_for("lead");
        let held = trial.slots();
        leader.signal(Signal::KILL);
        leader.finish().assert_says(&format!("expires by its TTL: {why}"));
        assert_eq!(trial.slots()[0]["holder"], held[0]["holder"]);
    }
}

#[test]
fn dead_demoter_is_reported_and_another_one_demotes_after_the_next_claim() {
    let trial = VVM.trial();
    let (mut elect, _) = leading(&trial, ON_LOSS, &["--ttl", SHORT_TTL]);
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
    elect.signal(Signal::KILL);
    assert_eq!(elect.finish().stdout.last(), Some(&format!("loss {led}")));
}

#[test]
fn candidate_that_is_killed_leaves_its_demoter_nothing_to_do() {
    let trial = VVM.trial();
    let (leader, _) = leading(&trial, ON_LOSS, &[]);
    let standby = trial.elect(ON_LEAD, ON_LOSS).waiting();
    standby.signal(Signal::KILL);
    let of_the_demoter = standby.finish();
    assert_eq!(of_the_demoter.stdout, [""; 0]);
    let last = of_the_demoter.stderr.last().unwrap();
    assert!(last.contains("waiting for leadership"), "{last}");
    leader.stop().assert_code(0);
    eventually("no process is left", || trial.processes().0.is_empty());
}

#[test]
fn elect_is_refused_with_the_cause_and_its_status() {
    let trial = VVM.trial();
    trial.run(["true"]).with(["--slots", "2"]).finish();
    let (missing, hint) = trial.storage_that_was_never_made();
    for (files, options, code, said) in [
        ("64", ["--storage", &missing], 69, hint),
        ("4", ["--slots", "2"], 71, "ulimit -n"),
        ("64", ["--slots", "3"], 78, "has 2 slots in this storage, not 3"),
    ] {
        let limited = format!("ulimit -n {files}; exec \"$@\"");
        let elect = trial.elect("echo lead", "true").with(options);
        let finished = elect.through(["sh", "-c", &limited, "sh"]).finish();
        finished.assert_ended(code, said);
        assert_eq!(finished.stdout, [""; 0]);
    }
}

const WITHOUT_PIDFD_OPEN: &str = r#"
import ctypes, os, struct, sys

filter = [(0x20, 0, 0, 0), (0x15, 0, 1, 434), (6, 0, 0, 0x50026), (6, 0, 0, 0x7FFF0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in filter))

class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]

libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(Program(len(filter), ctypes.addressof(code)))) == 0
os.execvp(sys.argv[1], sys.argv[1:])
"#;

#[test]
fn kernel_that_gives_no_descriptor_of_a_hook_is_refused() {
    if Command::new("python3").arg("--version").output().is_err() {
        println!("left out: a kernel without pidfd_open: no python3");
        return;
    }
    let trial = VVM.trial();
    let elect = trial.elect("echo lead", ON_LOSS).through(["python3", "-c", WITHOUT_PIDFD_OPEN]);
    elect.finish().assert_ended(71, "pidfd_open: Function not implemented");
    assert_eq!(trial.status(&[]).0, 66);
}
