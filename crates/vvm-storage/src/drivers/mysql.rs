//! Driver `mysql`: tables in a database of MariaDB or MySQL. (documentation follows)

mod address;
mod connections;
mod driver;
mod errors;
mod open;
mod protocol;
mod rows;

pub(crate) use address::has_password;
pub use driver::MySqlStorage;
pub(crate) use open::init;
