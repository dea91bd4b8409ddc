//! One connection to one host, and what is checked on it before it is used.

use super::{Address, OpenError, session::Session};
use crate::drivers::{
    hosts::Host,
    postgres::{
        errors::{DriverError, described},
        rows::Answer,
    },
};
use tokio_postgres::{
    Config,
    config::{SslMode, TargetSessionAttrs},
    error::SqlState,
};
use tokio_postgres_rustls::MakeRustlsConnect;
use vvm_clock::{Clock, SystemClock};

/// The part of a request's time that one host has for connecting, so that a silent host leaves time for
/// another.
const CONNECTING: u32 = 2;

/// The oldest version with `gen_random_uuid`.
const OLDEST: i64 = 130_000;

/// A host, and how to connect to it.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    pub(super) host: &'a Host,
    pub(super) address: &'a Address,
    pub(super) tls: &'a MakeRustlsConnect,
}

/// Connects to a host and checks that it keeps what it confirms. Every connection is checked: after a
/// fail-over it may lead to another server.
pub(super) async fn connect(target: Target<'_>, clock: &SystemClock) -> Result<Session, OpenError> {
    let host = target.host.to_string();
    let within = target.address.request_timeout / CONNECTING;
    let within = target.address.connect_timeout.map_or(within, |limit| limit.min(within));
    let tls = target.tls.clone();
    let configuration = configuration(target)?;
    let connecting = async {
        let connected = configuration.connect(tls).await;
        let (client, connection) = connected.map_err(|error| of_connecting(target, &error))?;
        let mut session = Session::new(client, connection);
        let answer = session.ask(CHECK).await.map_err(OpenError::of_request)?;
        session.meets(check(&host, &answer)?).await;
        Ok(session)
    };
    tokio::select! {
        biased;
        connected = connecting => connected,
        () = clock.sleep(within) => {
            let why = format!("no answer within {}", vvm_clock::Span(within));
            Err(OpenError::Unreachable { host, why })
        }
    }
}

fn configuration(target: Target<'_>) -> Result<Config, OpenError> {
    let Target { host, address, .. } = target;
    let mut configuration = Config::new();
    configuration
        .host(&host.name)
        .port(host.port)
        .user(&address.user)
        .dbname(&address.database)
        .application_name(&address.application_name)
        .channel_binding(address.channel_binding)
        // A standby is refused by the check, whatever it would answer here.
        .target_session_attrs(TargetSessionAttrs::Any)
        .ssl_mode(if address.tls.is_on() { SslMode::Require } else { SslMode::Disable });
    if let Some(password) = super::password::password(host, address)? {
        configuration.password(password);
    }
    Ok(configuration)
}

const CHECK: &str = "SELECT current_setting('server_version_num'), current_setting('server_version'), \
    pg_is_in_recovery() OR current_setting('transaction_read_only')::boolean, \
    current_setting('fsync'), current_setting('synchronous_commit'), pg_backend_pid()";

/// Returns the process that answers.
fn check(host: &str, answer: &Answer) -> Result<i64, OpenError> {
    let unreadable = |damaged| OpenError::of_request(DriverError::Damaged(damaged));
    let row = answer.row(0).ok_or_else(|| OpenError::Request(format!("{host} does not describe itself")))?;
    let host = host.to_owned();
    if row.number(0).map_err(unreadable)? < OLDEST {
        return Err(OpenError::TooOld { host, version: row.text(1).map_err(unreadable)?.to_owned() });
    }
    if row.is_true(2).map_err(unreadable)? {
        return Err(OpenError::ReadOnly { host });
    }
    for (column, setting, forgetful) in
        [(3, "fsync", &["off"][..]), (4, "synchronous_commit", &["off", "local"][..])]
    {
        let value = row.text(column).map_err(unreadable)?;
        if forgetful.contains(&value) {
            return Err(OpenError::Forgetful { host, setting, value: value.to_owned() });
        }
    }
    row.number(5).map_err(unreadable)
}

/// Nothing was sent but a login.
fn of_connecting(target: Target<'_>, error: &tokio_postgres::Error) -> OpenError {
    let (host, why) = (target.host.to_string(), described(error));
    if let Some(way_out) = super::tls::way_out(error) {
        return OpenError::Tls { host, way_out, why };
    }
    match error.code() {
        Some(code) if *code == SqlState::INVALID_CATALOG_NAME => {
            OpenError::NoDatabase { database: target.address.database.clone() }
        }
        Some(code) if code.code().starts_with("28") => OpenError::Login { host, why },
        // The library's words for a server that wants one.
        None if why.contains("password missing") => OpenError::Login { host, why },
        // In TLS 1.3 a server refuses a certificate after the handshake, and may close the connection before
        // its alert is read.
        _ if target.address.tls.shows_certificate() => {
            OpenError::Unreachable { host, why: why + "; its log tells if it refuses our certificate" }
        }
        _ => OpenError::Unreachable { host, why },
    }
}
