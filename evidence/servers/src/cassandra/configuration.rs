//! A node's folder and the two files that it reads.

use super::{NODE_PORT, locks::Locks};
use std::{fs, io, net::Ipv4Addr, path::PathBuf, time::Duration};

/// Warnings and errors only.
const LOG_CONFIGURATION: &str = "<configuration>\
    <appender name=\"OUT\" class=\"ch.qos.logback.core.ConsoleAppender\">\
    <encoder><pattern>%level %date %logger: %msg%n</pattern></encoder></appender>\
    <root level=\"WARN\"><appender-ref ref=\"OUT\"/></root></configuration>\n";

#[derive(Debug)]
pub(super) struct NodeConfiguration {
    pub(super) folder: PathBuf,
    pub(super) address: Ipv4Addr,
    /// The node that introduces the others.
    pub(super) seed: Ipv4Addr,
    pub(super) token: i64,
    /// How far its wall clock is ahead of the machine's.
    pub(super) ahead: Duration,
    /// Whether clocks of the cluster differ.
    pub(super) clocks_differ: bool,
    /// Without these, the node requires no password.
    pub(super) locks: Option<Locks>,
}

impl NodeConfiguration {
    pub(super) fn main_file(&self) -> PathBuf {
        self.folder.join("cassandra.yaml")
    }

    pub(super) fn log_file(&self) -> PathBuf {
        self.folder.join("logback.xml")
    }

    pub(super) fn write(&self) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        fs::write(self.log_file(), LOG_CONFIGURATION)?;
        fs::write(self.main_file(), self.text())
    }

    /// Paxos v2 is recommended; version 1 is the default for compatibility.
    fn text(&self) -> String {
        let Self { folder, address, seed, .. } = self;
        let folder = folder.display();
        format!(
            "cluster_name: vvm\n\
             num_tokens: 1\n\
             partitioner: org.apache.cassandra.dht.Murmur3Partitioner\n\
             data_file_directories: ['{folder}/data']\n\
             commitlog_directory: '{folder}/commitlog'\n\
             saved_caches_directory: '{folder}/saved_caches'\n\
             hints_directory: '{folder}/hints'\n\
             cdc_raw_directory: '{folder}/cdc_raw'\n\
             commitlog_sync: periodic\n\
             commitlog_sync_period: 10s\n\
             seed_provider:\n\
             - class_name: org.apache.cassandra.locator.SimpleSeedProvider\n\
             \x20 parameters: [{{seeds: '{seed}:{NODE_PORT}'}}]\n\
             listen_address: {address}\n\
             rpc_address: {address}\n\
             endpoint_snitch: SimpleSnitch\n\
             paxos_variant: v2\n\
             internode_timeout: {}\n\
             {}",
            // The default is true. With false, the age of a message counts from its arrival and not from
            // its sender's clock, as docs/storage.md advises where clocks differ.
            !self.clocks_differ,
            self.locks.as_ref().map_or_else(
                || "authenticator: AllowAllAuthenticator\n".into(),
                |locks| locks.configuration(*address)
            ),
        )
    }
}
