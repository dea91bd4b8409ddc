//! How Java is called: what Cassandra's own scripts pass for Java 17, and what makes a node start within
//! seconds.

use super::configuration::NodeConfiguration;
use crate::owned;
use std::{io, path::Path, process::Command};

const MAIN: &str = "org.apache.cassandra.service.CassandraDaemon";

/// Small, compiled in haste, and alone in the world: no waiting for a ring to settle.
const QUICK: [&str; 9] = [
    "-Xms256m",
    "-Xmx512m",
    "-XX:TieredStopAtLevel=1",
    // Several nodes share a few cores: a collector that works beside them takes more than it saves.
    "-XX:+UseSerialGC",
    // No wait of a node that is alone with its tokens, but how long a joining one calls for the others.
    "-Dcassandra.ring_delay_ms=20000",
    "-Dcassandra.skip_wait_for_gossip_to_settle=0",
    "-Dcassandra.gossip_settle_min_wait_ms=100",
    "-Dcassandra.auto_bootstrap=false",
    // The first user, where there are users.
    "-Dcassandra.superuser_setup_delay_ms=0",
];

const EXPORTS: [&str; 9] = [
    "java.base/java.lang.ref",
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.sql/java.sql",
    "jdk.unsupported/sun.misc",
];

const OPENS: [&str; 15] = [
    "java.base/java.io",
    "java.base/java.lang",
    "java.base/java.lang.module",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.loader",
    "java.base/jdk.internal.math",
    "java.base/jdk.internal.module",
    "java.base/jdk.internal.ref",
    "java.base/jdk.internal.reflect",
    "java.base/jdk.internal.util.jar",
    "java.base/sun.nio.ch",
    "jdk.management/com.sun.management.internal",
];

pub(super) fn command(jars: &Path, node: &NodeConfiguration) -> io::Result<Command> {
    let mut java = owned::command("java")?;
    java.arg(format!("-Dcassandra.config=file://{}", node.main_file().display()))
        .arg(format!("-Dcassandra.storagedir={}", node.folder.display()))
        .arg(format!("-Dlogback.configurationFile={}", node.log_file().display()))
        .arg(format!("-Dcassandra.initial_token={}", node.token))
        .args(QUICK);
    for (option, packages) in [("--add-exports", &EXPORTS[..]), ("--add-opens", &OPENS)] {
        for package in packages {
            java.arg(option).arg(format!("{package}=ALL-UNNAMED"));
        }
    }
    // Java itself reads the star.
    java.arg("-cp").arg(jars.join("*")).arg(MAIN).current_dir(&node.folder);
    Ok(java)
}
