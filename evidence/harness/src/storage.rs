//! The storage of a trial: a file of its own, or a server that all trials share, where each trial has its own
//! name.
//!
//! `cargo xtask test-drivers` names the server: its address in `VVM_TEST_STORAGE`, and the host and port in
//! it in `VVM_TEST_STORAGE_AT`. Cases about files alone are in the module `files`, which does not run there.

use super::{
    Attempt, PATIENCE, Program, Trial,
    door::{Door, Hinge},
};
use ielections::{Claim, Entry, Epoch, Holder, Incarnation, Slot, Ttl, TtlStorage as _, Version};
use std::{
    env,
    num::NonZeroU32,
    process::Stdio,
    sync::{Arc, Once},
    thread,
    time::Duration,
};
use vvm_storage::{ElectionKey, ElectionsTtlStorage, SlotNumber};

/// Names the server, by the address of a storage on it.
const SERVER: &str = "VVM_TEST_STORAGE";

/// The address of the server's storage, with its keyspace or table made ready.
pub(super) fn server(program: Program) -> Option<String> {
    static READY: Once = Once::new();
    let url = env::var(SERVER).ok()?;
    READY.call_once(|| {
        // A server that has only just begun may take too long the first time.
        let is_ready = (0..5).any(|_| {
            let mut init = program.command(&["init-storage", "--storage", &url]);
            init.stdin(Stdio::null());
            init.status().unwrap().success()
        });
        assert!(is_ready, "vvm init-storage --storage {url}");
    });
    Some(url)
}

/// The trial's own door to the server, if there is one.
pub(super) fn door(program: Program) -> Option<Door> {
    server(program)?;
    let mut door = Door::to(address());
    door.listen();
    Some(door)
}

/// The storage, as it is reached through a door.
pub(super) fn behind(door: &Door) -> String {
    let (url, at) = (env::var(SERVER).unwrap(), address());
    let behind = url.replace(&at, &door.address.to_string());
    assert_ne!(behind, url, "{at} is not in {url}");
    behind
}

/// The server's host and port.
fn address() -> String {
    env::var("VVM_TEST_STORAGE_AT").unwrap()
}

/// An obstacle between candidates and the storage: no candidate can open it until the obstacle is removed.
#[derive(Debug)]
pub struct Obstruction {
    /// The storage, behind it.
    pub url: String,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// Another connection has the file locked.
    Lock { _connection: rusqlite::Connection },
    /// The proxy does not listen yet.
    Door(Door),
}

impl Obstruction {
    pub(super) fn put(trial: &Trial) -> Self {
        if Trial::is_on_a_server() {
            let door = Door::to(address());
            return Self { url: behind(&door), kind: Kind::Door(door) };
        }
        let connection = rusqlite::Connection::open(trial.folder().join("leader.db")).unwrap();
        connection.busy_timeout(PATIENCE).unwrap();
        connection.execute_batch("BEGIN EXCLUSIVE").unwrap();
        Self { url: trial.storage(), kind: Kind::Lock { _connection: connection } }
    }

    /// Takes it out of the way.
    pub fn remove(self) {
        if let Kind::Door(mut door) = self.kind {
            door.listen();
        }
    }
}

/// While it lasts, no write is applied. On a server, no request is answered either.
#[derive(Debug)]
pub struct Outage {
    _lock: Option<rusqlite::Connection>,
    shut: Option<Arc<Hinge>>,
}

impl Outage {
    pub(super) fn of(trial: &Trial) -> Self {
        match &trial.door {
            Some(door) => {
                door.hinge.shut();
                Self { _lock: None, shut: Some(Arc::clone(&door.hinge)) }
            }
            None => Self { _lock: Some(trial.lock_storage()), shut: None },
        }
    }
}

impl Drop for Outage {
    fn drop(&mut self) {
        if let Some(hinge) = &self.shut {
            hinge.open();
        }
    }
}

/// A leader of another program, which knows nothing of ours: the test itself. It does not renew.
#[derive(Debug)]
pub struct Usurper {
    key: ElectionKey,
    entry: Entry,
    url: String,
}

impl Usurper {
    /// Its record goes, and the slot is free.
    pub fn leave(self) {
        at_storage(&self.url, async |storage| {
            let (incarnation, epoch) = (self.entry.version.incarnation, self.entry.epoch);
            patiently("the record is not deleted", async || {
                storage.compare_and_delete(&self.key, incarnation, epoch).await.ok()
            })
            .await
        });
    }
}

/// Does something with a storage of the test's own.
fn at_storage<T>(url: &str, act: impl AsyncFnOnce(&ElectionsTtlStorage) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let clock = Arc::new(vvm_clock::SystemClock::start().unwrap());
        let storage = ElectionsTtlStorage::new(vvm_storage::open(url, clock).await.unwrap());
        let done = act(&storage).await;
        storage.close().await;
        done
    })
}

