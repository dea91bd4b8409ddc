//! Connections of real processes. This test program is the host; a shell is the keeper.

use super::*;
use futures_util::FutureExt as _;
use rustix::{
    net::socketpair,
    process::{Rlimit, setrlimit},
};
use std::{
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
    process::{Child, Command, Stdio},
};
use testing_time::MockClock;
use vvm_clock::SystemClock;

/// Set in a process that connects: the path of the socket.
const PATH: &str = "WARM_SOCKET_OF_TEST";
const MODE: &str = "WARM_MODE_OF_TEST";

#[test]
fn connector() {
    let Some(path) = std::env::var_os(PATH) else { return };
    let mut stream = UnixStream::connect(path).unwrap();
    match std::env::var(MODE).unwrap().as_str() {
        "speaks" => {
            stream.write_all(b"one\ntwo\nthr").unwrap();
            stream.write_all(b"ee\n").unwrap();
            stream.read_exact(&mut [0]).unwrap();
        }
        "forks" => {
            stream.write_all(b"before\n").unwrap();
            let inherited = OwnedFd::from(stream.try_clone().unwrap());
            let mut child = Command::new("sh");
            // The child outlives this process, and keeps the socket.
            let mut child =
                child.args(["-c", "echo forged >&0; exec sleep 1000"]).stdin(inherited).spawn().unwrap();
            // Until the child has sent it.
            stream.read_exact(&mut [0]).unwrap();
            assert!(child.try_wait().unwrap().is_none());
        }
        "waits" => drop(stream.read(&mut [0])),
        mode => panic!("{mode}"),
    }
}

fn keeper(socket: &Socket, mode: &str) -> Keeper {
    let program = std::env::current_exe().unwrap();
    let mut shell = Command::new("setsid");
    shell.args(["sh", "-c", "\"$0\" --exact run::warm::socket::tests::connector --nocapture; sleep 1000"]);
    shell.arg(program).env(PATH, socket.path()).env(MODE, mode).stdout(Stdio::null());
    Keeper(shell.spawn().unwrap())
}

/// Killed with all of its session when it is dropped.
struct Keeper(Child);

impl Keeper {
    fn pid(&self) -> Pid {
        Pid::from_child(&self.0)
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let _ = rustix::process::kill_process_group(self.pid(), rustix::process::Signal::KILL);
        let _ = self.0.wait();
    }
}

fn run(test: impl AsyncFnOnce()) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(test());
}

fn clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock::start().unwrap())
}

fn listen() -> Socket {
    Socket::listen(clock()).unwrap()
}

#[test]
fn descendant_of_the_keeper_is_heard_line_by_line_until_its_end() {
    run(async || {
        let mut socket = listen();
        let keeper = keeper(&socket, "speaks");
        let SocketEvent::Connected(1, process) = socket.next(keeper.pid()).await.unwrap() else { panic!() };
        assert_ne!(process, keeper.pid());
        for line in ["one", "two", "three"] {
            assert_eq!(socket.next(keeper.pid()).await.unwrap(), SocketEvent::Line(1, line.into()));
        }
        socket.send(1, b"\n".into(), false);
        assert_eq!(socket.next(keeper.pid()).await.unwrap(), SocketEvent::Closed(1));
    });
}

#[test]
fn nothing_is_heard_of_connections_of_an_earlier_tree() {
    run(async || {
        let mut socket = listen();
        let keeper = keeper(&socket, "speaks");
        assert!(matches!(socket.next(keeper.pid()).await.unwrap(), SocketEvent::Connected(1, _)));
        assert_eq!(socket.next(keeper.pid()).await.unwrap(), SocketEvent::Line(1, b"one".into()));
        socket.close_all();
        assert!(socket.next(keeper.pid()).now_or_never().is_none());
    });
}

#[test]
fn forked_child_is_not_believed_and_does_not_hide_the_end_of_its_parent() {
    run(async || {
        let mut socket = listen();
        let keeper = keeper(&socket, "forks");
        let SocketEvent::Connected(1, process) = socket.next(keeper.pid()).await.unwrap() else { panic!() };
        assert_eq!(socket.next(keeper.pid()).await.unwrap(), SocketEvent::Line(1, b"before".into()));
        let SocketEvent::Foreign(1, child) = socket.next(keeper.pid()).await.unwrap() else { panic!() };
        assert_ne!(child, process);
        socket.send(1, b"\n".into(), false);
        assert_eq!(socket.next(keeper.pid()).await.unwrap(), SocketEvent::Closed(1));
        rustix::process::test_kill_process(child).unwrap();
    });
}

