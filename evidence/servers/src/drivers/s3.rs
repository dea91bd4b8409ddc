//! The driver of object stores: its suites on versitygw, MinIO and Azurite, and servers that it must refuse.

use super::Outcome;
use crate::{
    cases::{Cases, Suite},
    end_to_end::{self, Selection},
};
use servers::{
    objects::{CREDENTIALS, ObjectServer, Product, StartError},
    s3mock::S3Mock,
    target,
};
use std::env;

/// A prefix of a bucket that exists. Credentials come from the environment.
const S3: &str = "VVM_TEST_S3";

/// Servers that lose writes.
const RACY: &str = "VVM_TEST_S3_RACY";

/// Runs the suites on the bucket of `VVM_TEST_S3`, or all cases on versitygw. `all_servers` adds S3Mock,
/// MinIO and Azurite.
pub(super) fn run(selection: Selection<'_>, all_servers: bool) -> Result<Outcome, String> {
    if let Ok(url) = env::var(S3) {
        let cases = suites(&["suites", "handles"], &[(S3, &url)])?;
        let place = format!("{url}; not run: servers that lose writes, on servers of our own alone");
        return Ok(Outcome::of_suites(cases, place));
    }
    let server = ObjectServer::start(Product::Versitygw).map_err(way_out)?;
    let mut places = vec![Product::Versitygw.to_string()];
    let cases = selection.or_all(|| {
        let torn = ObjectServer::start(Product::VersitygwBeside).map_err(way_out)?;
        let mut racy = torn.url("racy");
        let mock =
            all_servers.then(|| S3Mock::start(&target())).transpose().map_err(|error| error.to_string())?;
        match &mock {
            Some(mock) => racy = format!("{racy} {}", mock.url("racy")),
            None => places.push(
                "not run: MinIO, Azurite, and S3Mock, which must be refused (--all-servers)".to_owned(),
            ),
        }
        let mut cases = suites(&[], &ours(&[(S3, &server.url("suites")), (RACY, &racy)]))?;
        for other in [Product::MinIo, Product::Azurite].into_iter().filter(|_| all_servers) {
            let server = ObjectServer::start(other).map_err(way_out)?;
            cases = cases + suites(&["suites", "handles"], &ours(&[(S3, &server.url("suites"))]))?;
            places.push(other.to_string());
        }
        Ok::<_, String>(cases)
    })?;
    // Cases use TTLs from 2 s.
    let url = format!("{}&min_ttl=2s", server.url(end_to_end::STORAGE));
    let end_to_end = Some(selection.on_server(&url, &server.address().to_string(), &CREDENTIALS)?);
    Ok(Outcome { suites: cases, end_to_end, place: places.join("; ") })
}

fn way_out(error: StartError) -> String {
    format!("{error}\nOr point {S3}=s3://bucket/prefix?region=… at a bucket.")
}

/// With the credentials of servers of our own.
fn ours<'a>(places: &[(&'static str, &'a str)]) -> Vec<(&'static str, &'a str)> {
    [places, &CREDENTIALS].concat()
}

fn suites(only: &[&str], environment: &[(&str, &str)]) -> Result<Cases, String> {
    Suite { tests: &["objects"], only, threads: 4, environment }.run()
}
