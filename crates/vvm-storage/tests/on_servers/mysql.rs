mod failover;
mod handles;

use crate::driver::{Driver, all_suites_on_a_server};
use servers::mysql::MariaDb;
use std::path::Path;

all_suites_on_a_server!(Driver::on_a_server(format!("{}?{OPTIONS}", server())).await);

const OPTIONS: &str = "request_timeout=20s&max_ttl=86400s";

fn server() -> String {
    crate::server("VVM_TEST_MYSQL", "mysql://user@host/database", "mysql")
}

fn started(settings: &[&str]) -> MariaDb {
    MariaDb::start(Path::new("../../target"), &["elections"], settings).unwrap()
}
