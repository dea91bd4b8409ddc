//! The elections suite on the model of the contract, which proves no ages.

use async_trait::async_trait;
use ielections::{
    Ttl, TtlStorage, elections_test_suite, fenced_elections_suite,
    testing::{Model, contract::StorageUnderTest, elections_suite::ElectionsTestSuite},
};
use std::sync::Arc;
use testing_time::MockClock;

struct InMockTime {
    model: Arc<Model<String>>,
    clock: MockClock,
}

impl InMockTime {
    fn fresh() -> Self {
        Self { model: Model::new(), clock: MockClock::new() }
    }
}

#[async_trait]
impl StorageUnderTest for InMockTime {
    type Key = String;

    async fn open(&self) -> Arc<dyn TtlStorage<String>> {
        self.model.open()
    }

    fn key(&self, name: &[u8]) -> String {
        String::from_utf8_lossy(name).into_owned()
    }
}

impl ElectionsTestSuite for InMockTime {
    fn ttl(&self) -> Ttl {
        Ttl::DEFAULT
    }

    fn mock_clock(&self) -> Option<MockClock> {
        Some(self.clock.clone())
    }
}

elections_test_suite!(InMockTime::fresh());
fenced_elections_suite!(InMockTime::fresh());
