//! Which driver is run on what, one after another, and the table of it.
//!
//! A driver that was asked for and could not be run has failed: there is no way to skip one but not to ask for it.

use crate::cases::{Cases, Suite};
use clap::ValueEnum;
use servers::{cassandra::Cassandra, dynamodb::DynamoDbLocal};
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
    /// On DynamoDB Local, or whatever `VVM_TEST_DYNAMODB=http://host:port` leads to.
    Dynamodb,
}

/// An address of a cluster that is there already.
const SCYLLA: &str = "VVM_TEST_SCYLLA";

/// The endpoint of a DynamoDB that is there already, AWS's own for example. Credentials are the environment's then.
const DYNAMODB: &str = "VVM_TEST_DYNAMODB";

/// DynamoDB Local takes any; it wants them to be the same for everybody who is to see the same tables.
const LOCAL_CREDENTIALS: [(&str, &str); 2] =
    [("AWS_ACCESS_KEY_ID", "local"), ("AWS_SECRET_ACCESS_KEY", "local")];

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
            Self::Dynamodb => "dynamodb",
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
                    environment: &[],
                };
                Ok((suite.run()?, "this machine".into()))
            }
            Self::Scylla => {
                let on = |address: &str| {
                    Suite {
                        feature: "scylla",
                        tests: &["scylla"],
                        only: None,
                        environment: &[(SCYLLA, address)],
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
            Self::Dynamodb => {
                let on = |environment: &[(&str, &str)]| {
                    Suite { feature: "dynamodb", tests: &["dynamodb"], only: None, environment }.run()
                };
                match env::var(DYNAMODB) {
                    Ok(endpoint) => Ok((on(&[(DYNAMODB, &endpoint)])?, endpoint)),
                    Err(_) => {
                        let way_out = |error| {
                            format!(
                                "{error}\nOr point {DYNAMODB}=http://host:port at one that is there already."
                            )
                        };
                        let local = DynamoDbLocal::start(&target()).map_err(way_out)?;
                        let [id, secret] = LOCAL_CREDENTIALS;
                        let cases = on(&[(DYNAMODB, &local.endpoint()), id, secret])?;
                        Ok((cases, "DynamoDB Local 2.6.1".into()))
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
