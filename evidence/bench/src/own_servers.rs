//! Measures on DynamoDB Local, which it starts and ends.

use servers::dynamodb::DynamoDbLocal;
use std::{env, error::Error, process::Command};

/// Starts DynamoDB Local, and this program again with credentials for it and `options`.
pub(crate) fn on_dynamodb_local(options: &[&str]) -> Result<(), Box<dyn Error>> {
    let server = DynamoDbLocal::start(&servers::target())?;
    let mut bench = Command::new(env::current_exe()?);
    let url = format!("dynamodb://eu-west-1/bench?endpoint={}", server.endpoint());
    // DynamoDB Local accepts any.
    bench.env("AWS_ACCESS_KEY_ID", "local").env("AWS_SECRET_ACCESS_KEY", "local");
    match bench.args(["--storage", &url]).args(options).status()? {
        status if status.success() => Ok(()),
        status => Err(format!("measuring on DynamoDB Local ended with {status}").into()),
    }
}
