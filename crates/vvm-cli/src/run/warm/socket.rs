//! [`Socket`]: the Unix socket of a warm app: who may connect, whose messages count, and what waits to be sent. Only a
//! descendant of the keeper may connect, so that only contained processes lead. The kernel names the process that
//! connected (SO_PEERCRED), and the sender of each piece of a stream (SCM_CREDENTIALS). A pidfd is opened before the
//! descent is checked, and watched: while it shows a live process, the number names no other. So a message with that
//! number as its sender was sent by the process that was checked. What another process sends over an inherited socket
//! is dropped. If the process ends while a child of it still has the socket, the pidfd reports the end that the stream
//! does not.
//!
//! Any user may connect, and again at once. So a connection costs little (one look-up for each process above its peer),
//! and after one that is not of the app no other is accepted for [`AFTER_STRANGER`]: the thread that renews has all the
//! time between. A connection of the app waits as well then, behind at most [`BACKLOG`] others. One epoll descriptor
//! stands for all of them, so that the host waits for one.

use rustix::{
    event::epoll::{self, CreateFlags, EventData, EventFlags},
    fs::{AtFlags, FlockOperation, Mode, OFlags, flock, fstat, open, rmdir, unlinkat},
    io::Errno,
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix,
        SocketFlags, SocketType, UCred, accept_with, bind, listen, recvmsg, send, socket_with, sockopt,
    },
    process::{Pid, PidfdFlags, Resource, geteuid, getrlimit, pidfd_open},
    time::Timespec,
};
use std::{
    collections::{BTreeMap, VecDeque},
    fs::Permissions,
    io::{self, IoSliceMut},
    mem::MaybeUninit,
    os::{
        fd::{AsFd as _, AsRawFd as _, OwnedFd},
        unix::fs::{MetadataExt as _, PermissionsExt as _},
    },
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tempfile::TempDir;
use vvm_cli::warm::{
    machine::Connection,
    protocol::{LONGEST_LINE, ToApp},
};
use vvm_clock::{Clock, Instant};
use vvm_containment::{Family, ReadableLink, ends_by};
use vvm_host::operate::ResourceLimit;

/// An address of a socket has 107 bytes (unix(7)).
const LONGEST_PATH: usize = 107;

/// The pause after the system did not accept a connection, mostly for want of descriptors. The listener stays readable
/// meanwhile: without a pause, the host would do nothing else.
const PAUSE: Duration = Duration::from_millis(100);

/// The pause after a connection that is not of the app. So at most a hundred a second are looked at.
const AFTER_STRANGER: Duration = Duration::from_millis(10);

/// How many connections wait to be accepted. Those of the app wait among them.
const BACKLOG: i32 = 64;

/// A connection takes two of the host's descriptors. Half of them are left for the storage and the rest.
const LIMIT_PER_CONNECTION: u64 = 4;

/// How often the stream of a process that has ended is read, because a child may go on to send. What the process has sent
/// needs fewer reads: a socket buffers 208 KiB (`net.core.wmem_default`), and even a piece of one byte counts as 768.
const LAST_READS: usize = 1024;

#[derive(Debug, thiserror::Error)]
pub(in crate::run) enum NoSocket {
    #[error("--warm: the path of the socket has {} bytes, at most {LONGEST_PATH} are possible (unix(7)): set TMPDIR to a shorter path", .0.as_os_str().len())]
    TooLong(PathBuf),
    #[error("--warm: no socket in {path}: {cause}; set TMPDIR to another folder")]
    Refused { path: PathBuf, cause: io::Error },
    #[error(
        "--warm: no socket in {path}: user {owner} could replace it by one that says \"lead\"; set TMPDIR to a folder of user \
         {us} or root"
    )]
    Foreign { path: PathBuf, owner: u32, us: u32 },
    #[error(
        "--warm: no socket in {path}: others may write there (mode {mode:o}), and could replace it by one that says \"lead\"; \
         set TMPDIR to a folder of one user, or to one with the sticky bit (chmod +t)"
    )]
    Open { path: PathBuf, mode: u32 },
}

