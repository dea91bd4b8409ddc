use super::{
    address::{self, Postgres},
    session::Session,
};
use crate::{
    drivers::{
        address::{Host, exhausted, unreachable},
        errors::described,
        sql::{
            address::Address,
            answer::StatementResults,
            connections::{Server, Session as _},
            errors::DriverError,
        },
        tls::Tls,
    },
    opening::OpenError,
};
use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs};
use std::sync::Arc;
use tokio_postgres::{
    Config,
    config::{SslMode, TargetSessionAttrs},
    error::SqlState,
};
use tokio_postgres_rustls::MakeRustlsConnect;

impl Server for Postgres {
    type Session = Session;

    const SOFTWARE: &str = "PostgreSQL";
    const TLS_OPTIONS: (&str, &str) = ("sslmode=disable", "sslrootcert");

    fn parse(url: &str) -> Result<Self, String> {
        address::parse(url)
    }

    fn address(&self) -> &Address {
        &self.address
    }

    /// Password and certificates are read anew, so that they can be replaced.
    async fn connect(&self, host: &Host) -> Result<Session, OpenError> {
        let tls = match &self.own_tls {
            Some(Some(tls)) => tls.clone(),
            Some(None) => off()?,
            None => self.address.tls.as_ref().map_or_else(off, Tls::read)?,
        };
        let connected = configuration(host, self)?.connect(MakeRustlsConnect::new(tls)).await;
        let (client, connection) = connected.map_err(|error| of_connecting(host, &self.address, &error))?;
        let mut session = Session::new(client, connection);
        let answer = session.ask(CHECK).await.map_err(DriverError::of_opening)?;
        let (process, has_times) = check(host, &answer)?;
        session.meets(process, has_times).await;
        Ok(session)
    }
}

/// The oldest version with `gen_random_uuid`.
const OLDEST: u64 = 130_000;

/// A connection without TLS has a type that names it all the same.
fn off() -> Result<ClientConfig, OpenError> {
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|cause| OpenError::refused(format!("the client can't be set up: {cause}")))?;
    Ok(builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth())
}

fn configuration(host: &Host, server: &Postgres) -> Result<Config, OpenError> {
    let address = &server.address;
    let mut configuration = server.common.clone();
    configuration
        .host(&host.name)
        .port(host.port)
        .user(&address.user)
        .dbname(&address.database)
        // A standby is refused by the check, whatever it would answer here.
        .target_session_attrs(TargetSessionAttrs::Any)
        .ssl_mode(if address.tls.is_some() { SslMode::Require } else { SslMode::Disable });
    if server.own_tls.is_none()
        && let Some(password) = address.password()?
    {
        configuration.password(password);
    }
    Ok(configuration)
}

const CHECK: &str = "SELECT current_setting('server_version_num'), current_setting('server_version'), \
    pg_is_in_recovery() OR current_setting('transaction_read_only')::boolean, \
    current_setting('fsync'), current_setting('synchronous_commit'), pg_backend_pid(), \
    EXISTS (SELECT FROM pg_namespace n JOIN pg_class c ON relnamespace = n.oid JOIN pg_attribute ON attrelid = c.oid \
        WHERE nspname = 'sysvvm' AND relname = 'leader' AND attname = 'written_at')";

/// Returns the process that answers, and whether its records have the times of their writes.
fn check(host: &Host, answer: &StatementResults) -> Result<(u64, bool), OpenError> {
    let unreadable = |damaged| DriverError::Damaged(damaged).of_opening();
    let row = answer.row(0).ok_or_else(|| OpenError::passing(format!("{host} does not describe itself")))?;
    if row.number(0).map_err(unreadable)? < OLDEST {
        let version = row.text(1).map_err(unreadable)?;
        return Err(OpenError::refused(format!(
            "{host} is PostgreSQL {version}: 13 is the oldest version that works"
        )));
    }
    if row.is_true(2).map_err(unreadable)? {
        return Err(OpenError::passing(format!(
            "{host} is a standby or read-only, and no other host of the URL accepts writes"
        )));
    }
    for (column, setting, forgetful) in
        [(3, "fsync", &["off"][..]), (4, "synchronous_commit", &["off", "local"][..])]
    {
        let value = row.text(column).map_err(unreadable)?;
        if forgetful.contains(&value) {
            return Err(OpenError::refused(format!(
                "{host} has {setting} = {value}, so that a crash forgets leaders: set it to on, and reload \
                 or restart"
            )));
        }
    }
    Ok((row.number(5).map_err(unreadable)?, row.is_true(6).map_err(unreadable)?))
}

/// Nothing was sent but a login.
fn of_connecting(host: &Host, address: &Address, error: &tokio_postgres::Error) -> OpenError {
    let why = described(error);
    if let Some(way_out) = address::way_out(error) {
        return OpenError::refused(format!("no TLS with {host}: {way_out} ({why})"));
    }
    let refused_login = || {
        OpenError::refused(format!(
            "{host} refuses the connection: {why}. The password comes from password_file=PATH, VVM_STORAGE or \
             VVM_STORAGE_PASSWORD"
        ))
    };
    match error.code() {
        Some(code) if *code == SqlState::INVALID_CATALOG_NAME => OpenError::refused(format!(
            "there is no database {}: create it (CREATE DATABASE), then its schema (`vvm init-storage`)",
            address.database
        )),
        Some(code) if *code == SqlState::TOO_MANY_CONNECTIONS => {
            exhausted(host, &why, "max_connections, or the CONNECTION LIMIT of the role or database")
        }
        Some(code) if code.code().starts_with("28") => refused_login(),
        // The library's words for a server that wants one.
        None if why.contains("password missing") => refused_login(),
        // In TLS 1.3 a server refuses a certificate after the handshake, and may close the connection before
        // its alert is read.
        _ if address.tls.as_ref().is_some_and(|tls| tls.own.is_some()) => {
            unreachable(Postgres::SOFTWARE, host, &(why + "; its log tells if it refuses our certificate"))
        }
        _ => unreachable(Postgres::SOFTWARE, host, &why),
    }
}