#[test]
fn connection_beyond_the_limit_is_refused_with_the_way_out() {
    run(async || {
        let mut socket = listen();
        socket.connections.most = 1;
        let first = keeper(&socket, "speaks");
        assert!(matches!(socket.next(first.pid()).await.unwrap(), SocketEvent::Connected(1, _)));
        let second = keeper(&socket, "speaks");
        loop {
            match socket.next(second.pid()).await.unwrap() {
                SocketEvent::Refused(reason) => {
                    break assert!(
                        reason.starts_with("1 connections are open") && reason.contains("ulimit -n")
                    );
                }
                SocketEvent::Line(1, _) => {}
                other => panic!("{other:?}"),
            }
        }
    });
}

/// Set in the process that runs out of descriptors.
const ALONE: &str = "WARM_SHORT_OF_DESCRIPTORS";

/// Shows I10.
#[test]
fn connection_waits_while_the_host_has_no_descriptor_and_keeps_it_from_nothing() {
    if std::env::var_os(ALONE).is_none() {
        // A process of its own, because a limit is that of all threads.
        let mut alone = Command::new(std::env::current_exe().unwrap());
        let name = "run::warm::socket::tests::\
                    connection_waits_while_the_host_has_no_descriptor_and_keeps_it_from_nothing";
        let ended = alone.args(["--exact", name, "--nocapture"]).env(ALONE, "").output().unwrap();
        let text = String::from_utf8_lossy(&ended.stdout);
        // With a name of no test, it would succeed without a check.
        return assert!(
            text.contains("test result: ok. 1 passed"),
            "{text}{}",
            String::from_utf8_lossy(&ended.stderr)
        );
    }
    run(async || {
        let (mut socket, clock) = (listen(), clock());
        let keeper = keeper(&socket, "speaks");
        let usual = getrlimit(Resource::Nofile);
        let next_descriptor = socket.connections.epoll.try_clone().unwrap().as_raw_fd();
        setrlimit(Resource::Nofile, Rlimit { current: Some(next_descriptor as u64), ..usual }).unwrap();
        assert_eq!(socket.next(keeper.pid()).await.unwrap(), SocketEvent::NotAccepted(Errno::MFILE));
        tokio::select! {
            biased;
            heard = socket.next(keeper.pid()) => panic!("{heard:?}"),
            () = clock.sleep(3 * PAUSE) => {}
        }
        setrlimit(Resource::Nofile, usual).unwrap();
        assert!(matches!(socket.next(keeper.pid()).await.unwrap(), SocketEvent::Connected(1, _)));
    });
}

/// A connection of this process with itself, and its other end.
fn connected() -> (Connections, UnixStream) {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (near, far) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
    sockopt::set_socket_passcred(&near, true).unwrap();
    let mut connections = Connections::new(epoll::create(CreateFlags::CLOEXEC).unwrap());
    epoll::add(&connections.epoll, &near, EventData::new_u64(2), EventFlags::IN).unwrap();
    let us = rustix::process::getpid();
    let process = pidfd_open(us, PidfdFlags::empty()).unwrap();
    connections.peers.insert(1, Peer::new(1, near, process, us));
    (connections, far.into())
}

#[test]
fn little_is_read_at_a_time_and_all_after_the_end_of_the_process() {
    let (mut connections, mut far) = connected();
    let mut sent = 0;
    while let Ok(more) = far.write(&[b'\n'; LONGEST_LINE]) {
        sent += more;
    }
    connections.serve(1, EventFlags::IN);
    let heard = connections.heard.len();
    assert!((1..=LONGEST_LINE).contains(&heard), "{heard}");
    let mut ended = Command::new("true").spawn().unwrap();
    let process = pidfd_open(Pid::from_child(&ended), PidfdFlags::empty()).unwrap();
    connections.peers.get_mut(&1).unwrap().process = process;
    ended.wait().unwrap();
    connections.serve(1, EventFlags::IN);
    assert_eq!(connections.heard.pop_back(), Some(SocketEvent::Closed(1)));
    assert_eq!(connections.heard.len(), sent);
    assert!(connections.peers.is_empty());
}

/// The peer of a connection is known by its number, which another process may get.
#[test]
fn number_of_a_process_is_its_own_until_it_is_reaped() {
    let mut child = Command::new("true").spawn().unwrap();
    let pid = Pid::from_child(&child);
    let process = pidfd_open(pid, PidfdFlags::empty()).unwrap();
    while !has_ended(&process) {}
    assert!(is_number_of(&process, pid) && !is_number_of(&process, Pid::INIT));
    child.wait().unwrap();
    assert!(!is_number_of(&process, pid));
}

