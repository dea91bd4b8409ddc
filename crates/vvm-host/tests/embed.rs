//! `vvm_host::Host`, with services of this test's process.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "clippy knows tests, but not their helpers"
)]

use ielections::{Incarnation, TtlStorage as _};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    io::{BufRead as _, BufReader},
    num::NonZeroU32,
    os::unix::process::ExitStatusExt as _,
    path::Path,
    process::{Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tempfile::TempDir;
use tokio::sync::mpsc;
use vvm_host::{Ended, Holder, Host, HostError, HostSettings, LocalDir, OnLoss, Ttl};
use vvm_orch::{Acquisition, Problem, service_fn};
use vvm_storage::{Ask, ClusterName, ElectionKey, ElectionsTtlStorage, Pause, SlotNumber};

fn settings(folder: &Path) -> HostSettings {
    HostSettings::new(format!("sqlite:{}?allow=overlay", folder.join("leader.db").display()), "payroll")
}

#[tokio::test]
async fn host_ends_with_the_status_of_its_service() {
    let folder = TempDir::new().unwrap();
    let done = Host::open(settings(folder.path())).await.unwrap();
    let done = done.run(|| vec![service_fn("work", async |_| Ok(()))]).await;
    assert_eq!(done.exit_status(), 0, "the work is done: {done}");

    let failed = Host::open(settings(folder.path())).await.unwrap();
    let failed = failed.run(|| vec![service_fn("work", async |_| Err("out of paper".into()))]).await;
    assert_eq!(failed.exit_status(), 1);
    assert!(failed.to_string().contains("out of paper"), "{failed}");
}

/// Keeps the fields of each event `storage_opened`.
#[derive(Clone, Default)]
struct Opened(Arc<Mutex<Vec<String>>>);

impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for Opened {
    fn on_event(&self, event: &tracing::Event<'_>, _: tracing_subscriber::layer::Context<'_, S>) {
        let mut fields = String::new();
        event.record(&mut |field: &tracing::field::Field, value: &dyn std::fmt::Debug| {
            fields += &format!("{}={value:?} ", field.name());
        });
        if fields.contains("event=\"storage_opened\"") {
            self.0.lock().unwrap().push(fields);
        }
    }
}

#[tokio::test]
async fn host_logs_the_storage_that_it_opened_and_its_leader() {
    use tracing_subscriber::layer::SubscriberExt as _;
    let folder = TempDir::new().unwrap();
    let log = Opened::default();
    // For all threads: a subscriber of one thread can miss events while other tests log.
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(log.clone())).unwrap();
    let here = format!("storage=\"{}\"", folder.path().join("leader.db").display());
    let opened = || {
        let mut log = log.0.lock().unwrap();
        let place = log.iter().position(|fields| fields.contains(&here)).unwrap();
        log.remove(place)
    };
    let at = |folder: &Path| {
        let mut settings = settings(folder);
        settings.holder = Some(Holder::new("first").unwrap());
        settings
    };
    let first = Host::open(at(folder.path())).await.unwrap();
    let line = opened();
    assert!(line.contains("provenance=\"created\" ttl_ms=20000 slots=1 held=0"), "{line}");
    assert!(!line.contains("leader=\""), "{line}");

    let beside = settings(folder.path());
    let ended = first.run(|| {
        let beside = beside.clone();
        vec![service_fn("work", async move |_| {
            drop(Host::open(beside).await?);
            Ok(())
        })]
    });
    assert_eq!(ended.await.exit_status(), 0);
    let line = opened();
    assert!(
        line.contains("provenance=\"existing\" ttl_ms=20000 slots=1 held=1 leader=\"first\" slot=1"),
        "{line}"
    );
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
    assert!(matches!(ended.await, Ended::Stopped));

    // The record is released, so one look is enough.
    let mut settings = settings(folder.path());
    settings.acquisition = Acquisition::Within(Duration::ZERO);
    let next = Host::open(settings).await.unwrap();
    let next = next.run(|| vec![service_fn("work", async |_| Ok(()))]).await;
    assert_eq!(next.exit_status(), 0, "{next}");
}

#[tokio::test]
async fn loss_ends_a_host() {
    let (ended, leaderships) = after_a_loss(OnLoss::Exit).await;
    assert_eq!((ended.exit_status(), leaderships), (79, 1), "{ended}");
}

#[tokio::test]
async fn loss_makes_a_host_that_rejoins_campaign_again() {
    let (ended, leaderships) = after_a_loss(OnLoss::Rejoin).await;
    assert!(matches!(ended, Ended::Stopped), "{ended}");
    assert_eq!(leaderships, 2);
}

