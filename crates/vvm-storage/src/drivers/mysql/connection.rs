//! [`Session`]: a login, the settings of its connection, and the check of its server.

use super::{
    config::{self, MySql},
    protocol::{Greeting, Wire},
};
use crate::{
    drivers::{
        config::{Host, exhausted, unreachable},
        connection::{Stream, tcp},
        sql::{
            config::Address,
            connection::{self, Server},
            errors::DriverError,
            rows::{Row, StatementResults},
        },
        tls::{self, Tls},
    },
    opening::OpenError,
};
use rustls::pki_types::ServerName;
use std::{collections::HashMap, future::poll_fn, io, sync::Arc, task::Poll};
use tokio_rustls::TlsConnector;
use vvm_clock::SystemClock;

/// A connection to a server.
#[derive(Debug)]
pub struct Session {
    wire: Wire,
    here: &'static str,
    fit: String,
}

impl connection::Session for Session {
    async fn is_open(&mut self) -> bool {
        poll_fn(|context| Poll::Ready(self.wire.poll_is_open(context))).await
    }

    async fn ask(&mut self, text: &str) -> Result<StatementResults, DriverError> {
        self.wire.ask(&text.replace(HERE, self.here).replace(FIT, &self.fit)).await
    }

    async fn is_crowded(&mut self) -> Result<bool, DriverError> {
        let text = "SHOW GLOBAL STATUS LIKE 'Threads_connected'; SELECT @@global.max_connections";
        let answer = self.ask(text).await?;
        let number = |statement, column| answer.row(statement).map_or(Ok(0), |row| row.number(column));
        Ok(3 * number(0, 1)? > 2 * number(1, 0)?)
    }

    async fn end(self) {
        self.wire.end().await;
    }
}

/// Stands in a statement for the server that carries it out: the name by which the history knows it.
pub(super) const HERE: &str = "{here}";

/// Stands in a statement for "this connection is ours, and the server accepts writes and keeps them".
pub(super) const FIT: &str = "{fit}";

/// A server's UUID stands in a file beside its data, and a replica has another one.
const OF_MYSQL: &str = "@@global.server_uuid";

/// MariaDB has no UUID. A replica has another number than its source, or is refused. Host and port tell copies apart.
const OF_MARIADB: &str = "CONCAT_WS('/', @@global.server_id, @@global.hostname, @@global.port)";

/// Settings of a running server can be changed, so each write compares them. `read_only` is a number on MySQL and up to
/// MariaDB 11, and a word on later ones. Compared with a word, a number makes the word a number, and a strict server
/// refuses an `UPDATE` that cuts one off (1292). A reader of Aurora is known by `innodb_read_only` alone.
const FITNESS: &str = "CAST(@@global.read_only AS CHAR) IN ('0', 'OFF') AND NOT @@global.innodb_read_only \
    AND @@global.innodb_flush_log_at_trx_commit IN (1, 3) AND (NOT @@global.log_bin OR @@global.sync_binlog = 1)";

impl Server for MySql {
    type Session = Session;

    const SOFTWARE: &str = "MariaDB or MySQL";
    const TLS_OPTIONS: (&str, &str) = ("tls=off", "tls_ca");

    fn parse(url: &str) -> Result<Self, String> {
        config::parse(url)
    }

    fn address(&self) -> &Address {
        &self.address
    }

    async fn connect(&self, host: &Host, clock: &SystemClock) -> Result<Session, OpenError> {
        let (mut wire, greeting) = self.logged_in(host, clock).await?;
        let answer = wire.ask(PREPARE).await.map_err(|error| self.of_login(host, error))?;
        let (here, fit) = check(host, &greeting, &answer)?;
        Ok(Session { wire, here, fit })
    }
}

