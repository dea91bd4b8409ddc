//! Real database servers for tests, from their makers' releases. Each has its own address and folder, and
//! ends with its owner, even if that is killed.
//!
//! - [`built`]: builds the servers that are Go modules or packages of npm, and programs of our own in Go.
//! - [`cassandra`]: Apache Cassandra, one node or three.
//! - [`client_go`]: a candidate of client-go's leader election.
//! - [`dynamodb`]: DynamoDB Local, one process.
//! - [`etcd`]: etcd, one member or several.
//! - [`jars`]: fetches the servers that run on Java.
//! - [`kubernetes`]: kube-apiserver, one process on an etcd of its own.
//! - [`postgres`]: PostgreSQL, primaries and standbys.
//! - [`s3mock`]: S3Mock, which must be refused.
//! - [`objects`]: versitygw, MinIO and Azurite, servers of object stores.
//! - [`owned`]: a process that does not outlive its owner.
//!
//! The tests are those of `vvm-storage` and `vvm-cli`, which `main.rs` runs.
#![forbid(unsafe_code)]

pub mod built;
pub mod cassandra;
mod certificates;
pub mod client_go;
pub mod dynamodb;
pub mod etcd;
mod http;
pub mod jars;
pub mod kubernetes;
pub mod objects;
pub mod owned;
pub mod postgres;
pub mod s3mock;

use std::{
    env, io,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    ops::Range,
    path::PathBuf,
    sync::{
        LazyLock,
        atomic::{AtomicUsize, Ordering},
    },
};

/// Cargo's target folder, in which servers are kept, too.
pub fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from)
}

/// Below the ports that Linux gives to clients: the connection of another test must not take the port before
/// the server has it.
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