/// Makes a host lose its leadership, and stops it if it leads again. Returns its end and how often it led.
async fn after_a_loss(on_loss: OnLoss) -> (Ended, usize) {
    let folder = TempDir::new().unwrap();
    let mut settings = settings(folder.path());
    settings.on_loss = on_loss;
    // Work has 0.15 TTL to stop, on a machine that may be slow.
    settings.ttl = Ttl::new(Duration::from_secs(6)).unwrap();
    let host = Host::open(settings).await.unwrap();
    let stop = host.stop();
    let led = Arc::new(AtomicUsize::new(0));
    let (events, mut seen) = mpsc::unbounded_channel();
    let counted = Arc::clone(&led);
    let running = host.run(move || {
        let (led, events) = (Arc::clone(&counted), events.clone());
        vec![service_fn("work", async move |cx| {
            led.fetch_add(1, Ordering::SeqCst);
            events.send("leads").unwrap();
            cx.stop.cancelled().await;
            events.send("stops").unwrap();
            Ok(())
        })]
    });
    let locking = async {
        assert_eq!(seen.recv().await, Some("leads"));
        let file = rusqlite::Connection::open(folder.path().join("leader.db")).unwrap();
        file.execute_batch("BEGIN EXCLUSIVE").unwrap();
        assert_eq!(seen.recv().await, Some("stops"), "it can't renew, so it must lose");
        file.execute_batch("ROLLBACK").unwrap();
        if seen.recv().await.is_some() {
            stop.cancel();
        }
    };
    let (ended, ()) = tokio::join!(running, locking);
    (ended, led.load(Ordering::SeqCst))
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
    let conflict = Host::open(two_slots).await.unwrap_err();
    assert!(matches!(conflict, HostError::Slots(_)), "{conflict}");
    assert_eq!(conflict.exit_status(), 78);
}