#[test]
fn only_the_newest_replaceable_line_waits_for_a_peer_that_does_not_read() {
    let (Connections { epoll, mut peers, .. }, mut stream) = connected();
    let peer = peers.get_mut(&1).unwrap();
    let mut sent = 0_u32;
    while peer.unsent.is_empty() {
        peer.send(&epoll, format!("{sent:0999}\n").into_bytes(), true);
        sent += 1;
    }
    for number in sent..sent + 1000 {
        peer.send(&epoll, format!("{number:0999}\n").into_bytes(), true);
    }
    let mut read = Vec::new();
    loop {
        let mut bytes = [0; 65536];
        match stream.read(&mut bytes) {
            Ok(length) => read.extend_from_slice(&bytes[..length]),
            Err(_) if peer.unsent.is_empty() => break,
            Err(_) => peer.flush(&epoll),
        }
    }
    let lines = String::from_utf8(read).unwrap();
    let numbers = lines.lines().map(|line| line.parse::<u32>().unwrap()).collect::<Vec<_>>();
    let wanted = (0..sent).chain([sent + 999]).collect::<Vec<_>>();
    assert_eq!(numbers, wanted);
}

#[test]
fn path_that_is_too_long_for_a_socket_is_refused_with_the_way_out() {
    run(async || {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("x".repeat(100));
        std::fs::create_dir(&deep).unwrap();
        let refusal = Socket::listen_below(&deep, clock()).unwrap_err().to_string();
        assert!(refusal.contains("at most 107") && refusal.contains("TMPDIR"), "{refusal}");
        assert!(std::fs::read_dir(&deep).unwrap().next().is_none(), "it leaves nothing behind");
    });
}

/// This process is not of the app, and connects as often as the system lets it. Shows I10.
#[test]
fn stranger_that_floods_is_looked_at_once_in_a_pause_and_delays_the_app_no_longer() {
    let clock = Arc::new(MockClock::new());
    run(async || {
        let mut socket = Socket::listen(Arc::clone(&clock) as _).unwrap();
        for _ in 0..20 {
            drop(UnixStream::connect(socket.path()).unwrap());
        }
        let keeper = keeper(&socket, "waits");
        let own = SocketEvent::Uncontained(rustix::process::getpid());
        for _ in 0..20 {
            assert_eq!(socket.next(keeper.pid()).await.unwrap(), own);
            assert!(socket.next(keeper.pid()).now_or_never().is_none());
            clock.advance(AFTER_STRANGER);
        }
        assert!(matches!(socket.next(keeper.pid()).await.unwrap(), SocketEvent::Connected(1, _)));
    });
}

#[test]
fn folder_in_which_another_user_could_replace_the_socket_is_refused() {
    run(async || {
        let folder = tempfile::tempdir().unwrap();
        let [open, below] = ["open", "open/below"].map(|name| folder.path().join(name));
        std::fs::create_dir_all(&below).unwrap();
        let set = |mode| std::fs::set_permissions(&open, Permissions::from_mode(mode)).unwrap();
        for mode in [0o777, 0o775, 0o757] {
            set(mode);
            let refusal = Socket::listen_below(&below, clock()).unwrap_err().to_string();
            assert!(refusal.contains(&format!("mode {mode:o}")) && refusal.contains("chmod +t"), "{refusal}");
        }
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&below, &link).unwrap();
        assert!(matches!(Socket::listen_below(&link, clock()), Err(NoSocket::Open { .. })));
        for mode in [0o1777, 0o755, 0o700] {
            set(mode);
            let socket = Socket::listen_below(&link, clock()).unwrap();
            assert_eq!(socket.path().metadata().unwrap().uid(), geteuid().as_raw());
        }
        if geteuid().is_root() {
            std::os::unix::fs::chown(&open, Some(12345), None).unwrap();
            let refusal = Socket::listen_below(&below, clock()).unwrap_err().to_string();
            assert!(refusal.contains("user 12345 could replace it"), "{refusal}");
        }
        assert_eq!(std::fs::read_dir(&below).unwrap().count(), 0);
    });
}

#[test]
fn socket_of_a_killed_host_is_removed_by_the_next_one() {
    let parent = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    let _entered = runtime.enter();
    let listen = || Socket::listen_below(parent.path(), clock()).unwrap();
    let (living, killed) = (listen(), listen());
    // The end of a process closes its descriptors, and removes nothing.
    let Socket { path, _folder, _lock, .. } = killed;
    let abandoned = _folder.keep();
    drop(_lock);
    let unbound = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent.path()).unwrap();
    let next = listen();
    assert!(!path.exists() && !abandoned.exists());
    assert!(living.path().exists() && unbound.path().exists());
    drop((living, next, unbound));
    assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0);
}