/// A server of a busy machine may be late, and a renewal may come between.
async fn patiently<T>(what: &str, mut attempt: impl AsyncFnMut() -> Option<T>) -> T {
    for _ in 0..20 {
        if let Some(done) = attempt().await {
            return done;
        }
        thread::sleep(Duration::from_millis(100));
    }
    panic!("{what}");
}

/// How long a server that serves takes to answer the canary.
const ANSWERED: Duration = Duration::from_millis(50);

impl Trial {
    /// Measures the server, if there is one, with requests on a connection of its own.
    pub(super) fn watch_server(&self, attempt: &Attempt) {
        let Ok(url) = env::var(SERVER) else { return };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let clock = Arc::new(vvm_clock::SystemClock::start().unwrap());
        let storage = runtime.block_on(vvm_storage::open(&url, clock)).unwrap();
        let (storage, key) = (ElectionsTtlStorage::new(storage), self.slot_1());
        attempt.watch("canary", ANSWERED, move || {
            // An error takes its time as an answer does.
            let _answer = runtime.block_on(storage.get(&key));
        });
    }

    /// Keeps every candidate from the storage.
    pub fn obstruct(&self) -> Obstruction {
        Obstruction::put(self)
    }

    /// Keeps what is written from the storage until the value is dropped.
    pub fn outage(&self) -> Outage {
        Outage::of(self)
    }

    /// Deletes the record of slot 1 under its leader, which finds that at its next renewal and is lost at
    /// once.
    pub fn take_away(&self) {
        let key = self.slot_1();
        at_storage(&self.direct(), async |storage| {
            patiently("the record can't be taken away", async || take(storage, &key).await).await
        });
    }

    /// Deletes the record of slot 1, if there is one, and claims the slot for another leader.
    pub fn usurp(&self) -> Usurper {
        let (key, url) = (self.slot_1(), self.direct());
        let entry = at_storage(&url, async |storage| {
            patiently("slot 1 can't be claimed", async || {
                take(storage, &key).await;
                let Ok(Slot::Vacant(vacant)) = storage.get(&key).await else { return None };
                let entry = Entry {
                    holder: Holder::new("usurper").unwrap(),
                    version: Version { incarnation: Incarnation::from_bytes([7; 16]), write: 0 },
                    ttl: Ttl::new(Duration::from_secs(3600)).unwrap(),
                    epoch: Epoch::new(vacant.last_epoch.map_or(0, Epoch::get) + 1).unwrap(),
                };
                let claim = storage.insert_if_not_exist(&key, vacant, &entry).await;
                matches!(claim, Ok(Claim::Claimed)).then_some(entry)
            })
            .await
        });
        Usurper { key, entry, url }
    }

    fn slot_1(&self) -> ElectionKey {
        ElectionKey { cluster: self.name().as_str().into(), slot: SlotNumber::new(NonZeroU32::MIN) }
    }

    /// The storage, past the door.
    fn direct(&self) -> String {
        env::var(SERVER).unwrap_or_else(|_| self.storage())
    }

    /// Whether it is a server that others use, too.
    pub fn is_on_a_server() -> bool {
        env::var_os(SERVER).is_some()
    }

    /// As short a TTL as the storage is good for, on a slow machine: `on_files`, or what a server can serve.
    pub fn ttl(&self, on_files: &'static str) -> &'static str {
        if Self::is_on_a_server() { "4s" } else { on_files }
    }

    /// What is said of a TTL that is shorter than the storage is good for.
    pub fn shortest_ttl(&self) -> &'static str {
        if Self::is_on_a_server() { "at least 2s" } else { "at least 500ms" }
    }

    /// What is said to be in the way while an outage lasts.
    pub fn said_in_an_outage(&self) -> &'static str {
        if Self::is_on_a_server() { "answer" } else { "locked" }
    }

    /// What vvm says of a name that no candidate has campaigned for.
    pub fn said_before_the_first(&self) -> &'static str {
        if Self::is_on_a_server() { "no candidate has ever campaigned for" } else { "no such storage yet" }
    }

    /// A storage that is not there, and how to make it.
    pub fn storage_that_was_never_made(&self) -> (String, &'static str) {
        let Ok(url) = env::var(SERVER) else {
            let missing = self.folder().join("missing/leader.db");
            return (format!("sqlite:{}?allow=overlay", missing.display()), "create it (mkdir -p)");
        };
        let missing = url.replace("/end_to_end", "/never_made");
        assert_ne!(missing, url, "{url} is not of end_to_end");
        (missing, "vvm init-storage")
    }
}

/// Deletes whatever record there is, if it stays the same meanwhile.
async fn take(storage: &ElectionsTtlStorage, key: &ElectionKey) -> Option<()> {
    let Ok(Slot::Held { entry, .. }) = storage.get(key).await else { return None };
    storage.compare_and_delete(key, entry.version.incarnation, entry.epoch).await.ok().map(|_| ())
}