#[derive(PartialEq, Eq, Debug)]
pub(super) enum SocketEvent {
    Connected(Connection, Pid),
    Line(Connection, Vec<u8>),
    /// A line of more than [`LONGEST_LINE`] bytes. The owner has to close the connection; what follows is no line.
    TooLong(Connection),
    Closed(Connection),
    /// A process that is no descendant of the keeper has connected, and got an answer.
    Uncontained(Pid),
    /// A process has connected, and has ended or is of a namespace above.
    Vanished,
    /// A process that did not connect has sent something over an inherited socket. It was dropped.
    Foreign(Connection, Pid),
    /// A descendant of the keeper was refused for this reason, and got it as an answer.
    Refused(String),
    /// The system does not accept connections. They wait, and this is said once.
    NotAccepted(Errno),
}

#[derive(Debug)]
pub(super) struct Socket {
    path: PathBuf,
    _folder: TempDir,
    /// Says that this process lives: a lock on the folder.
    _lock: OwnedFd,
    listener: OwnedFd,
    readable: ReadableLink,
    family: Family,
    connections: Connections,
    clock: Arc<dyn Clock>,
    /// When the listener is watched again. `NEVER` if it is.
    accepts_at: Instant,
    /// Whether [`SocketEvent::NotAccepted`] was said, and no connection was accepted since.
    is_short: bool,
}

#[derive(Debug)]
struct Connections {
    epoll: OwnedFd,
    peers: BTreeMap<Connection, Peer>,
    next: Connection,
    most: usize,
    heard: VecDeque<SocketEvent>,
}

#[derive(Debug)]
struct Peer {
    number: Connection,
    socket: OwnedFd,
    /// Readable once the process that connected has ended.
    process: OwnedFd,
    pid: Pid,
    line: Vec<u8>,
    unsent: Vec<u8>,
    /// A line that a newer one of its kind replaces.
    newest: Option<Vec<u8>>,
}

const LISTENER: u64 = 0;

const PREFIX: &str = "vvm-warm-";

const NAME: &str = "socket";

impl Socket {
    /// Listens in a new folder below TMPDIR, or below [`SHARED_MEMORY`] if others could replace it there. Must be called in
    /// the context of a runtime.
    pub(super) fn listen(clock: Arc<dyn Clock>) -> Result<Self, NoSocket> {
        let parent = std::env::temp_dir();
        match Self::listen_below(&parent, Arc::clone(&clock)) {
            Err(refusal @ (NoSocket::Open { .. } | NoSocket::Foreign { .. })) => {
                Self::listen_below(Path::new(SHARED_MEMORY), clock).map_err(|_| refusal)
            }
            listens => listens,
        }
    }

