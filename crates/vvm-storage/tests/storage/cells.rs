#[path = "../cells/database.rs"]
#[allow(dead_code, reason = "only the program of the rules forges single answers")]
mod database;

use crate::driver::Driver;
use database::Database;
use std::sync::Arc;
use testing_time::MockClock;
use vvm_storage::{SysVvmStorage, cells::Cells};

fn on(database: Arc<Database>) -> Driver {
    let open = move || Arc::new(Cells::new(database.open())) as Arc<dyn SysVvmStorage>;
    Driver::new(open).in_time_of(MockClock::new())
}

fn honest() -> Driver {
    on(Arc::default())
}

fn forging() -> Driver {
    on(Arc::new(Database { always: true.into(), ..Database::default() }))
}

/// A forged refusal of a new name's cell leaves a placeholder, which is safe and no answer of `decide`: no random steps.
mod forging {
    use super::forging;

    ielections::all_suites!(forging());
}

mod honest {
    use super::honest;

    crate::driver::driver_suites!(honest(), 200);
}
