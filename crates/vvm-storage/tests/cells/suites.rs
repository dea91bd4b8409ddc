//! The public suites, on honest cells and on cells that forge every third answer each way.

use super::mem_cells::Database;
use async_trait::async_trait;
use ielections::{
    Ttl, TtlStorage, document_contract_suite, elections_test_suite, fenced_elections_suite,
    storage_contract_suite,
    testing::{contract::StorageUnderTest, elections_suite::ElectionsTestSuite},
};
use std::{num::NonZeroU32, sync::Arc};
use testing_time::MockClock;
use vvm_storage::{
    ClusterName, ElectionKey, ElectionsTtlStorage, SlotNumber, SysVvmStorage, cells::Cells,
    testing::compare_steps,
};

struct OnCells {
    database: Arc<Database>,
    clock: MockClock,
}

fn honest() -> OnCells {
    OnCells { database: Arc::default(), clock: MockClock::new() }
}

fn forging() -> OnCells {
    OnCells { database: Arc::<Database>::default().forge_every_answer(), clock: MockClock::new() }
}

#[async_trait]
impl StorageUnderTest for OnCells {
    type Key = ElectionKey;

    async fn open(&self) -> Arc<dyn TtlStorage<ElectionKey>> {
        let cells = Cells::new(self.database.open(), Arc::new(self.clock.clone()));
        Arc::new(ElectionsTtlStorage::new(Arc::new(cells)))
    }

    fn key(&self, name: &[u8]) -> ElectionKey {
        ElectionKey { cluster: ClusterName::new(name), slot: SlotNumber::new(NonZeroU32::MIN) }
    }
}

impl ElectionsTestSuite for OnCells {
    fn ttl(&self) -> Ttl {
        Ttl::DEFAULT
    }

    fn mock_clock(&self) -> Option<MockClock> {
        Some(self.clock.clone())
    }
}

#[tokio::test]
async fn random_steps_do_what_decide_says() {
    for seed in 0..200 {
        let OnCells { database, clock } = if seed % 2 == 0 { honest() } else { forging() };
        let open =
            async || Arc::new(Cells::new(database.open(), Arc::new(clock.clone()))) as Arc<dyn SysVvmStorage>;
        compare_steps(open, "payroll", seed, 60).await;
    }
}

mod honest {
    use super::*;

    mod contract {
        use super::*;
        storage_contract_suite!(honest());
    }
    mod documents {
        use super::*;
        document_contract_suite!(honest());
    }
    mod elections {
        use super::*;
        elections_test_suite!(honest());
    }
    mod fenced_elections {
        use super::*;
        fenced_elections_suite!(honest());
    }
}

mod forging {
    use super::*;

    mod contract {
        use super::*;
        storage_contract_suite!(forging());
    }
    mod documents {
        use super::*;
        document_contract_suite!(forging());
    }
    mod elections {
        use super::*;
        elections_test_suite!(forging());
    }
    mod fenced_elections {
        use super::*;
        fenced_elections_suite!(forging());
    }
}
