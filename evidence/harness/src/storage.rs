//! The storage of a trial: a file, or a server that all trials share with different names. `cargo xtask test-drivers`
//! names the server: the URL in `VVM_TEST_STORAGE`, its host and port in `VVM_TEST_STORAGE_AT`. Cases about files are
//! in the module `files`, which does not run on a server.

use super::{Attempt, HANG_LIMIT, Program, Trial};
use ielections::{Claim, Entry, Epoch, Holder, Incarnation, Slot, Ttl, TtlStorage as _, Version};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, listen, socket_with};
use std::{
    env,
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddr, SocketAddrV4, TcpListener, TcpStream},
    num::NonZeroU32,
    os::fd::OwnedFd,
    path::Path,
    process::Stdio,
    sync::{Arc, Condvar, Mutex, Once},
    thread,
    time::Duration,
};
use vvm_storage::{ElectionKey, ElectionsTtlStorage, SlotNumber};

const SERVER: &str = "VVM_TEST_STORAGE";

/// Returns the URL of the server's storage, after its keyspace or table was created.
pub(super) fn server(program: Program) -> Option<String> {
    static READY: Once = Once::new();
    let url = env::var(SERVER).ok()?;
    READY.call_once(|| {
        // A server that has just started may take too long the first time.
        let is_ready = (0..5).any(|_| {
            let mut init = program.command(&["init-storage", "--storage", &url]);
            // Not among the lines of the test runner.
            init.stdin(Stdio::null()).stdout(Stdio::null());
            init.status().unwrap().success()
        });
        assert!(is_ready, "vvm init-storage --storage {url}");
    });
    Some(url)
}

/// Starts a proxy of this trial to the server, if there is one.
pub(super) fn proxy(program: Program) -> Option<Proxy> {
    server(program)?;
    let mut proxy = Proxy::to(address());
    proxy.listen();
    Some(proxy)
}

pub(super) fn behind(proxy: &Proxy) -> String {
    let (url, at) = (env::var(SERVER).unwrap(), address());
    let behind = url.replace(&at, &proxy.address.to_string());
    assert_ne!(behind, url, "{at} is not in {url}");
    behind
}

fn address() -> String {
    env::var("VVM_TEST_STORAGE_AT").unwrap()
}

/// An obstacle between candidates and the storage: no candidate can open it until the obstacle is removed.
#[derive(Debug)]
pub struct Obstruction {
    pub url: String,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// Another connection has the file locked.
    Lock { _connection: rusqlite::Connection },
    /// The proxy does not listen yet.
    Proxy(Proxy),
}

impl Obstruction {
    pub fn remove(self) {
        if let Kind::Proxy(mut proxy) = self.kind {
            proxy.listen();
        }
    }
}

/// An outage: until it is dropped, no write is applied. On a server, no request is answered.
#[derive(Debug)]
pub struct Outage {
    _lock: Option<rusqlite::Connection>,
    paused: Option<Arc<Forwarding>>,
}

impl Outage {
    pub fn of_file(path: &Path) -> Self {
        Self { _lock: Some(locked(path, "BEGIN IMMEDIATE")), paused: None }
    }
}

pub(super) fn locked(path: &Path, begin: &str) -> rusqlite::Connection {
    let connection = rusqlite::Connection::open(path).unwrap();
    connection.busy_timeout(HANG_LIMIT).unwrap();
    connection.execute_batch(begin).unwrap();
    connection
}

impl Drop for Outage {
    fn drop(&mut self) {
        if let Some(forwarding) = &self.paused {
            forwarding.resume();
        }
    }
}

#[derive(Debug)]
pub struct Usurper {
    key: ElectionKey,
    entry: Entry,
    url: String,
}

impl Usurper {
    pub fn leave(self) {
        at_storage(&self.url, async |storage| {
            let (incarnation, epoch) = (self.entry.version.incarnation, self.entry.epoch);
            retry("the record is not deleted", async || {
                storage.compare_and_delete(&self.key, incarnation, epoch).await.ok()
            })
            .await
        });
    }
}

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

/// Repeats an attempt: a server on a busy machine may be late, and a renewal may come between.
async fn retry<T>(what: &str, mut attempt: impl AsyncFnMut() -> Option<T>) -> T {
    for _ in 0..20 {
        if let Some(done) = attempt().await {
            return done;
        }
        thread::sleep(Duration::from_millis(100));
    }
    panic!("{what}");
}

/// How long a healthy server takes to answer the canary.
const ANSWERED: Duration = Duration::from_millis(50);

impl Trial {
    /// Measures the server, if there is one, with requests on a separate connection.
    pub(super) fn watch_server(&self, attempt: &Attempt) {
        let Ok(url) = env::var(SERVER) else { return };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let clock = Arc::new(vvm_clock::SystemClock::start().unwrap());
        let storage = runtime.block_on(vvm_storage::open(&url, clock)).unwrap();
        let (storage, key) = (ElectionsTtlStorage::new(storage), self.slot_1());
        attempt.watch("canary", ANSWERED, move || {
            // An error is an answer, too.
            let _answer = runtime.block_on(storage.get(&key));
        });
    }

    pub fn obstruct(&self) -> Obstruction {
        if Self::is_on_a_server() {
            let proxy = Proxy::to(address());
            return Obstruction { url: behind(&proxy), kind: Kind::Proxy(proxy) };
        }
        let kind = Kind::Lock { _connection: self.locked("BEGIN EXCLUSIVE") };
        Obstruction { url: self.storage(), kind }
    }

