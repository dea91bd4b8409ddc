//! Which drivers this build has.

use std::fmt;

/// Every driver: its scheme, how to write its URL, and whether this build has it.
const DRIVERS: [(&str, &str, bool); 11] = [
    ("sqlite", "sqlite:PATH", cfg!(feature = "sqlite")),
    ("sled", "sled:PATH", cfg!(feature = "sled")),
    ("mem", "mem:", cfg!(feature = "mem")),
    ("postgres", "postgres://USER@HOST/DATABASE", cfg!(feature = "postgres")),
    ("etcd", "etcd://HOST/PREFIX", cfg!(feature = "etcd")),
    ("scylla", "scylla://HOST/KEYSPACE", cfg!(feature = "scylla")),
    ("k8s", "k8s://NAMESPACE", cfg!(feature = "kubernetes")),
    ("dynamodb", "dynamodb://REGION/TABLE", cfg!(feature = "dynamodb")),
    ("s3", "s3://BUCKET/PREFIX?region=REGION", cfg!(feature = "object-store")),
    ("gs", "gs://BUCKET/PREFIX", cfg!(feature = "object-store")),
    ("az", "az://CONTAINER/PREFIX?account=ACCOUNT", cfg!(feature = "object-store")),
];

/// Returns the schemes of the drivers in this build.
pub fn schemes() -> impl Iterator<Item = &'static str> {
    DRIVERS.iter().filter(|(.., is_here)| *is_here).map(|(scheme, ..)| *scheme)
}

/// The storages of this build, and how to get the others.
pub(super) struct Available;

impl fmt::Display for Available {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |wanted: bool, of: fn(&(&'static str, &'static str, bool)) -> &'static str| {
            DRIVERS.iter().filter(|driver| driver.2 == wanted).map(of).collect::<Vec<_>>().join(", ")
        };
        write!(out, "this build has {}", list(true, |driver| driver.1))?;
        match list(false, |driver| driver.0) {
            others if others.is_empty() => Ok(()),
            others => write!(
                out,
                "; cargo features add {}",
                others.replace("k8s", "kubernetes (k8s)").replace("s3, gs, az", "object-store (s3, gs, az)")
            ),
        }
    }
}
