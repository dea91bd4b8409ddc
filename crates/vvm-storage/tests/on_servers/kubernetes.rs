//! Needs `kubectl`.

mod leases;
mod logins;

use crate::driver::{self, Driver, all_suites_on_a_server};
use std::{
    io::Write as _,
    process::{Command, Stdio},
};
use vvm_storage::{cells::Cells, kubernetes::LeaseStorage};

all_suites_on_a_server!(Driver::on_a_server(url()).await);

fn server() -> String {
    crate::server("VVM_TEST_KUBERNETES", "k8s://namespace?kubeconfig=PATH&context=NAME", "kubernetes")
}

/// A request may take as long as in `dynamodb.rs`.
fn url() -> String {
    format!("{}&request_timeout=20s", server())
}

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

mod hints {
    use super::url;

    crate::hint_suite::hints_suite!(url());
}
