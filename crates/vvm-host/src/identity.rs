//! Who this process is, to people who look at a record.

use ielections::{Holder, record::HolderTooLong};

/// As told, or the machine's name and the number of this process.
///
/// # Errors
/// When the machine's name is longer than a holder may be, which uname(2) does not allow for.
pub fn or_own_name(told: Option<&Holder>) -> Result<Holder, HolderTooLong> {
    told.cloned().map_or_else(
        || {
            let machine = rustix::system::uname();
            let process = rustix::process::getpid();
            Holder::new(format!("{}:{process}", machine.nodename().to_string_lossy()))
        },
        Ok,
    )
}
