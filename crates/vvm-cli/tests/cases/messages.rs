//! The command line as only a process shows it, and what `vvm run` and `vvm elect` tell the operator. Unit tests of
//! `cli` have the refusals of options and settings.

use crate::{VVM, cases::elect::Elect};
use harness::{Finished, Freezer, Run, Trial, command_line, eventually, has_ended, state};
use rustix::{
    fs::{CWD, Mode, mkfifoat},
    process::{Pid, Signal},
};
use std::{
    ffi::OsStr,
    fs::{self, DirEntry, File},
    os::unix::ffi::OsStrExt as _,
    process::{Command, Output},
    time::Duration,
};

fn vvm() -> Command {
    VVM.command(&[])
}

fn said(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn argument_that_is_not_utf_8_is_named() {
    let odd = OsStr::from_bytes(b"pay\xffroll");
    let trial = VVM.trial();
    let word =
        vvm().args(["run", "--storage", &trial.storage(), "--name"]).arg(odd).args(["--", "true"]).output();
    let variable = vvm().args(["status", "--storage", &trial.storage()]).env("VVM_NAME", odd).output();
    for (output, named) in
        [(word.unwrap(), r#"vvm: "pay\xFFroll""#), (variable.unwrap(), r#"vvm: VVM_NAME="pay\xFFroll""#)]
    {
        assert_eq!(output.status.code(), Some(64));
        assert!(said(&output).starts_with(&format!("{named} is not UTF-8")), "{}", said(&output));
    }
    // Arguments of the command may have any bytes.
    let mut run = vvm();
    run.args(["run", "--storage", &trial.storage(), "--name", "payroll", "--", "printf", "%s"]).arg(odd);
    assert_eq!(run.output().unwrap().stdout, odd.as_bytes());
}

/// A command fails if it can't print its answer.
#[test]
fn full_output_is_an_error() {
    let trial = VVM.trial();
    trial.run(["true"]).finish();
    let storage = trial.storage();
    let of = |words: &[&str]| {
        let mut command = vvm();
        command.args(words).args(["--storage", &storage, "--name", "payroll"]);
        command
    };
    for mut command in [of(&["status"]), of(&["history"]), of(&["watch"]), of(&["doctor"])] {
        let output = command.stdout(File::options().write(true).open("/dev/full").unwrap()).output().unwrap();
        assert_eq!(output.status.code(), Some(71), "{command:?}: {}", said(&output));
        assert!(said(&output).contains("vvm: can't write: No space left"), "{command:?}: {}", said(&output));
    }
}

/// The file is a pipe, so a second reader would wait for ever.
#[test]
fn file_is_read_once_for_guardian_and_host() {
    let trial = VVM.trial();
    let path = trial.folder().join("pipe");
    mkfifoat(CWD, &path, Mode::from_raw_mode(0o600)).unwrap();
    let run = trial.run(["sh", "-c", "echo up $VVM_LEADER_NAME; exec sleep 1000"]).without(["--name"]);
    let mut running = run.with(["--config", path.to_str().unwrap()]).start();
    fs::write(&path, "name = \"piped\"\nttl = \"19s\"\n").unwrap();
    assert_eq!(running.stdout.wait_for("up"), "up piped");
    // The host prints both.
    running.stderr.wait_for("TTL 19s");
    assert_eq!(running.stop().signal(), 15);
    eventually("no process is left", || trial.processes().0.is_empty());
}

#[test]
fn misspelled_variable_is_reported_and_a_foreign_one_is_not() {
    let trial = VVM.trial();
    let finished = trial.run(["true"]).environment("VVM_STOP_TIMEOT", "1s").finish();
    assert_eq!(finished.code(), 0);
    assert!(finished.says("did you mean VVM_STOP_TIMEOUT?"), "{:#?}", finished.stderr);
    let of_others = ["VVM_LEADER_NAME", "VVM_LOG", "VVM_STORAGE_PASSWORD", "VVM_QUUX", "VVM_INSTANCES"];
    let run = of_others.into_iter().fold(trial.run(["true"]), |run, name| run.environment(name, "error"));
    let finished = run.finish();
    assert!(!finished.says("did you mean"), "{:#?}", finished.stderr);
}

/// The status and the lines of a refusal by the parser are those of the program.
#[test]
fn refused_command_line_is_64_and_says_what_to_write() {
    let refused =
        vvm().args(["run", "--storage", "sqlite:x.db", "--name", "x", "sleep", "1"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(64));
    assert!(said(&refused).contains("write -- before the command"), "{}", said(&refused));
    let run = ["run", "--storage", "sqlite:x.db", "--name", "x", "--acquire-timeout", "1m", "--", "true"];
    let refused = vvm().args(run).env("VVM_TTL", "soon").output().unwrap();
    assert_eq!(refused.status.code(), Some(64));
    assert!(said(&refused).contains("--ttl is set by VVM_TTL"), "{}", said(&refused));
}

#[test]
fn log_filter_that_is_no_level_is_refused() {
    let trial = VVM.trial();
    let with = |filter: &str| trial.run(["true"]).environment("VVM_LOG", filter).finish();
    let refused = with("banana");
    assert_eq!(refused.code(), 64);
    assert!(refused.says("VVM_LOG=banana: write off, error, warn"), "{:#?}", refused.stderr);
    for filter in ["debug", "vvm_host=trace,warn", "OFF", ""] {
        assert_eq!(with(filter).code(), 0, "{filter}");
    }
}

/// Neither the host, nor the keeper, nor the shell that runs the line.
#[test]
fn lines_of_a_settings_file_are_not_in_the_arguments_of_any_process() {
    let trial = VVM.trial();
    let path = trial.folder().join("vvm.toml");
    let check = "echo ${SECRET:-checked} >&2; : token-of-check; sleep 1000";
    let settings =
        format!("check = \"{check}\"\ncheck-interval = \"20ms\"\npre-stop = \": token-of-pre-stop\"\n");
    fs::write(&path, settings).unwrap();
    let run = trial.run_forever().with(["--config", path.to_str().unwrap()]);
    let mut running = run.up();
    running.stderr.wait_for("checked");
    let processes = trial.processes();
    let lines = processes.0.iter().map(|pid| command_line(*pid)).collect::<Vec<_>>();
    assert!(lines.iter().any(|line| line.starts_with("vvm stage-keeper")), "{lines:#?}");
    assert!(lines.iter().all(|line| !line.contains("token-of")), "{lines:#?}");
    running.stop();
}

#[test]
fn stop_is_announced_at_once_with_its_longest_duration() {
    let trial = VVM.trial();
    let run = trial.run_trapping("sleep 0.2; exit 0");
    let mut running = run.with(["--stop-timeout", "30s"]).up();
    running.signal(Signal::TERM);
    running.stderr.wait_for("slot 1: stopping: up to 30s; a second signal kills");
    assert_eq!(running.finish().code(), 0);
}

#[test]
fn kill_after_the_stop_timeout_is_in_line_event_result_file_and_history() {
    const KILLED: &str = "ended by SIGKILL: it did not stop within --stop-timeout";
    let trial = VVM.trial();
    let finish = |format: &str| -> Finished {
        let run = trial.run_trapping("");
        let options = ["--stop-timeout", "50ms", "--log-format", format];
        let running = run.with(options).with(["--result-file", &trial.result_file()]).up();
        running.stop()
    };
    let finished = finish("text");
    assert_eq!(finished.code(), 137);
    assert!(finished.says(KILLED), "{:#?}", finished.stderr);
    let finished = finish("json");
    let concluded = finished.stderr.iter().find(|line| line.contains("\"concluded\"")).unwrap();
    assert!(concluded.contains(KILLED), "{concluded}");
    let found = trial.result();
    assert!(found["reason"].as_str().unwrap().contains(KILLED), "{found}");
    let (code, history, _) = trial.about("history", &[]);
    assert!(code == 0 && history.contains(KILLED), "{history}");
}

/// In another folder it means another file, and there another candidate would lead.
#[test]
fn first_line_warns_of_a_relative_path_and_names_the_whole_one() {
    let trial = VVM.trial();
    for command in [
        &["run", "--", "true"][..],
        &["once", "--period", "today", "--", "true"],
        &["elect", "--on-start", "keep", "--on-lead", "exit 3", "--on-loss", ":"],
    ] {
        let mut vvm = std::process::Command::new(VVM.path());
        vvm.current_dir(trial.folder()).env("TRIAL", trial.mark()).env("VVM_LOCAL_DIR", trial.local_dir());
        vvm.env("VVM_STORAGE", "sqlite:relative.db?allow=overlay").env("VVM_NAME", "payroll");
        let output = vvm.args(command).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        let meant = trial.folder().join("relative.db").display().to_string();
        let warning = format!("the path of the storage is relative, and means {meant} in this folder");
        assert!(said.lines().next().unwrap_or_default().contains(&warning), "{command:?}: {said}");
    }
}

/// `vvm elect` has the options of `vvm run`.
#[test]
fn elect_serves_http_logs_json_and_gives_up_in_time() {
    let trial = VVM.trial();
    let elect = |options: &[&str]| Elect::start(&trial, ":", ":", options);
    let mut leader = elect(&["--http", "localhost:0", "--log-format", "json"]);
    leader.stderr.wait_for("http://127.0.0.1:");
    leader.stderr.wait_for("\"event\":\"leading\"");
    for options in [&["--acquire-timeout", "0"][..], &["--try", "--ttl", "2s"]] {
        let (code, _, said) = elect(options).finish();
        assert_eq!(code, 75, "{options:?}: {said:#?}");
        assert!(said.iter().any(|line| line.contains("payroll: ended: ")), "{said:#?}");
    }
    let (code, _, said) = leader.stop();
    assert_eq!(code, 0, "{said:#?}");
    assert!(said.iter().any(|line| line.contains("\"event\":\"concluded\"")), "{said:#?}");
    eventually("no process is left", || trial.processes().0.is_empty());
}

#[test]
fn second_stop_request_ends_vvm_although_the_storage_does_not_answer() {
    let trial = VVM.trial();
    let mut running = trial.run_trapping("echo told; exit 0").up();
    let lock = trial.lock_storage();
    running.signal(Signal::TERM);
    running.stdout.wait_for("told");
    // One within 100 ms of the first counts as its echo, so it is repeated.
    eventually("ended", || {
        running.signal(Signal::TERM);
        state(running.guardian) == Some('Z')
    });
    let finished = running.finish();
    drop(lock);
    assert_eq!(finished.code(), 0);
    assert!(finished.says("the storage does not answer, so the record may stand"), "{:#?}", finished.stderr);
}

#[test]
fn standby_names_the_leader_at_first_and_whenever_it_changes() {
    let trial = VVM.trial();
    let run = |holder: &str| {
        let run = trial.run_forever();
        run.with(["--holder", holder, "--ttl", harness::SHORT_TTL])
    };
    let first = run("first").up();
    let mut standby = run("standby").with(["--local-dir", "none"]).start();
    let line = standby.stderr.wait_for("TTL ");
    assert!(line.contains("storage ") && line.contains("slot 1 is held by first, epoch "), "{line}");
    assert!(line.contains(", since 20"), "{line}");
    standby.stderr.wait_for("waiting for leadership");
    let mut second = run("second").waiting();
    trial.must("step-down", &["--to", "second"]);
    second.stdout.wait_for("up");
    standby.stderr.wait_for("payroll: slot 1 is led by second, epoch ");
    let refused = run("late").with(["--acquire-timeout", "0"]).finish();
    assert_eq!(refused.code(), 75);
    assert!(refused.says("in time; slot 1 is led by second, epoch "), "{:#?}", refused.stderr);
    for running in [standby, second, first] {
        running.stop();
    }
}

#[test]
fn candidate_with_the_holder_of_a_leader_is_warned() {
    let trial = VVM.trial();
    let _first = trial.run_forever().with(["--holder", "copied"]).up();
    let mut second = trial.run(["true"]).with(["--holder", "copied"]).start();
    second.stderr.wait_for("copied, this candidate's own name, holds a slot already");
    second.stderr.wait_for("waiting for leadership");
}

fn until_opening(host: u32) {
    eventually("the host handles signals and opens the storage", || {
        catches(host, Signal::TERM) && !opening_threads(host).is_empty()
    });
}

/// Whether a process has a handler for `signal`.
fn catches(process: u32, signal: Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let mask = mask.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok()).unwrap_or(0);
    mask & (1 << (signal.as_raw() - 1)) != 0
}

/// The threads that open the database of a process.
fn opening_threads(process: u32) -> Vec<Pid> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let opens =
        |task: &DirEntry| fs::read(task.path().join("comm")).is_ok_and(|name| name == b"vvm-sqlite\n");
    let number = |task: DirEntry| Pid::from_raw(task.file_name().to_str()?.parse().ok()?);
    tasks.filter(opens).filter_map(number).collect()
}

/// Has the thread that opens the storage hang, as on a disk that hangs: it can't be killed, and its process can't end.
/// Checks that `run` ends at a stop, made when so many threads have begun to open it.
fn ends_while_opening_hangs(trial: &Trial, run: Run, threads: usize) {
    let freezer = match Freezer::of(trial.mark()) {
        Ok(freezer) => freezer,
        Err(cause) => return println!("not tested: no thread can be kept from ending: {cause}"),
    };
    let lock = trial.lock_storage();
    // Not even a look is possible.
    lock.execute_batch("COMMIT; BEGIN EXCLUSIVE").unwrap();
    let mut run = run.start();
    let host = run.host().as_raw_nonzero().get() as u32;
    until_opening(host);
    let thread = opening_threads(host)[0];
    freezer.freeze_thread(thread);
    eventually("it is tried again", || opening_threads(host).len() == threads);
    run.signal(Signal::TERM);
    run.stderr.wait_for("a thread of it hangs in the kernel");
    eventually("vvm has ended", || has_ended(run.guardian));
    assert!(!has_ended(thread), "it could be killed");
    drop((freezer, lock));
    let finished = run.finish();
    assert_eq!((finished.signal(), finished.stdout), (15, Vec::new()));
}

#[test]
fn run_ends_at_a_stop_while_the_thread_that_opens_the_storage_hangs() {
    let trial = VVM.trial();
    ends_while_opening_hangs(&trial, trial.run(["echo", "never"]), 1);
}

/// It gives up its first look after a TTL, and campaigns.
#[test]
fn once_ends_at_a_stop_while_the_thread_of_its_first_look_hangs() {
    let trial = VVM.trial();
    let once = trial.run(["echo", "never"]).once("2026-11-24").with(["--ttl", "1s"]);
    ends_while_opening_hangs(&trial, once, 2);
}

mod timed {
    use super::*;

    /// The file is locked before it has the format of a storage, so opening waits for the lock, for 5 s.
    #[test]
    fn term_while_the_storage_opens_ends_run_and_elect_at_once() {
        VVM.timed("a stop while the storage opens", |attempt, trial| {
            let lock = trial.lock_storage();
            let elect = Elect::start(trial, ":", ":", &[]);
            until_opening(elect.child.id());
            let began = vvm_clock::SystemClock::read();
            let (code, said, _) = elect.stop();
            attempt.took("the stop of vvm elect", Duration::from_secs(1), began)?;
            assert_eq!((code, said), (0, Vec::new()));

            let run = trial.run(["echo", "never"]).start();
            until_opening(run.host().as_raw_nonzero().get() as u32);
            let began = vvm_clock::SystemClock::read();
            let finished = run.stop();
            attempt.took("the stop of vvm run", Duration::from_secs(1), began)?;
            assert_eq!((finished.signal(), finished.stdout), (15, Vec::new()));
            drop(lock);
            Ok(())
        });
    }
}
