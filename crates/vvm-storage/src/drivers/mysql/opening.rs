//! The tables, which are checked at each opening, and created by `vvm init-storage`.

use super::{
    config::MySql,
    connection::{Session, settings},
    statements::TABLES,
};
use crate::{
    drivers::sql::{
        config::Address,
        connection::ConnectionPool,
        errors::{DecodeError, DriverError},
        opening::{Opening, is_ours},
        rows::StatementResults,
    },
    opening::OpenError,
    sysvvm::Description,
};

impl Opening for MySql {
    const CREATED: (&str, &str) = ("tables sysvvm_…", "creates them");

    const DESCRIBE: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('version', 'innodb_flush_log_at_trx_commit', \
            'innodb_doublewrite', 'log_bin', 'sync_binlog'); \
        SELECT COUNT(*) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'; \
        SELECT generation, max_ttl_nanos DIV 1000000 FROM sysvvm_history; \
        SHOW GLOBAL STATUS LIKE 'Rpl_semi_sync_%_status'; \
        SHOW GRANTS";

    async fn is_there(connections: &ConnectionPool<Self, Session>) -> Result<bool, OpenError> {
        let names: Vec<String> = TABLES.iter().map(|(name, _)| format!("'{name}'")).collect();
        let text = format!(
            "SELECT table_name, engine, table_comment FROM information_schema.tables \
             WHERE table_schema = DATABASE() AND table_name IN ({})",
            names.join(", ")
        );
        let answer = connections.ask(&text).await.map_err(DriverError::into_open_error)?;
        let unreadable = |damaged| DriverError::Damaged(damaged).into_open_error();
        for row in answer.rows(0) {
            let (name, comment) = (row.text(0).map_err(unreadable)?, row.text(2).map_err(unreadable)?);
            let engine = row.text(1).unwrap_or("none");
            is_ours(&format!("table {name}"), comment)?;
            // Without transactions, the comparison and the write would not be one step.
            if engine != "InnoDB" {
                return Err(OpenError::refused(format!(
                    "table {name} has the engine {engine}, which has no transactions: ALTER TABLE {name} ENGINE = InnoDB"
                )));
            }
        }
        if answer.rows(0).len() < TABLES.len() {
            return Ok(false);
        }
        let answer = connections
            .ask("SELECT only_row FROM sysvvm_history")
            .await
            .map_err(DriverError::into_open_error)?;
        Ok(!answer.rows(0).is_empty())
    }

    /// An account has a host, which `CURRENT_USER()` shows.
    fn grants(address: &Address) -> [String; 2] {
        let (user, database) = (address.user.replace('\'', "''"), address.database.replace('`', "``"));
        ["CREATE, CREATE VIEW, DROP, SELECT, INSERT, UPDATE, DELETE", "SELECT, INSERT, UPDATE, DELETE"]
            .map(|rights| format!("GRANT {rights} ON `{database}`.* TO '{user}'@'HOST'"))
    }

    fn description(answer: &StatementResults) -> Result<Description, DecodeError> {
        let shown = settings(answer.rows(0));
        let value = |name: &str| shown.get(name).map_or("unknown", String::as_str);
        let version = value("version");
        let name = if version.contains("MariaDB") { "MariaDB" } else { "MySQL" };
        // Of the two sides and their two names, that of a primary. It is OFF once no replica answered in time.
        let is_synchronous = settings(answer.rows(3)).iter().any(|(name, status)| {
            ["Rpl_semi_sync_master_status", "Rpl_semi_sync_source_status"].contains(&&**name)
                && status == "ON"
        });
        let replicas = answer.row(1).map_or(Ok(0), |row| row.number(0))?;
        let sees_all = replicas > 0 || answer.rows(4).iter().any(|row| row.text(0).is_ok_and(grants_process));
        let counted = replicas.to_string();
        let mut description = Description::new(format!("{name} {version}"))
            .with("innodb_flush_log_at_trx_commit", value("innodb_flush_log_at_trx_commit"))
            .with("innodb_doublewrite", value("innodb_doublewrite"))
            .with("log_bin", value("log_bin"))
            .with("sync_binlog", value("sync_binlog"))
            .with("replicas", if sees_all { &counted } else { "unknown, GRANT PROCESS ON *.* shows them" });
        if let Some(row) = answer.row(2) {
            description = description
                .with("generation", row.text(0)?)
                .with("largest TTL", format!("{} ms", row.text(1)?));
        }
        if replicas > 0 && !is_synchronous {
            description = description.concerned(
                "the replicas are asynchronous: a fail-over may forget the last writes, and while the old primary still \
                 accepts writes it may have a leader of its own. Make sure that it is stopped or read-only before a \
                 replica accepts writes",
            );
        }
        if value("innodb_doublewrite") == "OFF" {
            description = description.concerned(
                "innodb_doublewrite = OFF: a power cut may leave half a page, unless the file system writes whole pages",
            );
        }
        Ok(description)
    }
}

fn grants_process(grant: &str) -> bool {
    let rights = grant.split_once(" ON *.* TO ").map_or("", |(rights, _)| rights);
    ["PROCESS", "ALL PRIVILEGES"].iter().any(|right| rights.contains(right))
}
