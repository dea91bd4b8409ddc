//! `vvm` as process 1 of a PID namespace, as in a container, and in a minimal one: a read-only root with the program,
//! its libraries, `/proc`, `/dev/null` and a folder for the storage, but no shell, `/tmp`, user or certificate.

use crate::VVM;
use harness::{Level, Lines, OUTLIVING, Trial, has, is_permitted};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    io::Read,
    process::{Child, Command, Stdio},
    time::Duration,
};
use vvm_clock::SystemClock;

/// Runs the rest of the line as process 1 of a namespace, and ends in the same way as that process. An
/// ordinary user may do so as root of a user namespace.
const UNSHARE: [&str; 5] = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"];
const AS_ROOT_OF_A_NAMESPACE: [&str; 2] = ["--user", "--map-root-user"];

fn unshare() -> Option<Vec<&'static str>> {
    let ways = [UNSHARE.to_vec(), [&UNSHARE[..], &AS_ROOT_OF_A_NAMESPACE].concat()];
    let found = ways.into_iter().find(|way| is_permitted(&[&way[..], &["true"]].concat()));
    if found.is_none() {
        println!("not tested: this machine does not allow PID namespaces");
    }
    found
}

fn init(trial: &Trial) -> Pid {
    trial.process(&format!("{} run --storage", VVM.path()))
}

fn host(trial: &Trial) -> Pid {
    trial.processes().with(" stage-host ")[0]
}

const DAEMON: &str = "(setsid sleep 1000 &); echo up; exec sleep 1001";

#[test]
fn statuses_are_those_of_a_shell_and_orphans_are_reaped() {
    let Some(unshare) = unshare() else { return };
    let trial = VVM.trial();
    // A hundred grandchildren that no process waits for, until the namespace has no zombie.
    let script = "i=0; while [ $i -lt 100 ]; do (sh -c ':' &); i=$((i+1)); done
                  until ! grep -qs '^State:.Z' /proc/[0-9]*/status; do :; done; echo clean; exit 3";
    let finished = trial.run_script(script).through(unshare.clone()).finish();
    finished.assert_code(3);
    assert_eq!(finished.stdout, ["clean"]);

    // Process 1 can't die of a signal.
    let run = trial.run_forever().with(["--result-file", &trial.result_file()]);
    let running = run.through(unshare).up();
    kill_process(init(&trial), Signal::TERM).unwrap();
    running.finish().assert_code(128 + 15);
    has!(trial.result(), "exit_status" == 128 + 15);
    assert!(trial.result()["signal"].is_null(), "{}", trial.result());
}

/// It would show processes of another namespace.
#[test]
fn proc_of_another_namespace_is_refused_and_says_what_to_do() {
    let Some(unshare) = unshare() else { return };
    let trial = VVM.trial();
    let without_proc = unshare.into_iter().filter(|option| *option != "--mount-proc").collect::<Vec<_>>();
    let finished = trial.run(["true"]).through(without_proc).finish();
    finished.assert_ended(71, "mount -t proc proc /proc");
}

#[test]
fn elect_without_proc_says_what_to_do() {
    let without_proc = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"];
    let hidden = [&without_proc[..], &["mount -t tmpfs none /proc; exec \"$@\"", "sh"]].concat();
    if !is_permitted(&[&hidden[..], &["true"]].concat()) {
        return println!("not tested: this machine does not allow mount namespaces");
    }
    let trial = VVM.trial();
    trial.elect("true", "true").through(hidden).finish().assert_ended(71, "mount -t proc proc /proc");
}

