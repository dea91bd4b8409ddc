//! Real database servers for tests, from their makers' releases. Each has its own address and folder, and ends with its
//! owner, even if that is killed. What can't be started leaves no process, and no half-made program.
#![allow(missing_docs, reason = "for the tests of this repository alone")]
#![forbid(unsafe_code)]

pub mod built;
pub mod cassandra;
mod certificates;
pub mod dynamodb;
pub mod etcd;
pub mod kubernetes;
pub mod mysql;
pub mod objects;
pub mod owned;
pub mod postgres;
pub mod replicated;

use std::{
    env,
    io::{self, Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    ops::Range,
    path::PathBuf,
    sync::{
        LazyLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tempfile::TempDir;

/// Cargo's target folder, in which servers are kept, too.
pub fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from)
}

/// Below the ports that Linux gives to clients: no connection of another test may take the port before the server.
const PORTS: Range<u16> = 20_000..32_000;

/// Returns a loopback address that is free at this moment, and that no other call of this process returns.
fn free_address() -> io::Result<SocketAddr> {
    static NEXT: LazyLock<AtomicUsize> = LazyLock::new(|| AtomicUsize::new(fastrand::usize(..PORTS.len())));
    let mut free = Err(io::ErrorKind::AddrInUse.into());
    for _ in PORTS {
        let port = PORTS.start + (NEXT.fetch_add(1, Ordering::Relaxed) % PORTS.len()) as u16;
        free = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).and_then(|listener| listener.local_addr());
        if free.is_ok() {
            break;
        }
    }
    free
}

/// Returns a folder in memory if possible: each write is synced, which can take seconds on a busy disk.
fn in_memory(prefix: &str) -> io::Result<TempDir> {
    TempDir::with_prefix_in(prefix, "/dev/shm").or_else(|_| TempDir::with_prefix(prefix))
}

/// Whether the answer to one plain request, with its head, has this text.
fn answers(address: SocketAddr, path: &str, wanted: &str) -> bool {
    let get = || {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        io::Result::Ok(answer)
    };
    get().is_ok_and(|answer| answer.contains(wanted))
}
