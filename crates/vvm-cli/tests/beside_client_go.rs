//! `vvm` and client-go's leader election are candidates for one Lease. It needs kube-apiserver: `cargo xtask
//! test-drivers --only kubernetes` starts it, and builds the candidate of client-go.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "clippy knows tests, but not their helpers"
)]

use harness::{Level, Lines, Program, Running, Trial, eventually};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    env,
    process::{Child, Command, Stdio},
    time::Duration,
};
use vvm_clock::SystemClock;

const VVM: Program = Program::new(env!("CARGO_BIN_EXE_vvm"), Level::Guardian);

const CLIENT_GO: &str = "VVM_TEST_CLIENT_GO";
const OLD_CLIENT_GO: &str = "VVM_TEST_OLD_CLIENT_GO";
const KUBECONFIG: &str = "VVM_TEST_KUBECONFIG";

const TTL: u32 = 3;

/// How often a candidate of client-go looks in three TTLs at least: every 0.4 to 0.9 s.
const LOOKS: usize = 23;

struct ClientGo {
    child: Child,
    stdout: Lines,
    stderr: Lines,
}

impl ClientGo {
    /// `duration` is its own `LeaseDuration`, in seconds.
    fn start(program: &str, lease: &str, duration: u32) -> Self {
        let mut command = Command::new(env::var(program).unwrap());
        command.args(["-kubeconfig", &env::var(KUBECONFIG).unwrap(), "-name", lease, "-id", "theirs"]);
        command.args(["-ttl", &format!("{duration}s"), "-v", "4"]);
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = Lines::of("client-go's stdout", child.stdout.take().unwrap());
        let stderr = Lines::of("client-go's stderr", child.stderr.take().unwrap());
        Self { child, stdout, stderr }
    }

    fn terminate(&self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
    }
}

impl Drop for ClientGo {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        self.child.wait().unwrap();
    }
}

fn kubectl(lease: &str, output: &[&str]) -> String {
    let mut command = Command::new("kubectl");
    command.args(["--kubeconfig", &env::var(KUBECONFIG).unwrap(), "get", "lease", lease]);
    let shown = command.args(output).output().unwrap();
    assert!(shown.status.success(), "{}", String::from_utf8_lossy(&shown.stderr));
    String::from_utf8(shown.stdout).unwrap()
}

fn field(lease: &str, name: &str) -> String {
    kubectl(lease, &["-o", &format!("jsonpath={{.spec.{name}}}")])
}

fn columns(lease: &str) -> Vec<String> {
    let shown = kubectl(lease, &[]);
    assert_eq!(
        shown.lines().next().unwrap().split_whitespace().collect::<Vec<_>>(),
        ["NAME", "HOLDER", "AGE"]
    );
    shown.lines().nth(1).unwrap().split_whitespace().map(str::to_owned).collect()
}

fn wait_for_renewals(lease: &str) {
    let began = SystemClock::read();
    let mut renewed = field(lease, "renewTime");
    while SystemClock::read().since(began) < Duration::from_secs(3 * u64::from(TTL)) {
        eventually("a renewal", || field(lease, "renewTime") != renewed);
        renewed = field(lease, "renewTime");
    }
}

fn vvm(trial: &Trial, lease: &str, ttl: u32) -> Running {
    let run = trial.run_script("echo leads; exec sleep 1000").with(["--name", lease, "--holder", "ours"]);
    run.with(["--ttl", &format!("{ttl}s")]).start()
}

mod present {
    use super::*;

