//! The sysvvm keyspace: one partition per election key, and one driver per database behind one trait.
//!
//! [`SysVvmStorage`] is what a new backend implements; [`decide`] says what a write on a partition means, for every
//! backend. [`ElectionsTtlStorage`] is the storage of elections on top of it, and owns every key prefix.
//!
//! Drivers, each a feature: [`mem`], `sled`, [`sqlite`], `scylla` (or Apache Cassandra), `postgres`, `mysql` (or
//! MariaDB), `etcd`, `kubernetes`, `dynamodb`, `object-store` (Amazon S3, Google Cloud Storage, Azure). The crate
//! compiles with any one, or none. With feature `cells`: elections on any storage with compare-and-swap on one value.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

#[cfg(feature = "cells")]
pub mod cells;
#[cfg(any(feature = "cells", feature = "mem"))]
mod document_set;
mod drivers;
mod elections;
mod key;
mod opening;
mod operator_requests;
mod step;
mod sysvvm;
#[cfg(feature = "testing")]
pub mod testing;
pub mod url;

#[cfg(feature = "dynamodb")]
pub use drivers::dynamodb;
#[cfg(feature = "etcd")]
pub use drivers::etcd;
#[cfg(feature = "kubernetes")]
pub use drivers::kubernetes;
#[cfg(feature = "mem")]
pub use drivers::mem;
#[cfg(feature = "mysql")]
pub use drivers::mysql;
#[cfg(feature = "object-store")]
pub use drivers::objects;
#[cfg(feature = "postgres")]
pub use drivers::postgres;
#[cfg(feature = "scylla")]
pub use drivers::scylla;
#[cfg(feature = "sled")]
pub use drivers::sled;
#[cfg(feature = "sqlite")]
pub use drivers::sqlite;
pub use elections::{BeyondLimits, ElectionsTtlStorage, LateEnd, ListedName, SettingCorrupt, SettleError};
pub use key::{
    ClusterName, ElectionKey, KEY_PREFIX_LATE_END, KEY_PREFIX_PAUSE, KEY_PREFIX_SLOT_COUNT,
    KEY_PREFIX_STEP_DOWN, KEY_PREFIX_VVM_LEADER, Partition, SlotNumber,
};
pub use opening::{OpenError, OpenErrorKind, StorageUrl};
pub use operator_requests::{Ask, OperatorRequests, Pause, RequestExpiry, Stage, StageChange, StepDown};
pub use step::{CurrentState, Decision, PartitionState, SlotAlone, Step, StepOutcome, decide};
pub use sysvvm::{
    Description, ListedSetting, MOST_LISTED, OpenedStorage, Provenance, SysVvmHints, SysVvmStorage,
};
pub use url::{init_storage, open};

/// The README's example is a doc test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
