//! Which driver is run on what, one after another, and the table of it.
//!
//! A driver that was asked for and could not be run has failed: there is no way to skip one but not to ask for it.

use crate::cases::{Cases, Suite};
use clap::ValueEnum;
use servers::cassandra::Cassandra;
use std::{env, path::PathBuf};

/// Every driver that there is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Driver {
    /// In this process's memory.
    Mem,
    /// On a file in a temporary folder.
    Sqlite,
    /// In a temporary folder.
    Sled,
    /// On Apache Cassandra, or whatever `VVM_TEST_SCYLLA=host:port` leads to.
    Scylla,
}

/// An address of a cluster that is there already.
const SCYLLA: &str = "VVM_TEST_SCYLLA";

/// Runs the drivers asked for, or all of them, on clusters of so many nodes; whether every case of every one passed.
pub(crate) fn run(only: &[Driver], nodes: u8) -> bool {
    let asked_for = if only.is_empty() { Driver::value_variants() } else { only };
    let mut table = Vec::new();
    for driver in asked_for {
        println!("==> {}", driver.name());
        let outcome = driver.run(nodes);
        if let Err(why) = &outcome {
            eprintln!("{}: {why}", driver.name());
        }
        table.push((driver.name(), outcome));
    }
    println!();
    for (name, outcome) in &table {
        match outcome {
            Ok((cases, place)) => println!("{name:8} {cases}, on {place}"),
            Err(_) => println!("{name:8} NOT RUN: see above"),
        }
    }
    table.iter().all(|(_, outcome)| outcome.as_ref().is_ok_and(|(cases, _)| cases.all_passed()))
}

impl Driver {
    fn name(self) -> &'static str {
        match self {
            Self::Mem => "mem",
            Self::Sqlite => "sqlite",
            Self::Sled => "sled",
            Self::Scylla => "scylla",
        }
    }

    /// What came of its cases, and what they ran on; or why none did.
    fn run(self, nodes: u8) -> Result<(Cases, String), String> {
        match self {
            Self::Mem | Self::Sqlite | Self::Sled => {
                let suite = Suite {
                    feature: self.name(),
                    tests: &["contract", "elections"],
                    only: Some(self.name()),
                    server: None,
                };
                Ok((suite.run()?, "this machine".into()))
            }
            Self::Scylla => {
                let on = |address: &str| {
                    Suite {
                        feature: "scylla",
                        tests: &["scylla"],
                        only: None,
                        server: Some((SCYLLA, address)),
                    }
                    .run()
                };
                match env::var(SCYLLA) {
                    Ok(address) => Ok((on(&address)?, address)),
                    Err(_) => {
                        let way_out = |error| {
                            format!(
                                "{error}\nOr point {SCYLLA}=host:port at a cluster that is there already."
                            )
                        };
                        let cassandra = Cassandra::start(nodes, &target()).map_err(way_out)?;
                        let cases = on(&cassandra.contact_points())?;
                        let counted = if nodes == 1 { "one node".into() } else { format!("{nodes} nodes") };
                        Ok((cases, format!("Apache Cassandra 5.0.5, {counted}")))
                    }
                }
            }
        }
    }
}

/// Where cargo builds: servers are kept there.
fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from)
}
