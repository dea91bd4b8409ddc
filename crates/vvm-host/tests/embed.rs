//! `vvm_host::Host`, with services of this test's process.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "clippy knows tests, but not their helpers"
)]

use rustix::process::{Pid, Signal, kill_process};
use std::{
    io::{BufRead as _, BufReader},
    net::UdpSocket,
    os::unix::process::ExitStatusExt as _,
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};
use tempfile::TempDir;
use tokio::sync::{mpsc, watch};
use vvm_clock::SystemClock;
use vvm_host::{
    Host, HostError, HostOutcome, HostSettings, LocalDir, NotReady, SuccessorSettings,
    storage::sqlite::{OpenOptions, SqliteStorage},
    testing::MemDatabase,
};
use vvm_orch::{AcquireTimeout, BoxError, Problem, Service, ServiceContext, Work, service_fn};

fn settings(folder: &Path) -> HostSettings {
    HostSettings::new(format!("sqlite:{}?allow=overlay", folder.join("leader.db").display()), "payroll")
}

#[tokio::test]
async fn stopped_host_releases_the_record() {
    let folder = TempDir::new().unwrap();
    let host = Host::open(settings(folder.path())).await.unwrap();
    let stop = host.stop();
    let ended = host.run(move || {
        let stop = stop.clone();
        vec![service_fn("work", async move |cx| {
            stop.cancel();
            cx.stop.cancelled().await;
            Ok(())
        })]
    });
    assert!(matches!(ended.await, HostOutcome::Stopped));

    let mut settings = settings(folder.path());
    assert_eq!(settings.local_dir, LocalDir::None, "it would create files");
    // A folder that other users can write disables wake-ups alone.
    let open = folder.path().join("open");
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    settings.local_dir = LocalDir::At(open.clone());
    settings.acquisition = AcquireTimeout::Within(Duration::ZERO);
    let next = Host::open(settings).await.unwrap();
    assert_eq!(std::fs::read_dir(open).unwrap().count(), 0, "a socket of wake-ups");
    let next = next.run(|| vec![service_fn("work", async |_| Ok(()))]).await;
    assert_eq!(next.exit_status(), 0, "{next}");
}

#[tokio::test]
async fn address_for_successors_is_free_after_the_host() {
    let free = UdpSocket::bind("127.0.0.77:0").unwrap().local_addr().unwrap();
    let mut settings = HostSettings::new("opened by this program", "payroll");
    settings.successor = Some(SuccessorSettings::new(free));
    let mut shown = Vec::new();
    for _ in 0..2 {
        let database = MemDatabase::new(Arc::new(SystemClock::start().unwrap()));
        let host = Host::open_on(settings.clone(), database.open()).await.unwrap();
        shown.push(host.status());
        let ended = host.run(|| vec![service_fn("work", async |_| Ok(()))]).await;
        assert_eq!(ended.exit_status(), 0, "{ended}");
    }
}

fn reporting(
    events: &mpsc::UnboundedSender<&'static str>,
) -> impl FnMut() -> vvm_host::Services + Send + use<> {
    let events = events.clone();
    move || {
        let events = events.clone();
        vec![service_fn("work", async move |cx| {
            events.send("leads").unwrap();
            cx.stop.cancelled().await;
            events.send("stops").unwrap();
            Ok(())
        })]
    }
}

#[tokio::test]
async fn host_that_is_not_ready_claims_nothing_and_gives_up_what_it_leads() {
    let folder = TempDir::new().unwrap();
    let mut once = settings(folder.path());
    once.acquisition = AcquireTimeout::Within(Duration::ZERO);
    let mut host = Host::open(once.clone()).await.unwrap();
    let (stop, mut roles) = (host.stop(), host.status().roles());
    let (ready, is_ready) = watch::channel(false);
    host.campaign_while(is_ready);
    let (events, mut seen) = mpsc::unbounded_channel();
    let lead_beside = async || {
        let beside = Host::open(once.clone()).await.unwrap();
        beside.run(|| vec![service_fn("work", async |_| Ok(()))]).await.exit_status()
    };
    let watching = async {
        for _ in 0..2 {
            roles.wait_for(|role| role.word() == "unready").await.unwrap();
            assert_eq!(lead_beside().await, 0, "the slot is free");
            ready.send_replace(true);
            assert_eq!(seen.recv().await, Some("leads"));
            ready.send_replace(false);
            assert_eq!(seen.recv().await, Some("stops"));
        }
        roles.wait_for(|role| role.word() == "unready").await.unwrap();
        stop.cancel();
    };
    let (ended, ()) = tokio::join!(host.run(reporting(&events)), watching);
    assert!(matches!(ended, HostOutcome::Stopped), "{ended}");
    assert_eq!(lead_beside().await, 0, "the slot is free");
}

