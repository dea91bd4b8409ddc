//! What a subscriber prints that is set up as in the README's example. A program with one case: which events are on is
//! remembered for all threads of a process, and other threads have no subscriber.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

use tempfile::TempDir;
use vvm_host::{Host, HostSettings};
use vvm_orch::service_fn;

#[tokio::test]
async fn plain_subscriber_prints_what_the_host_does_and_where_it_answers() {
    let folder = TempDir::new().unwrap();
    let log = folder.path().join("log");
    let printed = std::fs::File::create(&log).unwrap();
    let plain =
        tracing_subscriber::fmt().with_ansi(false).with_writer(std::sync::Mutex::new(printed)).finish();
    // This runtime has one thread.
    let printing = tracing::subscriber::set_default(plain);
    let storage = format!("sqlite:{}?allow=overlay", folder.path().join("leader.db").display());
    let mut settings = HostSettings::new(storage, "payroll");
    settings.http = Some(([127, 0, 0, 1], 0).into());
    let host = Host::open(settings).await.unwrap();
    let address = host.http().unwrap();
    host.run(|| vec![service_fn("work", async |_| Ok(()))]).await;
    drop(printing);
    let printed = std::fs::read_to_string(log).unwrap();
    let mut lines = printed.lines();
    for expected in [
        "INFO vvm: payroll: storage ",
        &format!("INFO vvm: payroll: status page: http://{address}/ "),
        "INFO vvm: payroll: campaigning ",
        "INFO vvm: payroll slot 1: starting ",
        "INFO vvm: payroll slot 1: stopping: work ended ",
    ] {
        assert!(lines.any(|line| line.contains(expected)), "no {expected:?} in its place in {printed}");
    }
}