    pub fn outage(&self) -> Outage {
        let paused = self.proxy.as_ref().map(|proxy| Arc::clone(&proxy.forwarding));
        paused.iter().for_each(|forwarding| forwarding.pause());
        Outage { _lock: paused.is_none().then(|| self.lock_storage()), paused }
    }

    /// Deletes the record of slot 1. Its leader is lost when it notices that at its next renewal.
    pub fn take_away(&self) {
        let key = self.slot_1();
        at_storage(&self.direct(), async |storage| {
            retry("the record can't be taken away", async || take(storage, &key).await).await
        });
    }

    /// Deletes the record of slot 1, if there is one, and claims the slot for another leader.
    pub fn usurp(&self) -> Usurper {
        let (key, url) = (self.slot_1(), self.direct());
        let entry = at_storage(&url, async |storage| {
            retry("slot 1 can't be claimed", async || {
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

    fn direct(&self) -> String {
        env::var(SERVER).unwrap_or_else(|_| self.storage())
    }

    pub fn is_on_a_server() -> bool {
        env::var_os(SERVER).is_some()
    }

    pub fn shortest_ttl(&self) -> &'static str {
        if Self::is_on_a_server() { "at least 2s" } else { "at least 500ms" }
    }

    pub fn is_outage(&self, said: &str) -> bool {
        let texts = if Self::is_on_a_server() { &["answer", "the read failed"][..] } else { &["locked"] };
        texts.iter().any(|text| said.contains(text))
    }

    pub fn said_before_the_first(&self) -> &'static str {
        if Self::is_on_a_server() { "no candidate has ever campaigned for" } else { "no such storage yet" }
    }

    /// Returns the URL of a missing storage, and a part of the message that says how to create it.
    pub fn storage_that_was_never_made(&self) -> (String, &'static str) {
        let Ok(url) = env::var(SERVER) else {
            let missing = self.folder().join("missing/leader.db");
            return (format!("sqlite:{}?allow=overlay", missing.display()), "create it (mkdir -p)");
        };
        if let Some(rest) = url.strip_prefix("k8s://default") {
            return (format!("k8s://never-made{rest}"), "the namespace does not exist: create it");
        }
        let missing = url.replace("/end_to_end", "/never_made");
        assert_ne!(missing, url, "{url} is not of end_to_end");
        (missing, "vvm init-storage")
    }
}

/// Deletes the present record, unless it changes meanwhile.
async fn take(storage: &ElectionsTtlStorage, key: &ElectionKey) -> Option<()> {
    let Ok(Slot::Held { entry, .. }) = storage.get(key).await else { return None };
    storage.compare_and_delete(key, entry.version.incarnation, entry.epoch).await.ok().map(|_| ())
}

/// A proxy of one trial before a server that all trials share. Before it listens, it refuses connections as a server
/// that is down. While it is paused, it forwards nothing, as a server that hangs. Delayed bytes arrive when it resumes.
#[derive(Debug)]
pub(super) struct Proxy {
    socket: Option<OwnedFd>,
    server: String,
    address: SocketAddrV4,
    forwarding: Arc<Forwarding>,
}

#[derive(Default, Debug)]
struct Forwarding {
    is_paused: Mutex<bool>,
    resumed: Condvar,
}

impl Forwarding {
    fn pause(&self) {
        *self.is_paused.lock().unwrap() = true;
    }

    fn resume(&self) {
        *self.is_paused.lock().unwrap() = false;
        self.resumed.notify_all();
    }

    fn wait(&self) {
        let _open = self.resumed.wait_while(self.is_paused.lock().unwrap(), |is_paused| *is_paused).unwrap();
    }
}

impl Proxy {
    fn to(server: String) -> Self {
        // On the server's host: clients of a cluster expect each node at its own host and at the port of the URL.
        let host = *server.parse::<SocketAddrV4>().unwrap().ip();
        Self::at(SocketAddrV4::new(host, 0), server)
    }

    fn at(address: SocketAddrV4, server: String) -> Self {
        // No process of a trial inherits it.
        let socket =
            socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        bind(&socket, &address).unwrap();
        let address = SocketAddrV4::try_from(getsockname(&socket).unwrap()).unwrap();
        Self { socket: Some(socket), server, address, forwarding: Arc::default() }
    }

    /// Starts to listen. Its threads end with the test binary.
    fn listen(&mut self) {
        let socket = self.socket.take().unwrap();
        listen(&socket, 64).unwrap();
        let (proxy, server, forwarding) =
            (TcpListener::from(socket), self.server.clone(), Arc::clone(&self.forwarding));
        thread::spawn(move || {
            for client in proxy.incoming().flatten() {
                let Ok(behind) = TcpStream::connect(&server) else { continue };
                for (from, to) in [(&client, &behind), (&behind, &client)] {
                    let _small_and_often = from.set_nodelay(true);
                    let (Ok(from), Ok(to)) = (from.try_clone(), to.try_clone()) else { continue };
                    let forwarding = Arc::clone(&forwarding);
                    thread::spawn(move || relay(from, to, &forwarding));
                }
            }
        });
    }
}

/// Forwards connections at an address to a server, until this process ends.
pub fn forward(at: SocketAddrV4, server: SocketAddr) {
    Proxy::at(at, server.to_string()).listen();
}

fn relay(mut from: TcpStream, mut to: TcpStream, forwarding: &Forwarding) {
    let mut buffer = vec![0; 1 << 14];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        forwarding.wait();
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    for gone in [from, to] {
        let _already = gone.shutdown(Shutdown::Both);
    }
}