    fn listen_below(parent: &Path, clock: Arc<dyn Clock>) -> Result<Self, NoSocket> {
        let refused = |cause: io::Error| NoSocket::Refused { path: parent.into(), cause };
        // Without links, so that what is checked is what is used.
        let parent = &parent.canonicalize().map_err(refused)?;
        check_ancestors(parent)?;
        let family = Family::of_this_process().map_err(|cause| refused(io::Error::other(cause)))?;
        // Others may pass, because processes of the app may have changed their user. They may not list or change it.
        let mode = Permissions::from_mode(0o711);
        remove_abandoned(parent);
        let folder = tempfile::Builder::new().prefix(PREFIX).permissions(mode).tempdir_in(parent);
        let folder = folder.map_err(refused)?;
        let path = folder.path().join(NAME);
        let address = match SocketAddrUnix::new(&path) {
            Ok(address) if path.as_os_str().len() <= LONGEST_PATH => address,
            _ => return Err(NoSocket::TooLong(path)),
        };
        let refused = |errno: Errno| refused(errno.into());
        // Before the socket, so that no other host takes the folder for an abandoned one.
        let lock = folder_at(folder.path()).map_err(refused)?;
        flock(&lock, FlockOperation::LockExclusive).map_err(refused)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listener = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(refused)?;
        // Before the first connection, whose messages may come before it is accepted.
        sockopt::set_socket_passcred(&listener, true).map_err(refused)?;
        bind(&listener, &address).map_err(refused)?;
        rustix::fs::chmod(&path, Mode::from_raw_mode(0o666)).map_err(refused)?;
        listen(&listener, BACKLOG).map_err(refused)?;
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(refused)?;
        epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN).map_err(refused)?;
        let readable =
            ReadableLink::new(&epoll).map_err(|cause| NoSocket::Refused { path: parent.into(), cause })?;
        let (accepts_at, is_short, connections) = (Instant::NEVER, false, Connections::new(epoll));
        let (_folder, _lock) = (folder, lock);
        Ok(Self {
            path,
            _folder,
            _lock,
            listener,
            readable,
            family,
            connections,
            clock,
            accepts_at,
            is_short,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Waits until something happens. `keeper` is that of the app. Fails if the runtime shuts down. Cancel safe.
    pub(super) async fn next(&mut self, keeper: Pid) -> io::Result<SocketEvent> {
        let clock = Arc::clone(&self.clock);
        loop {
            let accepts_at = self.accepts_at;
            let heard = tokio::select! {
                biased;
                heard = self.find(keeper) => heard?,
                () = clock.sleep_until(accepts_at) => {
                    self.watch_listener(EventFlags::IN, Instant::NEVER);
                    continue;
                }
            };
            let pause = match heard {
                SocketEvent::NotAccepted(_) => PAUSE,
                SocketEvent::Uncontained(_) | SocketEvent::Vanished => AFTER_STRANGER,
                _ => Duration::ZERO,
            };
            if !pause.is_zero() {
                self.watch_listener(EventFlags::empty(), clock.now().after(pause));
            }
            match heard {
                SocketEvent::NotAccepted(_) if std::mem::replace(&mut self.is_short, true) => continue,
                SocketEvent::Vanished => continue,
                SocketEvent::Connected(..) => self.is_short = false,
                _ => {}
            }
            return Ok(heard);
        }
    }

    /// Waits, and handles little at a time: what a peer sends without a pause must not keep this process from renewing.
    async fn find(&mut self, keeper: Pid) -> io::Result<SocketEvent> {
        let Self { readable, family, listener, connections, .. } = self;
        let look = || {
            while connections.heard.is_empty() {
                let mut ready = Vec::with_capacity(16);
                let into = rustix::buffer::spare_capacity(&mut ready);
                match epoll::wait(&connections.epoll, into, Some(&AT_ONCE)) {
                    Ok(1..) | Err(Errno::INTR) => {}
                    Ok(0) | Err(_) => return None,
                }
                for event in ready {
                    let (data, flags) = (event.data, event.flags);
                    match data.u64() {
                        LISTENER => {
                            let heard = connections.accept(listener, |pid| family.is_below(keeper, pid));
                            connections.heard.extend(heard);
                        }
                        number => connections.serve(number / 2, flags),
                    }
                }
            }
            connections.heard.pop_front()
        };
        readable.find(look).await
    }

    fn watch_listener(&mut self, flags: EventFlags, accepts_at: Instant) {
        self.accepts_at = accepts_at;
        // It was added, so the kernel does not refuse.
        let data = EventData::new_u64(LISTENER);
        let _ = epoll::modify(&self.connections.epoll, &self.listener, data, flags);
    }

    /// Only the newest of lines that are `replaceable` waits.
    pub(super) fn send(&mut self, to: Connection, line: Vec<u8>, replaceable: bool) {
        let Connections { epoll, peers, .. } = &mut self.connections;
        if let Some(peer) = peers.get_mut(&to) {
            peer.send(epoll, line, replaceable);
        }
    }

    /// What was read from it before is still heard.
    pub(super) fn close(&mut self, connection: Connection) {
        self.connections.close(connection);
    }

    /// Closes all connections, and forgets what was read. A process of one tree must never lead in place of the next.
    pub(super) fn close_all(&mut self) {
        self.connections.heard.clear();
        for connection in self.connections.peers.keys().copied().collect::<Vec<_>>() {
            self.close(connection);
        }
    }
}

fn folder_at(path: &Path) -> rustix::io::Result<OwnedFd> {
    open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

/// A folder of root's with the sticky bit, for where TMPDIR is open to all, as an `emptyDir` of Kubernetes is.
const SHARED_MEMORY: &str = "/dev/shm";

/// Fails if another user could rename `folder`, or one above it, and put a socket of its own there.
fn check_ancestors(folder: &Path) -> Result<(), NoSocket> {
    let found = |path: &Path| {
        let refused = |cause| NoSocket::Refused { path: path.into(), cause };
        std::fs::symlink_metadata(path).map_err(refused)
    };
    // Of an unknown number in a user namespace that does not map root.
    let (us, of_the_root) = (geteuid().as_raw(), found(Path::new("/"))?.uid());
    for path in folder.ancestors() {
        let (metadata, path) = (found(path)?, path.to_owned());
        let (owner, mode) = (metadata.uid(), metadata.mode() & 0o7777);
        if ![us, 0, of_the_root].contains(&owner) {
            return Err(NoSocket::Foreign { path, owner, us });
        }
        if mode & 0o022 != 0 && mode & 0o1000 == 0 {
            return Err(NoSocket::Open { path, mode });
        }
    }
    Ok(())
}

/// Removes what hosts of this user that were killed have left behind.
fn remove_abandoned(parent: &Path) {
    let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX)) {
        let _ = remove_if_abandoned(&entry.path());
    }
}

/// Removes a folder with a socket, unless a host has locked it. One without is of a host that is about to lock it.
fn remove_if_abandoned(path: &Path) -> rustix::io::Result<()> {
    let folder = folder_at(path)?;
    if fstat(&folder)?.st_uid != geteuid().as_raw() {
        return Err(Errno::PERM);
    }
    flock(&folder, FlockOperation::NonBlockingLockExclusive)?;
    unlinkat(&folder, NAME, AtFlags::empty())?;
    rmdir(path)
}

const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

impl Connections {
    fn new(epoll: OwnedFd) -> Self {
        let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let most = usize::try_from(descriptors / LIMIT_PER_CONNECTION).unwrap_or(usize::MAX);
        Self { epoll, peers: BTreeMap::new(), next: 1, most, heard: VecDeque::new() }
    }

