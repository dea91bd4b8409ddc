//! The storage that trials are on: a file of each one's own, or a server that all of them share, where each has a name of
//! its own.
//!
//! `cargo xtask test-drivers` names the server: its address in `VVM_TEST_STORAGE`, and the host and port in it in
//! `VVM_TEST_STORAGE_AT`. What is about files alone stands in `tests/files.rs`, which is not run there.

use super::{
    PATIENCE, Trial,
    door::{Door, Hinge},
};
use ielections::{Claim, Entry, Epoch, Holder, Incarnation, Slot, Ttl, TtlStorage as _, Version};
use std::{
    env,
    num::NonZeroU32,
    process::{Command, Stdio},
    sync::{Arc, Once},
    thread,
    time::Duration,
};
use vvm_storage::{ElectionKey, ElectionsTtlStorage, SlotNumber};

/// The address of the server's storage, with its keyspace or table made ready.
pub(super) fn server() -> Option<String> {
    static READY: Once = Once::new();
    let url = env::var("VVM_TEST_STORAGE").ok()?;
    READY.call_once(|| {
        // A server that has only just begun may take too long the first time.
        let is_ready = (0..5).any(|_| {
            let mut init = Command::new(env!("CARGO_BIN_EXE_vvm"));
            init.args(["init-storage", "--storage", &url]).stdin(Stdio::null());
            init.status().unwrap().success()
        });
        assert!(is_ready, "vvm init-storage --storage {url}");
    });
    Some(url)
}

/// The trial's own door to the server, if there is one.
pub(super) fn door() -> Option<Door> {
    server()?;
    let mut door = Door::to(address());
    door.listen();
    Some(door)
}

/// The storage, as it is reached through a door.
pub(super) fn behind(door: &Door) -> String {
    let (url, at) = (server().unwrap(), address());
    let behind = url.replace(&at, &door.address.to_string());
    assert_ne!(behind, url, "{at} is not in {url}");
    behind
}

/// The server's host and port.
fn address() -> String {
    env::var("VVM_TEST_STORAGE_AT").unwrap()
}

/// What is between candidates and the storage: nobody can open it, or do anything with it, until it is removed.
pub(crate) struct Obstruction {
    /// The storage, behind it.
    pub(crate) url: String,
    kind: Kind,
}

enum Kind {
    /// Somebody has the file to himself.
    Lock { _connection: rusqlite::Connection },
    /// Nobody listens there yet.
    Door(Door),
}

impl Obstruction {
    pub(super) fn put(trial: &Trial) -> Self {
        if server().is_some() {
            let door = Door::to(address());
            return Self { url: behind(&door), kind: Kind::Door(door) };
        }
        let connection = rusqlite::Connection::open(trial.folder().join("leader.db")).unwrap();
        connection.busy_timeout(PATIENCE).unwrap();
        connection.execute_batch("BEGIN EXCLUSIVE").unwrap();
        Self { url: trial.storage(), kind: Kind::Lock { _connection: connection } }
    }

    pub(crate) fn remove(self) {
        if let Kind::Door(mut door) = self.kind {
            door.listen();
        }
    }
}

/// While it lasts, no write of anybody's is applied, and on a server nobody hears anything.
pub(crate) struct Outage {
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
pub(crate) struct Usurper {
    key: ElectionKey,
    entry: Entry,
    url: String,
}

impl Usurper {
    /// Its record goes, and the slot is free.
    pub(crate) fn leave(self) {
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

impl Trial {
    /// Keeps everybody from the storage.
    pub(crate) fn obstruct(&self) -> Obstruction {
        Obstruction::put(self)
    }

    /// Keeps what is written from the storage until the value is dropped.
    pub(crate) fn outage(&self) -> Outage {
        Outage::of(self)
    }

    /// Takes the record of slot 1 away from whoever leads there, as nobody should: the leader finds that at its next
    /// renewal, and is lost at once.
    pub(crate) fn take_away(&self) {
        let key = self.slot_1();
        at_storage(&self.direct(), async |storage| {
            patiently("the record can't be taken away", async || take(storage, &key).await).await
        });
    }

    /// The same, or nobody led; and somebody else leads there from then on.
    pub(crate) fn usurp(&self) -> Usurper {
        let (key, url) = (self.slot_1(), self.direct());
        let entry = at_storage(&url, async |storage| {
            patiently("nobody else can lead", async || {
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
        server().unwrap_or_else(|| self.storage())
    }

    /// Whether it is a server that others use, too.
    pub(crate) fn is_on_a_server() -> bool {
        env::var_os("VVM_TEST_STORAGE").is_some()
    }

    /// As short a TTL as the storage is good for, on a slow machine: `on_files`, or what a server can serve.
    pub(crate) fn ttl(&self, on_files: &'static str) -> &'static str {
        if Self::is_on_a_server() { "4s" } else { on_files }
    }

    /// What is said of a TTL that is shorter than the storage is good for.
    pub(crate) fn shortest_ttl(&self) -> &'static str {
        if server().is_some() { "at least 2s" } else { "at least 500ms" }
    }

    /// What is said to be in the way while an outage lasts.
    pub(crate) fn said_in_an_outage(&self) -> &'static str {
        if Self::is_on_a_server() { "answer" } else { "locked" }
    }

    /// What is said of a name before anybody has campaigned for it.
    pub(crate) fn said_before_the_first(&self) -> &'static str {
        if Self::is_on_a_server() { "nobody has ever campaigned for" } else { "no such storage yet" }
    }

    /// A storage that is not there, and how to make it.
    pub(crate) fn storage_that_was_never_made(&self) -> (String, &'static str) {
        let Some(url) = server() else {
            let missing = self.folder().join("missing/leader.db");
            return (format!("sqlite:{}", missing.display()), "create it (mkdir -p)");
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
