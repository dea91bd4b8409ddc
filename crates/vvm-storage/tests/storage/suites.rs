#[cfg(feature = "mem")]
mod mem {
    use crate::driver::Driver;
    use ielections::all_suites;
    use std::sync::Arc;
    use testing_time::MockClock;
    use vvm_clock::SystemClock;
    use vvm_storage::mem::MemDatabase;

    fn in_real_time() -> Driver {
        let database = MemDatabase::new(Arc::new(SystemClock::start().unwrap()));
        Driver::new(move || database.open())
    }

    fn in_mock_time() -> Driver {
        let clock = MockClock::new();
        let database = MemDatabase::new(Arc::new(clock.clone()));
        Driver::new(move || database.open()).in_time_of(clock)
    }

    all_suites!(in_real_time(), in_mock_time());
}

#[cfg(feature = "sqlite")]
mod sqlite {
    use crate::driver::{Driver, driver_suites};

    fn file() -> Driver {
        Driver::in_a_folder(|folder| {
            format!("sqlite:{}?allow=overlay", folder.join("elections.db").display())
        })
    }

    driver_suites!(file(), 50);
}

/// Handles share the one database that a process can have open.
#[cfg(feature = "sled")]
mod sled {
    use crate::driver::{Driver, driver_suites};

    fn folder() -> Driver {
        Driver::in_a_folder(|folder| format!("sled:{}", folder.join("elections").display()))
    }

    driver_suites!(folder(), 20);
}