    #[test]
    fn each_waits_while_the_other_leads_and_kubectl_shows_who_does() {
        let trial = VVM.trial();
        let lease = format!("beside-{}", std::process::id());

        let mut ours = vvm(&trial, &lease, TTL);
        ours.stdout.wait_for("leads");
        let [name, holder, _age] = columns(&lease).try_into().unwrap();
        assert_eq!((&*name, &*holder), (&*lease, "ours"));
        assert_eq!(field(&lease, "leaseDurationSeconds"), TTL.to_string());

        let renewed = field(&lease, "renewTime");

        let mut theirs = ClientGo::start(CLIENT_GO, &lease, TTL);
        for _ in 0..LOOKS {
            let refused = theirs.stderr.wait_for("has not yet expired");
            assert!(refused.contains("ours"), "{refused}");
        }
        assert_ne!(field(&lease, "renewTime"), renewed);
        assert_eq!(columns(&lease)[1], "ours");
        assert_eq!(field(&lease, "leaseTransitions"), "1");

        assert_eq!(ours.stop().signal(), 15);
        let released = SystemClock::read();
        theirs.stdout.wait_for("leading");
        let took = SystemClock::read().since(released);
        assert!(took < Duration::from_secs(u64::from(TTL)), "{took:?}");
        assert_eq!(columns(&lease)[1], "theirs");

        let mut ours = vvm(&trial, &lease, TTL);
        ours.stderr.wait_for("waiting for leadership");
        wait_for_renewals(&lease);
        assert_eq!(columns(&lease)[1], "theirs");
        theirs.terminate();
        theirs.stdout.wait_for("lost");
        // Its own renewals would have prevented that.
        ours.stdout.wait_for("leads");
        assert_eq!(columns(&lease)[1], "ours");
        assert_eq!(ours.stop().signal(), 15);
        assert_eq!(field(&lease, "holderIdentity"), "");
    }

    /// It goes by the duration in the record, which is ours.
    #[test]
    fn candidate_with_a_shorter_duration_waits_while_we_renew() {
        // For longer than two of our renewals are apart.
        waits_while_we_renew("shorter", LONG, CLIENT_GO, SHORT, LOOKS_OF_SHORT);
    }
}

/// Starts a candidate of client-go beside us, which does not lead while it looks so often.
fn waits_while_we_renew(lease: &str, ttl: u32, program: &str, duration: u32, looks: usize) {
    let trial = VVM.trial();
    let lease = format!("{lease}-{}", std::process::id());
    let mut ours = vvm(&trial, &lease, ttl);
    ours.stdout.wait_for("leads");
    let mut theirs = ClientGo::start(program, &lease, duration);
    for _ in 0..looks {
        theirs.stderr.wait_for("has not yet expired");
    }
    assert_eq!(columns(&lease)[1], "ours");
    assert_eq!(ours.stop().signal(), 15);
}

/// Our TTL beside a candidate with a shorter duration: we renew every 5 s, and it waits for 2 s.
const LONG: u32 = 20;
const SHORT: u32 = 2;

/// How often a candidate with [`SHORT`] looks in 10 s at least: every 0.27 to 0.6 s.
const LOOKS_OF_SHORT: usize = 38;

mod old {
    use super::*;

    /// It goes by its own duration, and deposes a healthy leader whose renewals are further apart.
    #[test]
    fn candidate_with_a_shorter_duration_takes_the_lease_over() {
        let trial = VVM.trial();
        let lease = format!("old-{}", std::process::id());
        let mut ours = vvm(&trial, &lease, LONG);
        ours.stdout.wait_for("leads");
        let mut theirs = ClientGo::start(OLD_CLIENT_GO, &lease, SHORT);
        theirs.stdout.wait_for("leading");
        let finished = ours.finish();
        assert!(finished.says("taken over by theirs"), "{:#?}", finished.stderr);
    }

    /// With a duration that is at least our TTL, it waits as a new one does.
    #[test]
    fn candidate_with_our_duration_waits_while_we_renew() {
        waits_while_we_renew("old-waits", TTL, OLD_CLIENT_GO, TTL, LOOKS);
    }
}

/// No field of them is unknown to the server, and no required one is missing.
#[test]
fn manifests_of_recipes_are_accepted() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/recipes.md");
    let page = std::fs::read_to_string(page).unwrap();
    let manifests = page.split("```yaml\n").skip(1).map(|text| text.split("```").next().unwrap());
    let accept = |manifest: &str| {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, manifest).unwrap();
        let mut apply = Command::new("kubectl");
        apply.args(["--kubeconfig", &env::var(KUBECONFIG).unwrap(), "apply", "--dry-run=server"]);
        let applied = apply.args(["--validate=strict", "--filename"]).arg(file.path()).output().unwrap();
        let said = String::from_utf8_lossy(&applied.stderr).into_owned();
        if applied.status.success() { Ok(()) } else { Err(said) }
    };
    let manifests = manifests.collect::<Vec<_>>();
    assert_eq!(manifests.len(), 2);
    for manifest in manifests {
        assert_eq!(accept(manifest), Ok(()));
        let misspelled = manifest.replace("containers:", "container:");
        assert!(accept(&misspelled).is_err_and(|said| said.contains("container")));
    }
}