#[tokio::test]
async fn slot_that_is_won_while_not_ready_is_released_before_a_service_starts() {
    let folder = TempDir::new().unwrap();
    let mut host = Host::open(settings(folder.path())).await.unwrap();
    let (stop, mut roles) = (host.stop(), host.status().roles());
    let (ready, is_ready) = watch::channel(true);
    host.campaign_while(is_ready);
    let changes = ready.clone();
    host.report_claims(move |claim| {
        if claim.is_some() {
            changes.send_replace(false);
        }
    });
    let (events, mut seen) = mpsc::unbounded_channel();
    let watching = async {
        roles.wait_for(|role| role.word() == "unready").await.unwrap();
        let beside = Host::open(settings(folder.path())).await.unwrap();
        assert_eq!(beside.run(|| vec![service_fn("work", async |_| Ok(()))]).await.exit_status(), 0);
        stop.cancel();
    };
    let (ended, ()) = tokio::join!(host.run(reporting(&events)), watching);
    assert!(matches!(ended, HostOutcome::Stopped), "{ended}");
    drop(events);
    assert_eq!(seen.recv().await, None, "no service has started");
}

struct Cold;

#[async_trait::async_trait]
impl Service<vvm_storage::ElectionKey> for Cold {
    fn name(&self) -> &str {
        "cold"
    }

    async fn start(self: Box<Self>, _: ServiceContext<vvm_storage::ElectionKey>) -> Result<Work, BoxError> {
        Err(NotReady.into())
    }
}

#[tokio::test]
async fn service_that_is_not_ready_is_followed_by_another_campaign() {
    let folder = TempDir::new().unwrap();
    let host = Host::open(settings(folder.path())).await.unwrap();
    let mut first = true;
    let ended = host.run(move || {
        let is_first = std::mem::take(&mut first);
        if is_first { vec![Box::new(Cold) as _] } else { vec![service_fn("work", async |_| Ok(()))] }
    });
    let ended = ended.await;
    assert!(matches!(ended, HostOutcome::Problem(Problem::Ended { failure: None, .. })), "{ended}");
}

#[tokio::test]
async fn open_refuses_bad_urls_missing_folders_and_another_slot_count() {
    let folder = TempDir::new().unwrap();
    let wrong = Host::open(HostSettings::new("leader.db", "payroll")).await.unwrap_err();
    assert_eq!(wrong.exit_status(), 64, "{wrong}");
    let missing = format!("sqlite:{}", folder.path().join("no/leader.db").display());
    let missing = Host::open(HostSettings::new(missing, "payroll")).await.unwrap_err();
    assert_eq!(missing.exit_status(), 69, "{missing}");

    drop(Host::open(settings(folder.path())).await.unwrap());
    let mut two_slots = settings(folder.path());
    two_slots.slots = two_slots.slots.saturating_add(1);
    let file = folder.path().join("leader.db");
    let options = OpenOptions { allow_overlay: true, ..OpenOptions::default() };
    let own = Arc::new(SqliteStorage::open(&file, options).await.unwrap());
    let conflict = Host::open_on(two_slots, own).await.unwrap_err();
    assert!(matches!(conflict, HostError::Slots(_)), "{conflict}");
    assert_eq!(conflict.exit_status(), 78);
}

/// Set in a process that a test starts to run its host: the folder of the storage.
const FOLDER: &str = "EMBED_FOLDER";

/// HUP kills a process that has not asked for anything else. The host runs in a process of its own.
#[test]
fn hup_kills_a_host_that_leaves_it_alone() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        let mut settings = settings(Path::new(&folder));
        settings.stop_on_hup = false;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        return runtime.block_on(async {
            let host = Host::open(settings).await.unwrap();
            let ended = host.run(|| {
                vec![service_fn("work", async |cx| {
                    println!("leads");
                    cx.stop.cancelled().await;
                    println!("stops");
                    Ok(())
                })]
            });
            panic!("it ended: {}", ended.await);
        });
    }
    let folder = TempDir::new().unwrap();
    harness::settle();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "hup_kills_a_host_that_leaves_it_alone", "--nocapture"]);
    let mut child = command.env(FOLDER, folder.path()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.ends_with("leads")));
    kill_process(Pid::from_child(&child), Signal::HUP).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(Signal::HUP.as_raw()));
    assert!(!lines.any(|line| line.ends_with("stops")), "HUP stopped the host");
}
