//! The contract suites find bugs: every case fails on a storage with a planted bug, and passes on the same
//! storage without it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "clippy knows tests, but not their helpers")]
#![allow(clippy::disallowed_methods, reason = "the cases run as tasks of one thread")]

mod documents;
mod records;

use async_trait::async_trait;
use ielections::{
    TtlStorage,
    testing::{Model, ModelStorage, contract::StorageUnderTest},
};
use std::{fmt, sync::Arc};

/// A key that consists of its name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Name(Vec<u8>);

impl fmt::Display for Name {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.escape_ascii().fmt(out)
    }
}

/// The model of the contract, as a storage under test.
struct ModelUnderTest(Arc<Model<Name>>);

impl ModelUnderTest {
    fn fresh() -> Self {
        Self(Model::new())
    }
}

#[async_trait]
impl StorageUnderTest for ModelUnderTest {
    type Key = Name;

    async fn open(&self) -> Arc<dyn TtlStorage<Name>> {
        let handle: Arc<ModelStorage<_>> = Model::open(&self.0);
        handle
    }

    fn key(&self, name: &[u8]) -> Name {
        Name(name.to_vec())
    }
}
