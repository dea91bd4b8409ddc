//! The public suites on the drivers that need no server.

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

/// Each handle has its own connection.
#[cfg(feature = "sqlite")]
mod sqlite {
    use crate::driver::Driver;
    use ielections::all_suites;

    fn file() -> Driver {
        Driver::in_a_folder(|folder| {
            format!("sqlite:{}?allow=overlay", folder.join("elections.db").display())
        })
    }

    all_suites!(file());
}

/// Handles share the one database that a process can have open.
#[cfg(feature = "sled")]
mod sled {
    use crate::driver::Driver;
    use ielections::all_suites;

    all_suites!(Driver::in_a_folder(|folder| format!("sled:{}", folder.join("elections").display())));
}
