//! The storage that trials are on: a file of each one's own, or a server that all of them share, where each has a name of
//! its own.
//!
//! `cargo xtask test-drivers` names the server: its address in `VVM_TEST_STORAGE`, and the host and port in it in
//! `VVM_TEST_STORAGE_AT`. What is about files alone stands in `tests/files.rs`, which is not run there.

use super::{PATIENCE, Trial};
use rustix::net::{AddressFamily, SocketType, bind, getsockname, listen, socket};
use std::{
    env, io,
    net::{Shutdown, SocketAddrV4, TcpListener, TcpStream},
    num::NonZeroU32,
    os::fd::OwnedFd,
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

/// What is between candidates and the storage: nobody can open it, or do anything with it, until it is removed.
pub(crate) struct Obstruction {
    /// The storage, behind it.
    pub(crate) url: String,
    kind: Kind,
}

enum Kind {
    /// Somebody has the file to himself.
    Lock { _connection: rusqlite::Connection },
    /// An address where nobody listens yet, as where a server is not up.
    Door { socket: OwnedFd, server: String },
}

impl Obstruction {
    pub(super) fn put(trial: &Trial) -> Self {
        let url = trial.storage();
        if server().is_none() {
            let connection = rusqlite::Connection::open(trial.folder().join("leader.db")).unwrap();
            connection.busy_timeout(PATIENCE).unwrap();
            connection.execute_batch("BEGIN EXCLUSIVE").unwrap();
            return Self { url, kind: Kind::Lock { _connection: connection } };
        }
        let at = env::var("VVM_TEST_STORAGE_AT").unwrap();
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        // On the server's own host: clients of a cluster take the port that they know for that of every node.
        let host = *at.parse::<SocketAddrV4>().unwrap().ip();
        bind(&socket, &SocketAddrV4::new(host, 0)).unwrap();
        let door = SocketAddrV4::try_from(getsockname(&socket).unwrap()).unwrap().to_string();
        let behind = url.replace(&at, &door);
        assert_ne!(behind, url, "{at} is not in {url}");
        Self { url: behind, kind: Kind::Door { socket, server: at } }
    }

    pub(crate) fn remove(self) {
        if let Kind::Door { socket, server } = self.kind {
            listen(&socket, 16).unwrap();
            lead_to(server, TcpListener::from(socket));
        }
    }
}

/// Whoever comes gets to the server. The threads end with the tests.
fn lead_to(server: String, door: TcpListener) {
    thread::spawn(move || {
        for client in door.incoming().flatten() {
            let Ok(behind) = TcpStream::connect(&server) else { continue };
            for (from, to) in [(&client, &behind), (&behind, &client)] {
                let (Ok(mut from), Ok(mut to)) = (from.try_clone(), to.try_clone()) else { continue };
                thread::spawn(move || {
                    let _cut = io::copy(&mut from, &mut to);
                    let _gone = to.shutdown(Shutdown::Both);
                });
            }
        }
    });
}

impl Trial {
    /// Keeps everybody from the storage.
    pub(crate) fn obstruct(&self) -> Obstruction {
        Obstruction::put(self)
    }

    /// Takes the record of slot 1 away from whoever leads there, as nobody should: the leader finds that at its next
    /// renewal, and is lost at once.
    pub(crate) fn take_away(&self) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let clock = Arc::new(clock::SystemClock::start().unwrap());
            let storage = vvm_storage::open(&self.storage(), clock).await.unwrap();
            let storage = ElectionsTtlStorage::new(storage);
            let key =
                ElectionKey { cluster: self.name().as_str().into(), slot: SlotNumber::new(NonZeroU32::MIN) };
            // A server of a busy machine may be late, and a renewal may come between.
            for _ in 0..20 {
                let found = ielections::TtlStorage::get(&storage, &key).await;
                if let Ok(ielections::Slot::Held { entry, .. }) = found {
                    let (incarnation, epoch) = (entry.version.incarnation, entry.epoch);
                    let deleted =
                        ielections::TtlStorage::compare_and_delete(&storage, &key, incarnation, epoch).await;
                    if deleted.is_ok() {
                        ielections::TtlStorage::close(&storage).await;
                        return;
                    }
                }
                thread::sleep(Duration::from_millis(100));
            }
            panic!("the record can't be taken away");
        });
    }

    /// As short a TTL as the storage is good for, on a slow machine: `on_files`, or what a server can serve.
    pub(crate) fn ttl(&self, on_files: &'static str) -> &'static str {
        if server().is_some() { "4s" } else { on_files }
    }

    /// What is said of a TTL that is shorter than the storage is good for.
    pub(crate) fn shortest_ttl(&self) -> &'static str {
        if server().is_some() { "at least 2s" } else { "at least 500ms" }
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