impl MySql {
    async fn logged_in(&self, host: &Host, clock: &SystemClock) -> Result<(Wire, Greeting), OpenError> {
        let tls = self.address.tls.as_ref().map(Tls::read).transpose()?;
        let tls = tls.map(|tls| TlsConnector::from(Arc::new(tls)));
        let stream = tcp(&host.name, host.port, clock).await;
        let stream = stream.map_err(|cause| unreachable(Self::SOFTWARE, host, &cause))?;
        let failed = |error| self.of_login(host, error);
        let mut wire = Wire::new(Box::new(stream));
        let greeting = wire.greeting().await.map_err(failed)?;
        if let Some(tls) = &tls {
            if !greeting.offers_tls {
                return Err(OpenError::refused(format!(
                    "no TLS with {host}: it has none. Give it a certificate (ssl_cert, ssl_key), or write tls=off"
                )));
            }
            let name = ServerName::try_from(host.name.clone());
            let name = name.map_err(|cause| unreachable(Self::SOFTWARE, host, &cause))?;
            let (stream, sequence) = wire.request_tls().await.map_err(failed)?;
            let stream = tls.connect(name, stream).await.map_err(|cause| of_stream(host, &cause))?;
            wire = Wire::resumed(Box::new(stream) as Box<dyn Stream>, sequence);
        }
        let Address { user, database, .. } = &self.address;
        let password = self.address.password()?.unwrap_or_default();
        wire.log_in(&greeting, user, &password, database, tls.is_some()).await.map_err(failed)?;
        Ok((wire, greeting))
    }

    fn of_login(&self, host: &Host, error: DriverError) -> OpenError {
        let text = match &error {
            DriverError::Unanswered(text) | DriverError::RolledBack(text) => text.clone(),
            error => error.to_string(),
        };
        let has_code = |codes: &[&str]| codes.iter().any(|code| text.ends_with(code));
        match error {
            DriverError::Broken(cause) => of_stream(host, &cause),
            DriverError::NoTables(_) => OpenError::refused(format!(
                "there is no database {}: create it (CREATE DATABASE), then its tables (`vvm init-storage`)",
                self.address.database
            )),
            // Of all, of one user, of one account.
            _ if has_code(&["(1040)", "(1203)", "(1226)"]) => {
                exhausted(host, &text, "max_connections, or max_user_connections")
            }
            // A host or an account that may not connect, whatever the password, and a server that wants TLS.
            DriverError::RolledBack(_) | DriverError::Unanswered(_)
                if !has_code(&["(1129)", "(1130)", "(1698)", "(1862)", "(3118)", "(3159)", "(4151)"]) =>
            {
                unreachable(Self::SOFTWARE, host, &text)
            }
            _ => OpenError::refused(format!(
                "{host} refuses the connection: {text}. The password comes from password_file=PATH, VVM_STORAGE or \
                 VVM_STORAGE_PASSWORD, and TLS from tls_ca=PATH"
            )),
        }
    }
}

fn of_stream(host: &Host, cause: &io::Error) -> OpenError {
    match cause.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(error) => OpenError::refused(format!("no TLS with {host}: {} ({cause})", tls::way_out(error))),
        // A server that refuses our certificate may close the connection without a word.
        None => unreachable(MySql::SOFTWARE, host, cause),
    }
}

/// A transaction sees what was committed before each of its statements. Ids of documents have up to 1,024 bytes, and a
/// server sorts by 1,022 of them unless it is told. A server may show few rows or none by its `sql_select_limit`, which is
/// what `DEFAULT` would stand for. Of some settings only one of MariaDB and MySQL knows the name.
const PREPARE: &str = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; \
    SET SESSION autocommit = 1, completion_type = 0, innodb_lock_wait_timeout = 1, lock_wait_timeout = 1, \
        time_zone = '+00:00', sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', sql_safe_updates = 0, \
        max_sort_length = 2048, sql_select_limit = 18446744073709551615; \
    SELECT CONNECTION_ID(); \
    SHOW GLOBAL VARIABLES WHERE Variable_name IN ('version', 'version_comment', 'server_uuid', 'read_only', \
        'innodb_read_only', 'innodb_flush_log_at_trx_commit', 'log_bin', 'sync_binlog', 'binlog_format', \
        'max_allowed_packet', 'wsrep_provider', 'group_replication_group_name', \
        'group_replication_single_primary_mode')";

/// The first with `RANDOM_BYTES`, `INTO` behind `FOR UPDATE` and this isolation; older ones are not maintained.
const OLDEST_MARIADB: (u32, u32) = (10, 6);

