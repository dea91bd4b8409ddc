//! The driver on a real API server.
//!
//! - `suites`: the public suites, each case with names of its own.
//! - `leases`: what a Lease shows, and Leases that are deleted or written by other programs.
//! - `hints`: watches.
//! - `logins`: credentials and roles, on a server that the runner starts.
//!
//! `cargo xtask test-drivers --only kubernetes` starts a server and runs this with
//! `VVM_TEST_KUBERNETES=k8s://namespace?kubeconfig=…`; a server of your own will do for `suites`,
//! `leases` and `hints`. It needs `kubectl`, creates Leases named `vvm-test-…` and leaves them there.
#![cfg(feature = "kubernetes")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "clippy knows tests, but not their helpers"
)]

#[path = "../suites/driver.rs"]
mod driver;
#[path = "../suites/hints.rs"]
mod hint_suite;
mod leases;
mod logins;

use std::{
    io::Write as _,
    process::{Command, Stdio},
};
use vvm_storage::{cells::Cells, kubernetes::LeaseStorage};

/// Returns where the server is. Fails without the variable, so that no test is skipped.
fn server() -> String {
    std::env::var("VVM_TEST_KUBERNETES").expect(
        "VVM_TEST_KUBERNETES=k8s://namespace?kubeconfig=PATH&context=NAME says where a server is; `cargo \
         xtask test-drivers --only kubernetes` starts one",
    )
}

/// How long a request may take: as in `dynamodb.rs`. The suites use TTLs of all lengths.
fn url() -> String {
    format!("{}&request_timeout=20s", server())
}

/// The value of an option of the server's URL.
fn option(name: &str) -> Option<String> {
    let server = server();
    let (_, options) = server.split_once('?')?;
    let mut options = options.split('&').filter_map(|option| option.split_once('='));
    options.find(|(named, _)| *named == name).map(|(_, value)| value.to_owned())
}

fn namespace() -> String {
    let server = server();
    server.trim_start_matches("k8s://").split('?').next().unwrap().to_owned()
}

/// Runs `kubectl` on the same server and returns its output, or what went wrong.
fn try_kubectl(arguments: &[&str], input: &str) -> Result<String, String> {
    let mut command = Command::new("kubectl");
    for (flag, name) in [("--kubeconfig", "kubeconfig"), ("--context", "context")] {
        command.args(option(name).map(|value| format!("{flag}={value}")));
    }
    command.args(["--namespace", &namespace()]).args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

fn kubectl(arguments: &[&str]) -> String {
    try_kubectl(arguments, "").unwrap()
}

/// A name that no run before had, and that the name of a Lease begins with as it is.
fn fresh() -> String {
    driver::fresh("lease").replace('_', "-")
}

async fn open(url: &str) -> Cells<LeaseStorage> {
    Cells::new(LeaseStorage::open(url).await.unwrap())
}

/// One namespace for all cases.
mod suites {
    use super::{
        driver::{Driver, all_suites_on_a_server},
        url,
    };

    all_suites_on_a_server!(Driver::on_a_server(url()).await);
}

/// Watches.
mod hints {
    use super::{
        hint_suite::{Scene, hints_suite},
        url,
    };

    hints_suite!(url());
}