/// Makes the container's files below `$2`: folders, the program `$1`, and its libraries with their loader; a static
/// one has none. Other processes copy: a concurrent test could not execute a file that this one has open.
const LAY_DOWN: &str = "set -e; for folder in proc dev data; do mkdir -p \"$2/$folder\"; done
    : > \"$2/dev/null\"; cp \"$1\" \"$2/vvm\"
    for library in $(ldd \"$1\" | grep -o '/[^ ]*'); do cp --parents \"$library\" \"$2\"; done";

const CONTAINER: [&str; 6] = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount"];

fn start(trial: &Trial, words: &[&str]) -> Child {
    let root = trial.folder().join("root");
    if !root.exists() {
        let laid = Command::new("sh").args(["-c", LAY_DOWN, "sh", VVM.path()]).arg(&root).status().unwrap();
        assert!(laid.success());
    }
    let enter = "set -e; cd \"$1\"; shift; mount --bind . .; mount --bind data data; mount -o \
        remount,ro,bind .; cd \"$PWD\"
        mount -t proc proc proc; mount --bind /dev/null dev/null; exec chroot . /vvm \"$@\"";
    Command::new(CONTAINER[0])
        .args(&CONTAINER[1..])
        .args(["--kill-child", "sh", "-c", enter, "sh"])
        .arg(root)
        .args(words)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("TRIAL", trial.mark())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn container_with_only_vvm_and_its_libraries_is_enough() {
    if VVM.level() != Level::Guardian {
        return;
    }
    if !is_permitted(&[&CONTAINER[..], &["true"]].concat()) {
        println!("not tested: this machine does not allow containers");
        return;
    }
    let trial = VVM.trial();
    let storage = ["--storage", "sqlite:/data/leader.db?allow=overlay", "--name", "payroll"];
    let run = |command: &[&str]| start(&trial, &[&["run"], &storage[..], &["--"], command].concat());

    let output = run(&["/vvm", "no-such-command"]).wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(64), "{said}");
    assert!(said.contains(":1, containment: guardian"), "{said}");
    assert!(said.contains("the command exited with status 64"), "{said}");
    let elsewhere = ["run", "--storage", "sqlite:/leader.db", "--name", "payroll", "--", "/vvm"];
    assert_eq!(start(&trial, &elsewhere).wait().unwrap().code(), Some(69));

    let mut running =
        run(&["/vvm", "watch", "--storage", "sqlite:/data/leader.db?allow=overlay", "--name", "payroll"]);
    let mut lines = Lines::of("stdout", running.stdout.take().unwrap());
    lines.wait_for("held by");
    kill_process(trial.process("/vvm run"), Signal::TERM).unwrap();
    assert_eq!(running.wait().unwrap().code(), Some(128 + 15));
    assert_eq!(trial.processes().0, []);
}

#[test]
fn commands_of_operators_that_wait_are_ended_by_term_as_process_1() {
    let Some(unshare) = unshare() else { return };
    let trial = VVM.trial();
    let _leader = trial.run_trapping("echo told").with(["--stop-timeout", "1h"]).up();
    let (storage, name) = (trial.storage(), trial.name());
    let is_watch = "held by";
    for (words, says) in
        [(&["watch"][..], is_watch), (&["pause", "--wait", "1h"], "waiting until no process leads")]
    {
        let mut init = Command::new(unshare[0])
            .args(&unshare[1..])
            .args([&[VVM.path()], words, &["--storage", &storage, "--name", &name]].concat())
            .env("TRIAL", trial.mark())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said: Box<dyn Read + Send> = match says == is_watch {
            true => Box::new(init.stdout.take().unwrap()),
            false => Box::new(init.stderr.take().unwrap()),
        };
        Lines::of("its output", said).wait_for(says);
        kill_process(trial.process(&format!("{} {}", VVM.path(), words[0])), Signal::TERM).unwrap();
        assert_eq!(init.wait().unwrap().code(), Some(128 + 15));
    }
}

mod timed {
    use super::*;

    #[test]
    fn nothing_outlives_a_killed_host_or_init() {
        let Some(unshare) = unshare() else { return };
        for (who, victim) in [("host", host as fn(&Trial) -> Pid), ("init", init)] {
            VVM.timed(&format!("the {who} of a container is killed"), |attempt, trial| {
                let running = trial.run_script(DAEMON).through(unshare.clone()).up();
                let victim = victim(trial);
                let killed_at = SystemClock::read();
                kill_process(victim, Signal::KILL).unwrap();
                attempt.within("the end of the command", OUTLIVING, killed_at, || {
                    trial.processes().of("sleep").is_empty()
                })?;
                let finished = running.finish();
                if who == "host" {
                    finished.assert_code(128 + 9);
                }
                Ok(())
            });
        }
    }

    /// Process 1 ignores its own kill timer. The host is another process, so its timer works.
    #[test]
    fn stopped_host_is_dead_at_the_deadline() {
        let Some(unshare) = unshare() else { return };
        // 0.8 TTL after the last renewal was sent, and the time that the scheduler needs.
        let bound = Duration::from_millis(1600 + 200);
        VVM.timed("the host in a container is stopped", |attempt, trial| {
            let running = trial.run_script(DAEMON).with(["--ttl", "2s"]).through(unshare.clone()).up();
            kill_process(host(trial), Signal::STOP).unwrap();
            let stopped_at = SystemClock::read();
            attempt
                .within("the end of all processes", bound, stopped_at, || trial.processes().0.is_empty())?;
            assert_eq!(running.finish().code(), 137);
            Ok(())
        });
    }
}