const OLDEST_MYSQL: (u32, u32) = (8, 0);

/// A batch of documents in hexadecimal digits, with its ids.
const PACKET: u64 = 7 << 20;

pub(super) fn settings(rows: &[Row]) -> HashMap<String, String> {
    let pair = |row: &Row| Some((row.text(0).ok()?.to_owned(), row.text(1).ok()?.to_owned()));
    rows.iter().filter_map(pair).collect()
}

/// Returns what stands for [`HERE`] and [`FIT`] on this connection.
fn check(
    host: &Host,
    greeting: &Greeting,
    answer: &StatementResults,
) -> Result<(&'static str, String), OpenError> {
    let shown = settings(answer.rows(3));
    let value = |name: &str| shown.get(name).map_or("", String::as_str);
    let refused = |why: String| Err(OpenError::refused(format!("{host} {why}")));
    let version = value("version");
    let is_mariadb = version.contains("MariaDB") || value("version_comment").contains("MariaDB");
    let (oldest, name) = if is_mariadb { (OLDEST_MARIADB, "MariaDB") } else { (OLDEST_MYSQL, "MySQL") };
    if number(version) < oldest {
        return refused(format!(
            "is {name} {version}: {}.{} is the oldest version that works",
            oldest.0, oldest.1
        ));
    }
    let connection = greeting.connection.to_string();
    if answer.row(2).and_then(|row| row.text(0).ok()) != Some(&connection) {
        return refused(
            "is a pooler or proxy, behind which a transaction may meet any server: name the servers themselves, \
             all of them (mysql://user@db1,db2/database)"
                .into(),
        );
    }
    if !matches!(value("wsrep_provider"), "" | "none") {
        return refused(
            "has a wsrep_provider, as nodes of a Galera cluster do, which all accept writes: use another storage".into(),
        );
    }
    if !is_mariadb && value("server_uuid").trim_matches(['0', '-']).is_empty() {
        return refused(
            "has no server_uuid that tells it from other servers, as TiDB has none: use another storage"
                .into(),
        );
    }
    if !value("group_replication_group_name").is_empty()
        && value("group_replication_single_primary_mode") != "ON"
    {
        return refused(
            "is of a group of MySQL whose members all accept writes: switch the group to single-primary mode"
                .into(),
        );
    }
    let loses = match (value("innodb_flush_log_at_trx_commit"), value("log_bin"), value("sync_binlog")) {
        (flush, ..) if !matches!(flush, "1" | "3") => Some(("innodb_flush_log_at_trx_commit", flush)),
        (_, "ON" | "1", sync) if sync != "1" => Some(("sync_binlog", sync)),
        _ => None,
    };
    if let Some((setting, value)) = loses {
        return refused(format!(
            "has {setting} = {value}, so that a crash forgets leaders: set it to 1 (SET GLOBAL {setting} = 1, and in \
             its file)"
        ));
    }
    if matches!(value("log_bin"), "ON" | "1") && value("binlog_format") == "STATEMENT" {
        return refused("has binlog_format = STATEMENT: set it to ROW or MIXED".into());
    }
    if value("max_allowed_packet").parse::<u64>().is_ok_and(|bytes| bytes < PACKET) {
        return refused("has a max_allowed_packet below 7 MiB: set it to 16777216".into());
    }
    if !matches!(value("read_only"), "OFF" | "0") || matches!(value("innodb_read_only"), "ON" | "1") {
        return Err(OpenError::passing(format!(
            "{host} is read-only, as a replica is, and no other host of the URL accepts writes"
        )));
    }
    let fit = format!("(CONNECTION_ID() = {connection} AND {FITNESS})");
    Ok((if is_mariadb { OF_MARIADB } else { OF_MYSQL }, fit))
}

