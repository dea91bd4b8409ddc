//! Opens a database: whether its tables are there and ours, their creation, and what opening refuses. Also what a server
//! reports about itself: version, durability, replicas.

use super::{
    address::Address,
    connections::{Connections, settings},
    errors::{Answer, Damaged, DriverError},
    rows::{FORMAT, History, Shown, TABLES, creation, history, raise_max_ttl},
};
use crate::{opening::OpenError, sysvvm::Description};
use ielections::Ttl;

/// Connects, checks the tables, and returns the history that the server has now.
pub(super) async fn open(address: Address) -> Result<(Connections, Shown), OpenError> {
    if let Some(warning) = address.unencrypted() {
        tracing::warn!(storage = %address, "{warning}");
    }
    let connections = Connections::new(address)?;
    if let Found::Nothing = look(&connections).await? {
        return Err(OpenError::missing(format!(
            "database {} has no tables sysvvm_…: `vvm init-storage --storage URL` creates them",
            connections.address().database
        )));
    }
    let answer = connections.ask(&history()).await.map_err(DriverError::of_opening)?;
    let shown = History::shown(answer.row(0)).map_err(|damaged| DriverError::from(damaged).of_opening())?;
    Ok((connections, shown))
}

/// Creates what is missing. May be run again, and by many at once.
///
/// # Errors
/// See [`OpenError`]: also if tables with these names belong to another program.
pub(crate) async fn init(url: &str) -> Result<(), OpenError> {
    let connections = Connections::new(Address::parse(url)?)?;
    let created = create(&connections).await;
    connections.close().await;
    created
}

/// The beginning of our tables' comment, without the number of the format.
const PROGRAM: &str = "vvm elections, format ";

enum Found {
    /// Or not all of it.
    Nothing,
    Ours,
}

/// Creates the tables that are missing, and raises the bound of TTLs if the URL has a larger one.
async fn create(connections: &Connections) -> Result<(), OpenError> {
    let max_ttl = connections.address().max_ttl;
    if let Found::Nothing = look(connections).await? {
        let witness = random().map_err(DriverError::of_opening)?;
        let text = creation(max_ttl.unwrap_or(Ttl::DEFAULT), &witness);
        let created = connections.ask(&text).await;
        // Another creator may have been faster: what stands now decides.
        if let (Err(error), Found::Nothing) = (created, look(connections).await?) {
            return Err(error.of_opening());
        }
    }
    if let Some(max_ttl) = max_ttl {
        connections.ask(&raise_max_ttl(max_ttl)).await.map_err(DriverError::of_opening)?;
    }
    Ok(())
}

/// Without transactions, what is compared and what is written would not be one step.
async fn look(connections: &Connections) -> Result<Found, OpenError> {
    let names: Vec<String> = TABLES.iter().map(|(name, _)| format!("'{name}'")).collect();
    let text = format!(
        "SELECT table_name, engine, table_comment FROM information_schema.tables \
         WHERE table_schema = DATABASE() AND table_name IN ({})",
        names.join(", ")
    );
    let answer = connections.ask(&text).await.map_err(DriverError::of_opening)?;
    let unreadable = |damaged| DriverError::Damaged(damaged).of_opening();
    for row in answer.rows(0) {
        let (name, comment) = (row.text(0).map_err(unreadable)?, row.text(2).map_err(unreadable)?);
        let engine = row.text(1).unwrap_or("none");
        match comment {
            FORMAT if engine == "InnoDB" => {}
            FORMAT => {
                return Err(OpenError::refused(format!(
                    "table {name} has the engine {engine}, which has no transactions: ALTER TABLE {name} \
                     ENGINE = InnoDB"
                )));
            }
            comment if comment.starts_with(PROGRAM) => {
                return Err(OpenError::refused(format!(
                    "table {name} has the comment `{comment}`: a later version of vvm made it. Use that version"
                )));
            }
            _ => {
                return Err(OpenError::refused(format!(
                    "table {name} of this database belongs to another program: use another database"
                )));
            }
        }
    }
    if answer.rows(0).len() < TABLES.len() {
        return Ok(Found::Nothing);
    }
    let answer =
        connections.ask("SELECT only_row FROM sysvvm_history").await.map_err(DriverError::of_opening)?;
    Ok(if answer.rows(0).is_empty() { Found::Nothing } else { Found::Ours })
}

/// 16 random bytes.
pub(super) fn random() -> Result<[u8; 16], DriverError> {
    let mut bytes = [0; 16];
    let filled = rustls::crypto::aws_lc_rs::default_provider().secure_random.fill(&mut bytes);
    filled.map_err(|_| DriverError::RolledBack("the system has no random numbers".into()))?;
    Ok(bytes)
}

/// Semi-synchronous replication has other names in MySQL 8.0.26 and later.
const DESCRIBE: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('version', 'innodb_flush_log_at_trx_commit', \
        'innodb_doublewrite', 'log_bin', 'sync_binlog', 'rpl_semi_sync_master_enabled', \
        'rpl_semi_sync_source_enabled'); \
    SELECT COUNT(*) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'; \
    SELECT generation, max_ttl_nanos DIV 1000000 FROM sysvvm_history";

pub(super) async fn describe(connections: &Connections) -> Result<Description, DriverError> {
    let answer = connections.ask(DESCRIBE).await?;
    let description = of_answer(&answer)?;
    Ok(connections.address().unencrypted().into_iter().fold(description, Description::concerned))
}

fn of_answer(answer: &Answer) -> Result<Description, Damaged> {
    let shown = settings(answer.rows(0));
    let value = |name: &str| shown.get(name).map_or("unknown", String::as_str);
    let version = value("version");
    let name = if version.contains("MariaDB") { "MariaDB" } else { "MySQL" };
    let is_synchronous =
        ["rpl_semi_sync_master_enabled", "rpl_semi_sync_source_enabled"].map(value).contains(&"ON");
    let replicas = answer.row(1).map_or(Ok(0), |row| row.number(0))?;
    let mut description = Description::of(format!("{name} {version}"))
        .with("innodb_flush_log_at_trx_commit", value("innodb_flush_log_at_trx_commit"))
        .with("innodb_doublewrite", value("innodb_doublewrite"))
        .with("log_bin", value("log_bin"))
        .with("sync_binlog", value("sync_binlog"))
        .with("replicas", replicas);
    if let Some(row) = answer.row(2) {
        description =
            description.with("generation", row.text(0)?).with("largest TTL", format!("{} ms", row.text(1)?));
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