    fn close(&mut self, connection: Connection) {
        if let Some(peer) = self.peers.remove(&connection) {
            // The descriptors are open elsewhere: epoll would go on to report them.
            let _ = epoll::delete(&self.epoll, &peer.socket);
            let _ = epoll::delete(&self.epoll, &peer.process);
        }
    }

    fn accept(&mut self, listener: &OwnedFd, is_ours: impl FnOnce(Pid) -> bool) -> Option<SocketEvent> {
        let socket = match accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(socket) => socket,
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => return None,
            Err(errno) => return Some(SocketEvent::NotAccepted(errno)),
        };
        // Without a number in this namespace the process can't be a descendant.
        let Ok(UCred { pid, .. }) = sockopt::socket_peercred(&socket) else {
            return Some(SocketEvent::Vanished);
        };
        let refuse = |reason: String| {
            let answer = ToApp::Refused { reason: reason.clone() }.to_line();
            let _ = send(&socket, &answer, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
            Some(SocketEvent::Refused(reason))
        };
        let process = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(process) => process,
            // A process that has ended leads nothing.
            Err(Errno::SRCH) => return Some(SocketEvent::Vanished),
            Err(errno) => return refuse(ResourceLimit::from(errno).to_string()),
        };
        let is_ours = is_ours(pid);
        // The number named the process that connected all the while, unless that was reaped meanwhile.
        if !is_number_of(&process, pid) {
            return Some(SocketEvent::Vanished);
        }
        if !is_ours {
            let _ = refuse(
            "this process was not started by vvm run --warm, or has left its containment: only descendants of the app \
             may connect to VVM_SOCKET. Start it by `vvm run --warm -- PROGRAM`, and not through another service"
                .into(),
        );
            return Some(SocketEvent::Uncontained(pid));
        }
        let most = self.most;
        if self.peers.len() >= most {
            return refuse(format!(
                "{most} connections are open, one for four files that vvm may open: close those that are not needed, or let \
             vvm open more files (ulimit -n, LimitNOFILE=)"
            ));
        }
        let number = self.next;
        self.next += 1;
        let watch =
            |fd: &OwnedFd, data| epoll::add(&self.epoll, fd, EventData::new_u64(data), EventFlags::IN);
        let watched = sockopt::set_socket_passcred(&socket, true)
            .and_then(|()| watch(&socket, 2 * number))
            .and_then(|()| watch(&process, 2 * number + 1));
        if let Err(errno) = watched {
            return refuse(ResourceLimit::from(errno).to_string());
        }
        self.peers.insert(number, Peer::new(number, socket, process, pid));
        Some(SocketEvent::Connected(number, pid))
    }

