//! A proxy of one trial before a server that all trials share.
//!
//! Before the proxy listens, it refuses connections like a server that is down. While it is paused, it
//! accepts connections and forwards nothing, like a server that hangs. Delayed bytes arrive when it resumes.
//! Other trials have their own proxies.

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, listen, socket_with};
use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddrV4, TcpListener, TcpStream},
    os::fd::OwnedFd,
    sync::{Arc, Condvar, Mutex},
    thread,
};

/// The proxy.
#[derive(Debug)]
pub(super) struct Proxy {
    socket: Option<OwnedFd>,
    server: String,
    pub(super) address: SocketAddrV4,
    pub(super) forwarding: Arc<Forwarding>,
}

/// Whether the proxy forwards or is paused.
#[derive(Default, Debug)]
pub(super) struct Forwarding {
    is_paused: Mutex<bool>,
    resumed: Condvar,
}

impl Forwarding {
    pub(super) fn pause(&self) {
        *self.is_paused.lock().unwrap() = true;
    }

    pub(super) fn resume(&self) {
        *self.is_paused.lock().unwrap() = false;
        self.resumed.notify_all();
    }

    fn wait(&self) {
        let _open = self.resumed.wait_while(self.is_paused.lock().unwrap(), |is_paused| *is_paused).unwrap();
    }
}

impl Proxy {
    /// Creates a proxy to the server at this address. It does not listen yet.
    pub(super) fn to(server: String) -> Self {
        // No process of a trial inherits it.
        let socket =
            socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        // It listens on the server's host: clients of a cluster expect each node at its own host and at the
        // port of the URL.
        let host = *server.parse::<SocketAddrV4>().unwrap().ip();
        bind(&socket, &SocketAddrV4::new(host, 0)).unwrap();
        let address = SocketAddrV4::try_from(getsockname(&socket).unwrap()).unwrap();
        Self { socket: Some(socket), server, address, forwarding: Arc::default() }
    }

    /// Starts to listen. Its threads end with the test binary.
    pub(super) fn listen(&mut self) {
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
                    thread::spawn(move || forward(from, to, &forwarding));
                }
            }
        });
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream, forwarding: &Forwarding) {
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
