//! `vvm_host::Host`: services of this very process, run only while it leads.
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
async fn a_host_ends_as_its_service_does() {
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
async fn a_host_logs_which_storage_it_opened_and_who_leads() {
    use tracing_subscriber::layer::SubscriberExt as _;
    let folder = TempDir::new().unwrap();
    let log = Opened::default();
    // For all threads: a subscriber of one thread misses events that other tests of this process log at that
    // moment.
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
    let said = opened();
    assert!(said.contains("provenance=\"created\" ttl_ms=20000 slots=1 held=0"), "{said}");
    assert!(!said.contains("leader=\""), "{said}");

    let beside = settings(folder.path());
    let ended = first.run(|| {
        let beside = beside.clone();
        vec![service_fn("work", async move |_| {
            drop(Host::open(beside).await?);
            Ok(())
        })]
    });
    assert_eq!(ended.await.exit_status(), 0);
    let said = opened();
    assert!(
        said.contains("provenance=\"existing\" ttl_ms=20000 slots=1 held=1 leader=\"first\" slot=1"),
        "{said}"
    );
}

#[tokio::test]
async fn a_host_stops_when_it_is_told_to_and_hands_back() {
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

    // Handed back, so that one look is enough.
    let mut settings = settings(folder.path());
    settings.acquisition = Acquisition::Within(Duration::ZERO);
    let next = Host::open(settings).await.unwrap();
    let next = next.run(|| vec![service_fn("work", async |_| Ok(()))]).await;
    assert_eq!(next.exit_status(), 0, "{next}");
}

#[tokio::test]
async fn a_loss_ends_a_host() {
    let (ended, leaderships) = after_a_loss(OnLoss::Exit).await;
    assert_eq!((ended.exit_status(), leaderships), (79, 1), "{ended}");
}

#[tokio::test]
async fn a_loss_has_a_host_campaign_again() {
    let (ended, leaderships) = after_a_loss(OnLoss::Rejoin).await;
    assert!(matches!(ended, Ended::Stopped), "{ended}");
    assert_eq!(leaderships, 2);
}

/// How a host ends that loses its leadership, and is told to stop if it leads again; and how often it led.
async fn after_a_loss(on_loss: OnLoss) -> (Ended, usize) {
    let folder = TempDir::new().unwrap();
    let mut settings = settings(folder.path());
    settings.on_loss = on_loss;
    // Work has 0.15 of it to stop in, on a machine that may be slow.
    settings.ttl = Ttl::new(Duration::from_secs(6)).unwrap();
    let host = Host::open(settings).await.unwrap();
    let stop = host.stop();
    let led = Arc::new(AtomicUsize::new(0));
    let (tell, mut told) = mpsc::unbounded_channel();
    let counted = Arc::clone(&led);
    let running = host.run(move || {
        let (led, tell) = (Arc::clone(&counted), tell.clone());
        vec![service_fn("work", async move |cx| {
            led.fetch_add(1, Ordering::SeqCst);
            tell.send("leads").unwrap();
            cx.stop.cancelled().await;
            tell.send("stops").unwrap();
            Ok(())
        })]
    });
    let trouble = async {
        assert_eq!(told.recv().await, Some("leads"));
        let file = rusqlite::Connection::open(folder.path().join("leader.db")).unwrap();
        file.execute_batch("BEGIN EXCLUSIVE").unwrap();
        assert_eq!(told.recv().await, Some("stops"), "nobody can write, so that it must be lost");
        file.execute_batch("ROLLBACK").unwrap();
        if told.recv().await.is_some() {
            stop.cancel();
        }
    };
    let (ended, ()) = tokio::join!(running, trouble);
    (ended, led.load(Ordering::SeqCst))
}

#[tokio::test]
async fn what_is_in_the_way_is_found_when_it_is_opened() {
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

/// Without settings it makes no files. With a folder that other users can write, it goes without wake-ups.
#[tokio::test]
async fn a_host_wakes_others_only_in_the_folder_of_its_settings() {
    let folder = TempDir::new().unwrap();
    assert_eq!(settings(folder.path()).local_dir, LocalDir::None);
    let local = folder.path().join("local");
    let mut meeting = settings(folder.path());
    meeting.local_dir = LocalDir::At(local.clone());
    let sockets = || std::fs::read_dir(&local).unwrap().count();
    let (first, second) =
        (Host::open(meeting.clone()).await.unwrap(), Host::open(meeting.clone()).await.unwrap());
    assert_eq!(sockets(), 2);
    let (tell, mut told) = mpsc::unbounded_channel();
    // Either may be the first.
    let leads = |host: &Host| {
        let (tell, stop) = (tell.clone(), host.stop());
        move || {
            let (tell, stop) = (tell.clone(), stop.clone());
            vec![service_fn("work", async move |cx| {
                tell.send(stop.clone()).unwrap();
                cx.stop.cancelled().await;
                Ok(())
            })]
        }
    };
    let (by_first, by_second) = (leads(&first), leads(&second));
    let course = async {
        for _ in 0..2 {
            told.recv().await.unwrap().cancel();
        }
    };
    tokio::join!(first.run(by_first), second.run(by_second), course);
    assert_eq!(sockets(), 0);

    std::fs::set_permissions(&local, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let alone = Host::open(meeting).await.unwrap();
    assert_eq!(sockets(), 0);
    alone.stop().cancel();
    let ended = alone.run(Vec::new).await;
    assert!(matches!(ended, Ended::Stopped), "{ended}");
}

#[tokio::test]
async fn who_stands_by_for_too_long_is_told_so() {
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
async fn nobody_works_between_a_pause_and_its_end() {
    let folder = TempDir::new().unwrap();
    let settings = settings(folder.path());
    let operator = Operator::at(&settings).await;
    let host = Host::open(settings).await.unwrap();
    let stop = host.stop();
    let (tell, mut told) = mpsc::unbounded_channel();
    let running = host.run(move || {
        let tell = tell.clone();
        vec![service_fn("work", async move |cx| {
            tell.send("leads").unwrap();
            cx.stop.cancelled().await;
            tell.send("stops").unwrap();
            Ok(())
        })]
    });
    let operating = async {
        assert_eq!(told.recv().await, Some("leads"));
        let pause = operator.pause().await;
        assert_eq!(told.recv().await, Some("stops"));
        operator.until_free().await;
        // Several looks of a candidate that is free to claim.
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert!(told.try_recv().is_err(), "nobody works while it is paused");
        assert!(operator.storage.resume(&operator.cluster, &pause).await.unwrap());
        assert_eq!(told.recv().await, Some("leads"));
        stop.cancel();
    };
    let (ended, ()) = tokio::join!(running, operating);
    assert!(matches!(ended, Ended::Stopped), "{ended}");
}

/// Who asks for a pause, on the same storage.
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

    /// Until the leader has handed back.
    async fn until_free(&self) {
        let key = ElectionKey { cluster: self.cluster.clone(), slot: SlotNumber::new(NonZeroU32::MIN) };
        while self.storage.get(&key).await.unwrap().entry().is_some() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Says so to the process that is started by the test below.
const STUBBORN: &str = "EMBED_STUBBORN";

#[test]
fn a_second_term_ends_it_at_once() {
    if let Some(folder) = std::env::var_os(STUBBORN) {
        return stubborn(Path::new(&folder));
    }
    let folder = TempDir::new().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_second_term_ends_it_at_once", "--nocapture"])
        .env(STUBBORN, folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let process = Pid::from_child(&child);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.ends_with("leads")));
    kill_process(process, Signal::TERM).unwrap();
    assert!(lines.any(|line| line.ends_with("won't stop")));
    // What comes sooner counts as an echo of the first.
    std::thread::sleep(Duration::from_millis(150));
    kill_process(process, Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(Signal::TERM.as_raw()));
}

fn stubborn(folder: &Path) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let host = Host::open(settings(folder)).await.unwrap();
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
