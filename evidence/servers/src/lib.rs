//! Real database servers for tests, from their makers' releases. Each has its own address and folder, and
//! ends with its owner, even if that is killed.
//!
//! - [`built`]: builds the servers that are Go modules.
//! - [`cassandra`]: Apache Cassandra, one node or three.
//! - [`dynamodb`]: DynamoDB Local, one process.
//! - [`etcd`]: etcd, one member or several.
//! - [`jars`]: fetches the servers that run on Java.
//! - [`kubernetes`]: kube-apiserver, one process on an etcd of its own.
//! - [`postgres`]: PostgreSQL, primaries and standbys.
//! - [`s3mock`]: S3Mock, which must be refused.
//! - [`versitygw`]: versitygw, an S3 server.
//! - [`owned`]: a process that does not outlive its owner.
//!
//! The tests are those of `vvm-storage` and `vvm-cli`, which `main.rs` runs.
#![forbid(unsafe_code)]

pub mod built;
pub mod cassandra;
mod certificates;
pub mod dynamodb;
pub mod etcd;
pub mod jars;
pub mod kubernetes;
pub mod owned;
pub mod postgres;
pub mod s3mock;
pub mod versitygw;

use std::{
    env, io,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::PathBuf,
};

/// Cargo's target folder, in which servers are kept, too.
pub fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from)
}

/// Returns a loopback address that is free at this moment.
fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}
