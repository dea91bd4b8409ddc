//! The command line as only a process shows it, and what `vvm run` and `vvm elect` tell the operator. Unit tests of
//! `cli` have the refusals of options and settings.

use crate::VVM;
use harness::{Freezer, Run, catches, command_line, eventually, has_ended, state};
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
    let of = |verb| VVM.command(&[verb, "--storage", &trial.storage()]);
    let word = of("run").arg("--name").arg(odd).args(["--", "true"]).output().unwrap();
    let variable = of("status").env("VVM_NAME", odd).output().unwrap();
    for (output, named) in [(word, r#"vvm: "pay\xFFroll""#), (variable, r#"vvm: VVM_NAME="pay\xFFroll""#)] {
        assert_eq!(output.status.code(), Some(64));
        assert!(said(&output).starts_with(&format!("{named} is not UTF-8")), "{}", said(&output));
    }
    let of_the_command = of("run").args(["--name", "payroll", "--", "printf", "%s"]).arg(odd).output();
    assert_eq!(of_the_command.unwrap().stdout, odd.as_bytes());
}

#[test]
fn full_output_is_an_error() {
    let trial = VVM.trial();
    trial.run(["true"]).finish();
    for verb in ["status", "history", "watch", "doctor"] {
        let mut command = VVM.command(&[verb, "--storage", &trial.storage(), "--name", "payroll"]);
        let output = command.stdout(File::options().write(true).open("/dev/full").unwrap()).output().unwrap();
        assert_eq!(output.status.code(), Some(71), "{verb}: {}", said(&output));
        assert!(said(&output).contains("vvm: can't write: No space left"), "{verb}: {}", said(&output));
    }
}

#[test]
fn log_whose_reader_has_gone_ends_nothing() {
    let trial = VVM.trial();
    let gone = trial.folder().join("gone").display().to_string();
    let reader = format!("{{ read -r line; exec 0<&-; : > '{gone}'; }}");
    let log = format!("exec 3>&1; {{ \"$@\" 2>&1 >&3 3>&-; echo \"status $?\" >&3; }} | {reader}");
    let work = format!("until [ -e '{gone}' ]; do sleep 0.05; done; echo ran; exit 3");
    let finished = trial.run_script(&work).through(["sh", "-c", &log, "sh"]).finish();
    assert_eq!(finished.stdout, ["ran", "status 3"]);
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
    running.stderr.wait_for("TTL 19s");
    assert_eq!(running.stop().signal(), 15);
    eventually("no process is left", || trial.processes().0.is_empty());
}

#[test]
fn long_command_of_a_file_and_a_setting_that_is_not_utf_8_reach_the_host() {
    let trial = VVM.trial();
    let path = trial.folder().join("vvm.toml");
    let result = trial.folder().join(OsStr::from_bytes(b"result\xff"));
    fs::write(&path, format!("command = [\"echo\", \"{}\"]\n", "x".repeat(60_000))).unwrap();
    let mut run = VVM.command(&["run", "--storage", &trial.storage(), "--name", "payroll", "--config"]);
    let output = run.arg(path).env("VVM_RESULT_FILE", &result).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(0), 60_001), "{}", said(&output));
    assert!(result.exists());
}

#[test]
fn refused_command_line_is_64_and_says_what_to_write() {
    let run = ["run", "--storage", "sqlite:x.db", "--name", "x", "sleep", "1"];
    let refused = vvm().args(run).env("VVM_STOP_TIMEOT", "1s").output().unwrap();
    assert_eq!(refused.status.code(), Some(64));
    assert!(said(&refused).contains("write -- before the command"), "{}", said(&refused));
}

