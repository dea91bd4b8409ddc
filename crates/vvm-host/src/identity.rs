//! The holder name of this process, for people who look at a record.

use ielections::{Holder, record::HolderTooLong};

/// Returns `given`, or `HOSTNAME:PID`.
///
/// # Errors
/// If the machine's name is too long for a holder, which uname(2) does not allow.
pub fn or_own_name(given: Option<&Holder>) -> Result<Holder, HolderTooLong> {
    if let Some(given) = given {
        return Ok(given.clone());
    }
    let (machine, process) = (rustix::system::uname(), rustix::process::getpid());
    Holder::new(format!("{}:{process}", machine.nodename().to_string_lossy()))
}