fn number(version: &str) -> (u32, u32) {
    let mut numbers = version.split(['.', '-']).map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drivers::sql::rows::StatementResult;

    #[test]
    fn no_setting_that_may_be_a_number_is_compared_with_a_word() {
        for (place, _) in FITNESS.match_indices('\'') {
            let comparison = FITNESS[..place].rsplit(" AND ").next().unwrap_or_default();
            assert!(comparison.contains("CAST(") && comparison.contains(" AS CHAR)"), "{comparison}");
        }
    }

    /// MySQL could not be had where this was written: what it shows is taken from its documentation.
    #[test]
    fn server_that_would_forget_or_has_other_writers_is_refused_with_the_reason() {
        let host = Host { name: "db".into(), port: 3306 };
        let mysql = [
            ("version", "8.4.3"),
            ("server_uuid", "a"),
            ("read_only", "OFF"),
            ("innodb_read_only", "OFF"),
            ("innodb_flush_log_at_trx_commit", "1"),
            ("log_bin", "ON"),
            ("sync_binlog", "1"),
            ("binlog_format", "ROW"),
            ("max_allowed_packet", "67108864"),
            ("group_replication_group_name", ""),
        ];
        let mariadb = [
            ("version", "11.8.3-MariaDB-log"),
            ("read_only", "OFF"),
            ("innodb_flush_log_at_trx_commit", "3"),
            ("log_bin", "OFF"),
            ("sync_binlog", "0"),
            ("wsrep_provider", "none"),
        ];
        let checked = |settings: &[(&str, &str)], changed: &[(&str, &str)], connection: u32| {
            let settings: HashMap<&str, &str> = settings.iter().chain(changed).copied().collect();
            let cell = |text: &str| Some(text.as_bytes().to_vec());
            let rows = settings.iter().map(|(name, value)| Row::plain([cell(name), cell(value)])).collect();
            let answered = |rows| StatementResult { rows, affected: 0 };
            let own = answered(vec![Row::plain([cell("7")])]);
            let answer = StatementResults(vec![answered(vec![]), answered(vec![]), own, answered(rows)]);
            check(&host, &Greeting::of(connection), &answer)
                .map_err(|error| (error.to_string(), error.is_passing()))
        };
        assert_eq!(checked(&mysql, &[], 7).unwrap().0, OF_MYSQL);
        assert_eq!(checked(&mariadb, &[], 7).unwrap().0, OF_MARIADB);
        let group = ("group_replication_group_name", "a");
        assert!(checked(&mysql, &[group, ("group_replication_single_primary_mode", "ON")], 7).is_ok());
        type Settings<'s> = &'s [(&'s str, &'s str)];
        let refused: [(Settings<'_>, Settings<'_>, &str); 14] = [
            (&mysql, &[("version", "5.7.44-log")], "8.0 is the oldest"),
            (&mariadb, &[("version", "10.5.29-MariaDB")], "10.6 is the oldest"),
            (&mysql, &[("innodb_flush_log_at_trx_commit", "2")], "innodb_flush_log_at_trx_commit = 2"),
            (&mysql, &[("sync_binlog", "0")], "sync_binlog = 0"),
            (&mariadb, &[("log_bin", "ON")], "sync_binlog = 0"),
            (&mysql, &[("binlog_format", "STATEMENT")], "binlog_format"),
            (&mysql, &[("max_allowed_packet", "7340031")], "max_allowed_packet"),
            (&mysql, &[group, ("group_replication_single_primary_mode", "OFF")], "single-primary"),
            (&mariadb, &[("wsrep_provider", "/usr/lib/libgalera_smm.so")], "Galera"),
            (&mysql, &[("wsrep_provider", "/usr/lib64/galera4/libgalera_smm.so")], "Galera"),
            (&mysql, &[("server_uuid", "00000000-0000-0000-0000-000000000000")], "TiDB"),
            (&mysql, &[("server_uuid", "")], "TiDB"),
            (&mariadb, &[("read_only", "ON")], "is read-only"),
            (&mysql, &[("innodb_read_only", "ON")], "is read-only"),
        ];
        for (settings, changed, part) in refused {
            let (error, is_passing) = checked(settings, changed, 7).unwrap_err();
            assert!(error.contains(part), "{changed:?}: {error}");
            assert_eq!(is_passing, part == "is read-only", "{error}");
        }
        assert!(checked(&mariadb, &[], 8).unwrap_err().0.contains("pooler"));
    }
}