#[test]
fn misspelled_variable_is_reported_and_a_log_filter_that_is_no_level_is_refused() {
    let trial = VVM.trial();
    let with = |name, value| trial.run(["true"]).environment(name, value).finish();
    let misspelled = with("VVM_STOP_TIMEOT", "1s");
    misspelled.assert_ended(0, "did you mean VVM_STOP_TIMEOUT?");
    with("VVM_STORAGE_PASWORD", "secret").assert_ended(0, "did you mean VVM_STORAGE_PASSWORD?");
    let refused = with("VVM_LOG", "banana");
    refused.assert_ended(64, "VVM_LOG=banana: write off, error, warn");
    for filter in ["debug", "vvm_host=trace,warn", "OFF", ""] {
        with("VVM_LOG", filter).assert_code(0);
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
fn kill_after_the_stop_timeout_is_in_line_event_result_file_and_history() {
    const KILLED: &str = "ended by SIGKILL: it did not stop within --stop-timeout";
    let trial = VVM.trial();
    let finish = |format: &str| {
        let options = ["--stop-timeout", "50ms", "--log-format", format];
        trial.run_trapping("").with(options).with(["--result-file", &trial.result_file()]).up().stop()
    };
    let finished = finish("text");
    finished.assert_ended(137, KILLED);
    finished.assert_says("slot 1: stopping: up to 50ms; a second signal kills");
    let finished = finish("json");
    let concluded = finished.stderr.iter().find(|line| line.contains("\"concluded\"")).unwrap();
    assert!(concluded.contains(KILLED), "{concluded}");
    let found = trial.result();
    assert!(found["reason"].as_str().unwrap().contains(KILLED), "{found}");
    let history = trial.must("history", &[]);
    assert!(history.contains(KILLED), "{history}");
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
        let mut vvm = vvm();
        vvm.current_dir(trial.folder()).env("TRIAL", trial.mark()).env("VVM_LOCAL_DIR", trial.local_dir());
        vvm.env("VVM_STORAGE", "sqlite:relative.db?allow=overlay").env("VVM_NAME", "payroll");
        let said = said(&vvm.args(command).output().unwrap());
        let meant = trial.folder().join("relative.db").display().to_string();
        let warning = format!("the path of the storage is relative, and means {meant} in this folder");
        assert!(said.lines().next().unwrap_or_default().contains(&warning), "{command:?}: {said}");
    }
}

#[test]
fn elect_serves_http_logs_json_and_gives_up_in_time() {
    let trial = VVM.trial();
    let elect = || trial.elect(":", ":");
    let mut leader = elect().with(["--http", "localhost:0", "--log-format", "json"]).start();
    leader.stderr.wait_for("http://127.0.0.1:");
    leader.stderr.wait_for("\"event\":\"leading\"");
    for options in [&["--acquire-timeout", "0"][..], &["--try", "--ttl", "2s"]] {
        let finished = elect().with(options.iter().copied()).finish();
        finished.assert_ended(75, "payroll: ended: ");
    }
    let finished = leader.stop();
    finished.assert_ended(0, "\"event\":\"concluded\"");
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
    let run = |holder: &str| trial.run_forever().with(["--holder", holder]);
    let _first = run("first").up();
    let mut standby = run("standby").with(["--local-dir", "none"]).start();
    let line = standby.stderr.wait_for("TTL ");
    assert!(line.contains("storage ") && line.contains("slot 1 is held by first, epoch "), "{line}");
    let mut second = run("second").waiting();
    trial.must("step-down", &["--to", "second"]);
    second.stdout.wait_for("up");
    standby.stderr.wait_for("payroll: slot 1 is led by second, epoch ");
    let refused = run("late").with(["--acquire-timeout", "0"]).finish();
    refused.assert_code(75);
    refused.assert_says("in time; slot 1 is led by second, epoch ");
    let mut copied = run("second").start();
    copied.stderr.wait_for("second, this candidate's own name, holds a slot already");
    copied.stderr.wait_for("waiting for leadership");
}

fn until_opening(host: Pid) {
    eventually("the host handles signals and opens the storage", || {
        catches(host, Signal::TERM) && !opening_threads(host).is_empty()
    });
}

fn opening_threads(process: Pid) -> Vec<Pid> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let opens =
        |task: &DirEntry| fs::read(task.path().join("comm")).is_ok_and(|name| name == b"vvm-sqlite\n");
    let number = |task: DirEntry| Pid::from_raw(task.file_name().to_str()?.parse().ok()?);
    tasks.filter(opens).filter_map(number).collect()
}

/// The thread that opens the storage hangs, as on a disk that hangs: it can't be killed, and its process can't end.
/// `vvm once` gives up its first look after a TTL, campaigns, and begins to open it again.
#[test]
fn run_and_once_end_at_a_stop_while_the_thread_that_opens_the_storage_hangs() {
    let once = |run: Run| run.once("2026-11-24").with(["--ttl", "1s"]);
    for (verb, threads) in [("run", 1), ("once", 2)] {
        let trial = VVM.trial();
        let freezer = match Freezer::of(trial.mark()) {
            Ok(freezer) => freezer,
            Err(cause) => return println!("not tested: no thread can be kept from ending: {cause}"),
        };
        let lock = trial.lock_storage();
        lock.execute_batch("COMMIT; BEGIN EXCLUSIVE").unwrap();
        let run = trial.run(["echo", "never"]);
        let mut run = if verb == "once" { once(run) } else { run }.start();
        let host = run.host();
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
        assert_eq!((finished.signal(), finished.stdout), (15, Vec::new()), "{verb}");
    }
}

mod timed {
    use super::*;

    /// The file is locked before it has the format of a storage, so opening waits for the lock, for 5 s.
    #[test]
    fn term_while_the_storage_opens_ends_run_and_elect_at_once() {
        VVM.timed("a stop while the storage opens", |attempt, trial| {
            let _lock = trial.lock_storage();
            for verb in ["elect", "run"] {
                let is_elect = verb == "elect";
                let run = if is_elect { trial.elect(":", ":") } else { trial.run(["echo", "never"]) }.start();
                until_opening(if is_elect { run.guardian } else { run.host() });
                let began = vvm_clock::SystemClock::read();
                let finished = run.stop();
                attempt.took("the stop", Duration::from_secs(1), began)?;
                assert_eq!(finished.stdout, [""; 0], "{verb}");
                assert_eq!(finished.status.code(), is_elect.then_some(0), "{verb}: {:#?}", finished.stderr);
            }
            Ok(())
        });
    }
}
