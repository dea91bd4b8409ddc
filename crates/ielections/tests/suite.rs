//! The public suites on the model of the contract, which proves no ages. `cargo xtask sim --broken` runs them on
//! models with a bug: every case has to fail on one of them.
#![allow(clippy::unwrap_used, reason = "clippy knows tests, but not their helpers")]

use async_trait::async_trait;
use ielections::{
    Ttl, TtlStorage,
    testing::{
        Model,
        contract::{self, StorageUnderTest},
        document_contract,
        elections_suite::{self, ElectionsTestSuite},
    },
};
use std::{collections::BTreeSet, fmt, fs, path::Path, sync::Arc};
use testing_time::MockClock;

/// A key that consists of its name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Name(Vec<u8>);

impl fmt::Display for Name {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.escape_ascii().fmt(out)
    }
}

struct ModelUnderTest {
    model: Arc<Model<Name>>,
    clock: MockClock,
}

impl ModelUnderTest {
    fn fresh() -> Self {
        Self { model: Model::new(), clock: MockClock::new() }
    }
}

#[async_trait]
impl StorageUnderTest for ModelUnderTest {
    type Key = Name;

    async fn open(&self) -> Arc<dyn TtlStorage<Name>> {
        self.model.open()
    }

    fn key(&self, name: &[u8]) -> Name {
        Name(name.to_vec())
    }
}

impl ElectionsTestSuite for ModelUnderTest {
    fn ttl(&self) -> Ttl {
        Ttl::DEFAULT
    }

    fn mock_clock(&self) -> Option<MockClock> {
        Some(self.clock.clone())
    }
}

mod records {
    ielections::storage_contract_suite!(crate::ModelUnderTest::fresh());
}

mod documents {
    ielections::document_contract_suite!(crate::ModelUnderTest::fresh());
}

mod elections {
    ielections::elections_test_suite!(crate::ModelUnderTest::fresh());
}

mod fenced {
    ielections::fenced_elections_suite!(crate::ModelUnderTest::fresh());
}

#[test]
fn every_case_is_in_the_list_of_its_suite() {
    let elections = [elections_suite::CASES, elections_suite::FENCED_CASES].concat();
    for (folder, cases) in [
        ("contract", contract::CASES),
        ("document_contract", document_contract::CASES),
        ("elections_suite", &elections),
    ] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/testing").join(folder);
        let sources = fs::read_dir(folder).unwrap();
        let sources: String = sources.map(|file| fs::read_to_string(file.unwrap().path()).unwrap()).collect();
        let written = sources.split("\npub async fn ").skip(1);
        let written: BTreeSet<_> = written.map(|rest| rest.split(['(', '<']).next().unwrap()).collect();
        assert_eq!(cases.iter().copied().collect::<BTreeSet<_>>(), written);
        assert_eq!(cases.len(), written.len(), "a case is listed twice");
    }
}
