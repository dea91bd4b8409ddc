//! The driver of object stores: its suites on versitygw, and servers that it must refuse.

use super::Outcome;
use crate::{
    cases::{Build, Cases, Suite},
    end_to_end::{self, Selection},
};
use servers::{
    s3mock::S3Mock,
    target,
    versitygw::{CREDENTIALS, Metadata, Versitygw},
};
use std::env;

/// A prefix of a bucket that exists. Credentials come from the environment.
const S3: &str = "VVM_TEST_S3";

/// Servers that lose writes.
const RACY: &str = "VVM_TEST_S3_RACY";

/// Runs the suites on the bucket of `VVM_TEST_S3`, or all cases on versitygw. `all_servers` adds S3Mock.
pub(super) fn run(selection: Selection<'_>, all_servers: bool) -> Result<Outcome, String> {
    if let Ok(url) = env::var(S3) {
        let cases = suites(&["suites", "handles"], &[(S3, &url)])?;
        let place = format!("{url}; not run: servers that lose writes, on servers of our own alone");
        return Ok(Outcome::of_suites(cases, place));
    }
    let way_out = |error| format!("{error}\nOr point {S3}=s3://bucket/prefix?region=… at a bucket.");
    let server = Versitygw::start(Metadata::Attributes).map_err(way_out)?;
    let [id, secret] = CREDENTIALS;
    let mut place = "versitygw 1.8.0".to_owned();
    let cases = selection.or_all(|| {
        let torn = Versitygw::start(Metadata::Beside).map_err(way_out)?;
        let mut racy = torn.url("racy");
        let mock =
            all_servers.then(|| S3Mock::start(&target())).transpose().map_err(|error| error.to_string())?;
        match &mock {
            Some(mock) => racy = format!("{racy} {}", mock.url("racy")),
            None => place += "; not run: S3Mock, which must be refused (--all-servers)",
        }
        suites(&[], &[(S3, &server.url("suites")), (RACY, &racy), id, secret])
    })?;
    // Cases use TTLs from 2 s.
    let url = format!("{}&min_ttl=2s", server.url(end_to_end::STORAGE));
    let end_to_end = Some(selection.on_server(&url, &server.address().to_string(), &CREDENTIALS)?);
    Ok(Outcome { suites: cases, end_to_end, place })
}

fn suites(only: &[&str], environment: &[(&str, &str)]) -> Result<Cases, String> {
    Suite { build: Build::Driver("object-store"), tests: &["objects"], only, threads: 4, environment }.run()
}
