//! Real database servers for tests: started from what their makers publish, each on an address of its own and
//! in a folder of its own, and gone when their owner is, even if it is killed.
//!
//! - [`cassandra`]: Apache Cassandra, one node or three.
//! - [`dynamodb`]: DynamoDB Local, one process.
//! - [`etcd`]: etcd, one member; no driver's, but what others elect with.
//! - [`jars`]: where servers that run on Java come from.
//! - [`postgres`]: PostgreSQL, primaries and standbys.
//! - [`owned`]: a process that does not outlive its owner.
//!
//! What doesn't live here: what is tested on them. That is in the tests of `vvm-storage`, which `main.rs`
//! runs.
#![forbid(unsafe_code)]

pub mod cassandra;
pub mod dynamodb;
pub mod etcd;
pub mod jars;
pub mod owned;
pub mod postgres;

use std::{
    env, io,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::PathBuf,
};

/// Where cargo builds: servers are kept there, too.
pub fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from)
}

/// An address of this machine alone that nobody has at this moment.
fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}