/// By default it creates no files. If other users can write the folder, it disables wake-ups.
#[tokio::test]
async fn host_wakes_others_only_in_the_folder_of_its_settings() {
    let folder = TempDir::new().unwrap();
    assert_eq!(settings(folder.path()).local_dir, LocalDir::None);
    let local = folder.path().join("local");
    let mut meeting = settings(folder.path());
    meeting.local_dir = LocalDir::At(local.clone());
    let sockets = || std::fs::read_dir(&local).unwrap().count();
    let (first, second) =
        (Host::open(meeting.clone()).await.unwrap(), Host::open(meeting.clone()).await.unwrap());
    assert_eq!(sockets(), 2);
    let (leaders, mut leader) = mpsc::unbounded_channel();
    // Either may be the first.
    let leads = |host: &Host| {
        let (leaders, stop) = (leaders.clone(), host.stop());
        move || {
            let (leaders, stop) = (leaders.clone(), stop.clone());
            vec![service_fn("work", async move |cx| {
                leaders.send(stop.clone()).unwrap();
                cx.stop.cancelled().await;
                Ok(())
            })]
        }
    };
    let (by_first, by_second) = (leads(&first), leads(&second));
    let stopping = async {
        for _ in 0..2 {
            leader.recv().await.unwrap().cancel();
        }
    };
    tokio::join!(first.run(by_first), second.run(by_second), stopping);
    assert_eq!(sockets(), 0);

    std::fs::set_permissions(&local, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let alone = Host::open(meeting).await.unwrap();
    assert_eq!(sockets(), 0);
    alone.stop().cancel();
    let ended = alone.run(Vec::new).await;
    assert!(matches!(ended, Ended::Stopped), "{ended}");
}

#[tokio::test]
async fn standby_gives_up_when_its_acquisition_time_is_over() {
    let folder = TempDir::new().unwrap();
    let leader = Host::open(settings(folder.path())).await.unwrap();
    let mut impatient = settings(folder.path());
    impatient.acquisition = Acquisition::Within(Duration::ZERO);
    let stop = leader.stop();
    let (leads, mut leading) = mpsc::unbounded_channel();
    let leader = leader.run(move || {
        let leads = leads.clone();
        vec![service_fn("work", async move |cx| {
            leads.send(()).unwrap();
            cx.stop.cancelled().await;
            Ok(())
        })]
    });
    let other = async {
        leading.recv().await.unwrap();
        let other = Host::open(impatient).await.unwrap();
        let other = other.run(|| vec![service_fn("work", async |_| Ok(()))]).await;
        assert!(matches!(other, Ended::Problem(Problem::NotAcquired(_))), "{other}");
        assert_eq!(other.exit_status(), 75);
        stop.cancel();
    };
    tokio::join!(leader, other);
}

#[tokio::test]
async fn no_work_runs_between_pause_and_resume() {
    let folder = TempDir::new().unwrap();
    let settings = settings(folder.path());
    let operator = Operator::at(&settings).await;
    let host = Host::open(settings).await.unwrap();
    let stop = host.stop();
    let (events, mut seen) = mpsc::unbounded_channel();
    let running = host.run(move || {
        let events = events.clone();
        vec![service_fn("work", async move |cx| {
            events.send("leads").unwrap();
            cx.stop.cancelled().await;
            events.send("stops").unwrap();
            Ok(())
        })]
    });
    let operating = async {
        assert_eq!(seen.recv().await, Some("leads"));
        let pause = operator.pause().await;
        assert_eq!(seen.recv().await, Some("stops"));
        operator.until_vacant().await;
        // Several looks of a candidate that may claim.
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert!(seen.try_recv().is_err(), "work runs in a pause");
        assert!(operator.storage.resume(&operator.cluster, &pause).await.unwrap());
        assert_eq!(seen.recv().await, Some("leads"));
        stop.cancel();
    };
    let (ended, ()) = tokio::join!(running, operating);
    assert!(matches!(ended, Ended::Stopped), "{ended}");
}

/// An operator on the same storage.
struct Operator {
    storage: ElectionsTtlStorage,
    cluster: ClusterName,
}

impl Operator {
    async fn at(settings: &HostSettings) -> Self {
        let clock = Arc::new(vvm_clock::SystemClock::start().unwrap());
        let storage = vvm_storage::open(&settings.storage, clock).await.unwrap();
        Self { storage: ElectionsTtlStorage::new(storage), cluster: settings.name.as_str().into() }
    }

    async fn pause(&self) -> Pause {
        let ask =
            Ask { incarnation: Incarnation::from_bytes([3; 16]), since_unix_epoch: Duration::from_secs(1) };
        let (pause, is_this) =
            self.storage.pause(&self.cluster, &Holder::new("alice").unwrap(), ask).await.unwrap();
        assert!(is_this);
        pause
    }

    /// Waits until the leader has released the record.
    async fn until_vacant(&self) {
        let key = ElectionKey { cluster: self.cluster.clone(), slot: SlotNumber::new(NonZeroU32::MIN) };
        while self.storage.get(&key).await.unwrap().entry().is_some() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Set in a process that a test starts to run its host: the folder of the storage.
const FOLDER: &str = "EMBED_FOLDER";

/// Starts the test of this name as a process of its own.
fn process_of(test: &str, folder: &Path) -> std::process::Child {
    harness::settle();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env(FOLDER, folder);
    command.stdout(Stdio::piped()).spawn().unwrap()
}

/// Runs a host whose service never stops.
fn run_stubborn_host(settings: HostSettings) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let host = Host::open(settings).await.unwrap();
        let ended = host.run(|| {
            vec![service_fn("work", async |cx| {
                println!("leads");
                cx.stop.cancelled().await;
                println!("won't stop");
                std::future::pending().await
            })]
        });
        panic!("it ended: {}", ended.await);
    });
}

#[test]
fn second_term_ends_the_process_at_once() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return run_stubborn_host(settings(Path::new(&folder)));
    }
    let folder = TempDir::new().unwrap();
    let mut child = process_of("second_term_ends_the_process_at_once", folder.path());
    let process = Pid::from_child(&child);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.ends_with("leads")));
    kill_process(process, Signal::TERM).unwrap();
    assert!(lines.any(|line| line.ends_with("won't stop")));
    // One within 100 ms of the first counts as its echo, so it is repeated.
    let status = loop {
        kill_process(process, Signal::TERM).unwrap();
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    assert_eq!(status.signal(), Some(Signal::TERM.as_raw()));
}

#[test]
fn hup_kills_a_host_that_leaves_it_alone() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        let mut settings = settings(Path::new(&folder));
        settings.stop_on_hup = false;
        return run_stubborn_host(settings);
    }
    let folder = TempDir::new().unwrap();
    let mut child = process_of("hup_kills_a_host_that_leaves_it_alone", folder.path());
    let process = Pid::from_child(&child);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.ends_with("leads")));
    kill_process(process, Signal::HUP).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(Signal::HUP.as_raw()));
    assert!(!lines.any(|line| line.ends_with("won't stop")), "HUP stopped the host");
}
