//! URL and options.

use crate::{
    drivers::config::{REQUEST_TIMEOUT, checked_request_timeout, options, request_timeout},
    opening::OpenError,
};
use aws_sdk_dynamodb::Client;
use std::{fmt, time::Duration};

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Address {
    pub(super) region: String,
    pub(super) table: String,
    pub(super) endpoint: Option<String>,
    pub(super) profile: Option<String>,
    pub(super) request_timeout: Duration,
}

/// What a [`DynamoDbStorage`](super::DynamoDbStorage) needs beside the caller's own [`Client`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenOptions {
    /// The time limit of a request: 2 s unless given, from 100 ms to 60 s. Connecting may take half of it.
    pub request_timeout: Duration,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self { request_timeout: REQUEST_TIMEOUT }
    }
}

const SCHEME: &str = "dynamodb://";

const SECRETS: &str = "a URL must not contain secrets, because other users can read it: put them where the \
    AWS tools look (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, profile=NAME, a role of the machine)";

impl fmt::Display for Address {
    /// None of them can contain a secret.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{SCHEME}{}/{}", self.region, self.table)?;
        self.endpoint.as_ref().map_or(Ok(()), |endpoint| write!(out, "?endpoint={endpoint}"))
    }
}

impl Address {
    pub(super) fn parse(url: &str) -> Result<Self, OpenError> {
        parse(url).map_err(|why| OpenError::of_url(url, why))
    }

    /// Of a caller's own client, which knows its region.
    pub(super) fn of_client(client: &Client, table: &str, options: OpenOptions) -> Result<Self, OpenError> {
        let region = client.config().region().ok_or_else(|| {
            OpenError::misuse("the client has no region: two candidates with different ones would both lead")
        })?;
        let request_timeout = checked_request_timeout(options.request_timeout)?;
        Ok(Self { request_timeout, ..Self::new(region.as_ref(), table).map_err(OpenError::misuse)? })
    }

    fn new(region: &str, table: &str) -> Result<Self, String> {
        let (region, table) = (region.to_owned(), checked_table(table)?);
        Ok(Self { region, table, endpoint: None, profile: None, request_timeout: REQUEST_TIMEOUT })
    }

    pub(super) fn place(&self) -> String {
        match &self.endpoint {
            Some(endpoint) => format!("{endpoint}, region {}", self.region),
            None => format!("DynamoDB in region {}", self.region),
        }
    }
}

fn parse(url: &str) -> Result<Address, String> {
    let rest = url.strip_prefix(SCHEME).ok_or("write dynamodb://region/table")?;
    let (place, text) = rest.split_once('?').unwrap_or((rest, ""));
    if place.contains('@') {
        return Err(SECRETS.into());
    }
    let (region, table) =
        place.split_once('/').ok_or("the table is missing: write dynamodb://region/table")?;
    if region.is_empty() {
        return Err(
            "the region is missing: write dynamodb://eu-west-1/table. It is not taken from the environment: \
             two processes with different regions would use two tables, and both would lead"
                .into(),
        );
    }
    if !region.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-') {
        return Err(format!("`{region}` is not a region: write one like eu-west-1"));
    }
    let mut address = Address::new(region, table)?;
    for option in options(text) {
        let (name, value) = option?;
        match name {
            "endpoint" => address.endpoint = Some(endpoint(value)?),
            "profile" => address.profile = Some(value.to_owned()),
            "request_timeout" => address.request_timeout = request_timeout(value)?,
            "user" | "password" | "access_key_id" | "secret_access_key" | "session_token" => {
                return Err(SECRETS.into());
            }
            _ => {
                return Err(format!(
                    "unknown option `{name}`; the options are endpoint, profile and request_timeout"
                ));
            }
        }
    }
    Ok(address)
}

/// DynamoDB's rule for names.
fn checked_table(table: &str) -> Result<String, String> {
    let is_name = (3..=255).contains(&table.len())
        && table.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
    if is_name {
        return Ok(table.to_owned());
    }
    Err(format!("`{table}` is not a table name: use 3 to 255 letters, digits, `_`, `-` or `.`"))
}

pub(super) fn endpoint(value: &str) -> Result<String, String> {
    let wrong = || format!("`{value}` is not an endpoint: write endpoint=http://localhost:8000 or https://…");
    if value.contains('@') {
        return Err(SECRETS.into());
    }
    let authority = ["http://", "https://"].iter().find_map(|scheme| value.strip_prefix(scheme));
    let authority = authority.ok_or_else(wrong)?.trim_end_matches('/');
    if authority.is_empty() || authority.contains(['/', '#', ' ']) {
        return Err(wrong());
    }
    Ok(value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn region_table_and_options_are_parsed() {
        let address =
            parse("dynamodb://eu-west-1/vvm.elections?endpoint=http://localhost:8000&profile=payroll")
                .unwrap();
        assert_eq!(address.request_timeout, REQUEST_TIMEOUT);
        let with_timeout = parse("dynamodb://eu-west-1/abc?request_timeout=10s").unwrap();
        assert_eq!(with_timeout.request_timeout, Duration::from_secs(10));
        assert_eq!((address.region.as_str(), address.table.as_str()), ("eu-west-1", "vvm.elections"));
        assert_eq!(address.endpoint.as_deref(), Some("http://localhost:8000"));
        assert_eq!(address.profile.as_deref(), Some("payroll"));
        let plain = parse("dynamodb://us-gov-east-1/abc").unwrap();
        assert_eq!((plain.endpoint, plain.profile), (None, None));
        for endpoint in ["https://vpce-1.dynamodb.eu-west-1.vpce.amazonaws.com", "http://[::1]:8000/"] {
            let address = parse(&format!("dynamodb://eu-west-1/abc?endpoint={endpoint}")).unwrap();
            assert_eq!(address.endpoint.as_deref(), Some(endpoint));
        }
    }

    #[test]
    fn refusal_names_the_mistake_and_the_way_out() {
        let table = [
            ("dynamodb:eu-west-1/table", "write dynamodb://region/table"),
            ("dynamodb://eu-west-1", "the table is missing"),
            ("dynamodb:///table", "both would lead"),
            ("dynamodb://Ireland/table", "one like eu-west-1"),
            ("dynamodb://localhost:8000/table", "one like eu-west-1"),
            ("dynamodb://eu-west-1/", "3 to 255"),
            ("dynamodb://eu-west-1/ab", "3 to 255"),
            ("dynamodb://eu-west-1/a/b", "3 to 255"),
            ("dynamodb://key:secret@eu-west-1/table", "AWS_SECRET_ACCESS_KEY"),
            ("dynamodb://eu-west-1/table?secret_access_key=secret", "AWS_SECRET_ACCESS_KEY"),
            ("dynamodb://eu-west-1/table?endpoint=http://key:secret@host", "AWS_SECRET_ACCESS_KEY"),
            ("dynamodb://eu-west-1/table?endpoint", "write endpoint=VALUE"),
            ("dynamodb://eu-west-1/table?endpoint=localhost:8000", "write endpoint=http://"),
            ("dynamodb://eu-west-1/table?endpoint=http://", "write endpoint=http://"),
            ("dynamodb://eu-west-1/table?endpoint=http://host/path", "write endpoint=http://"),
            ("dynamodb://eu-west-1/table?request_timeout=10", "request_timeout=5s"),
            ("dynamodb://eu-west-1/table?retries=3", "unknown option `retries`"),
        ];
        for (url, part) in table {
            let why = parse(url).unwrap_err();
            assert!(why.contains(part), "{url}: {why}");
        }
    }
}