    fn serve(&mut self, number: Connection, flags: EventFlags) {
        let Self { epoll, peers, heard, .. } = self;
        let Some(peer) = peers.get_mut(&number) else { return };
        if flags.contains(EventFlags::OUT) {
            peer.flush(epoll);
        }
        // Before it reads, because what was sent before the end counts.
        let has_ended = has_ended(&peer.process);
        let reads = if has_ended { LAST_READS } else { 1 };
        let last = (0..reads).map(|_| peer.receive(heard)).find(|read| *read != Read::Something);
        if has_ended || last == Some(Read::End) {
            self.close(number);
            self.heard.push_back(SocketEvent::Closed(number));
        }
    }
}

/// Whether the process, which may have ended, is not reaped: no other has its number (proc(5), fdinfo).
fn is_number_of(process: &OwnedFd, pid: Pid) -> bool {
    let described = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", process.as_raw_fd()));
    described.is_ok_and(|text| text.contains(&format!("\nPid:\t{pid}\n")))
}

fn has_ended(process: &OwnedFd) -> bool {
    ends_by(process, Instant::ORIGIN)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Read {
    Something,
    Nothing,
    End,
}

impl Peer {
    fn new(number: Connection, socket: OwnedFd, process: OwnedFd, pid: Pid) -> Self {
        Self { number, socket, process, pid, line: Vec::new(), unsent: Vec::new(), newest: None }
    }

    fn receive(&mut self, heard: &mut VecDeque<SocketEvent>) -> Read {
        let mut bytes = [0; LONGEST_LINE];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1), ScmRights(4))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let received = {
            let into = &mut [IoSliceMut::new(&mut bytes)];
            recvmsg(&self.socket, into, &mut ancillary, RecvFlags::CMSG_CLOEXEC)
        };
        let length = match received {
            Ok(message) if message.bytes > 0 => message.bytes,
            Err(Errno::INTR) => return Read::Something,
            Err(Errno::AGAIN) => return Read::Nothing,
            Ok(_) | Err(_) => return Read::End,
        };
        // The kernel does not join what several processes have sent (unix(7)). Descriptors are closed.
        let sender = ancillary.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmCredentials(sender) => Some(sender.pid),
            _ => None,
        });
        match sender {
            Some(sender) if sender == self.pid => {}
            Some(sender) => {
                heard.push_back(SocketEvent::Foreign(self.number, sender));
                return Read::Something;
            }
            None => return Read::Something,
        }
        for byte in &bytes[..length] {
            match byte {
                b'\n' => heard.push_back(SocketEvent::Line(self.number, std::mem::take(&mut self.line))),
                byte => self.line.push(*byte),
            }
            if self.line.len() >= LONGEST_LINE {
                self.line.clear();
                heard.push_back(SocketEvent::TooLong(self.number));
                break;
            }
        }
        Read::Something
    }

    fn send(&mut self, epoll: &OwnedFd, line: Vec<u8>, replaceable: bool) {
        if replaceable && !self.unsent.is_empty() {
            self.newest = Some(line);
        } else {
            // An older one would come after this line.
            self.newest = None;
            self.unsent.extend(line);
        }
        self.flush(epoll);
    }

    /// Sends what the kernel takes, and has epoll report when it takes more.
    fn flush(&mut self, epoll: &OwnedFd) {
        loop {
            if self.unsent.is_empty() {
                self.unsent = self.newest.take().unwrap_or_default();
            }
            if self.unsent.is_empty() {
                break;
            }
            match send(&self.socket, &self.unsent, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(sent) => drop(self.unsent.drain(..sent)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => {
                    (self.unsent, self.newest) = (Vec::new(), None);
                    break;
                }
            }
        }
        let more = if self.unsent.is_empty() { EventFlags::empty() } else { EventFlags::OUT };
        let data = EventData::new_u64(2 * self.number);
        // It was added, so the kernel only refuses what it would have refused then.
        let _ = epoll::modify(epoll, self.socket.as_fd(), data, EventFlags::IN | more);
    }
}

#[cfg(test)]
mod tests;
