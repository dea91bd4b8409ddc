//! A proxy of one trial before a server that all trials share.
//!
//! A trial closes its own proxy and disturbs no other trial. Before the proxy listens, a connection is
//! refused, as by a server that is down. While it is shut, it accepts connections and forwards nothing, as a
//! server that hangs. Held bytes arrive when it opens again.

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
pub(super) struct Door {
    socket: Option<OwnedFd>,
    server: String,
    pub(super) address: SocketAddrV4,
    pub(super) hinge: Arc<Hinge>,
}

/// Open or shut.
#[derive(Default, Debug)]
pub(super) struct Hinge {
    is_shut: Mutex<bool>,
    opened: Condvar,
}

impl Hinge {
    pub(super) fn shut(&self) {
        *self.is_shut.lock().unwrap() = true;
    }

    pub(super) fn open(&self) {
        *self.is_shut.lock().unwrap() = false;
        self.opened.notify_all();
    }

    fn pass(&self) {
        let _open = self.opened.wait_while(self.is_shut.lock().unwrap(), |is_shut| *is_shut).unwrap();
    }
}

impl Door {
    /// A proxy to the server at this address. It does not listen yet.
    pub(super) fn to(server: String) -> Self {
        // No process of a trial inherits it.
        let socket =
            socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        // On the server's own host: clients of a cluster expect each node at the port that they were told.
        let host = *server.parse::<SocketAddrV4>().unwrap().ip();
        bind(&socket, &SocketAddrV4::new(host, 0)).unwrap();
        let address = SocketAddrV4::try_from(getsockname(&socket).unwrap()).unwrap();
        Self { socket: Some(socket), server, address, hinge: Arc::default() }
    }

    /// Listens. Its threads end with the test binary.
    pub(super) fn listen(&mut self) {
        let socket = self.socket.take().unwrap();
        listen(&socket, 64).unwrap();
        let (door, server, hinge) = (TcpListener::from(socket), self.server.clone(), Arc::clone(&self.hinge));
        thread::spawn(move || {
            for client in door.incoming().flatten() {
                let Ok(behind) = TcpStream::connect(&server) else { continue };
                for (from, to) in [(&client, &behind), (&behind, &client)] {
                    let _small_and_often = from.set_nodelay(true);
                    let (Ok(from), Ok(to)) = (from.try_clone(), to.try_clone()) else { continue };
                    let hinge = Arc::clone(&hinge);
                    thread::spawn(move || carry(from, to, &hinge));
                }
            }
        });
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, hinge: &Hinge) {
    let mut buffer = vec![0; 1 << 14];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        hinge.pass();
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    for gone in [from, to] {
        let _already = gone.shutdown(Shutdown::Both);
    }
}
