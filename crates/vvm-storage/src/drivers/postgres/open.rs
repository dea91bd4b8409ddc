//! Opens a database: whether its schema is there and ours, its creation, and everything that opening refuses.
//! Also what a server reports about itself: version, durability, standbys.

use super::{
    address::Address,
    connections::Connections,
    errors::{Answer, DriverError},
    history::{History, Shown, history},
    rows::{FORMAT, creation, raise_max_ttl},
};
use crate::{opening::OpenError, sysvvm::Description};
use ielections::Ttl;

/// Connects, checks the schema, and returns the history that the server has now.
pub(super) async fn open(address: Address) -> Result<(Connections, Shown), OpenError> {
    if let Some(warning) = address.unencrypted() {
        tracing::warn!(storage = %address, "{warning}");
    }
    let connections = Connections::new(address)?;
    check(&connections).await?;
    let answer = connections.ask(&history()).await.map_err(DriverError::of_opening)?;
    let row = answer.row(0).ok_or_else(other_program)?;
    let shown = History::shown(Some(row)).map_err(|damaged| DriverError::from(damaged).of_opening())?;
    Ok((connections, shown))
}

/// Creates what is missing. May be run again, and by many at once.
///
/// # Errors
/// See [`OpenError`]: also if the schema belongs to another program.
pub(crate) async fn init(url: &str) -> Result<(), OpenError> {
    let connections = Connections::new(Address::parse(url)?)?;
    let created = create(&connections).await;
    connections.close().await;
    created
}

/// Our schema's comment, without the number of its format.
const PROGRAM: &str = "vvm elections, format ";

/// Creators take turns (a number of our own): two that create a schema at once would fail each other.
const ONE_CREATOR: &str = "SELECT pg_advisory_xact_lock(4851427634270)";

enum Found {
    Nothing,
    Ours,
}

/// Fails unless the schema is there, and ours, in the format that this driver writes.
pub(super) async fn check(connections: &Connections) -> Result<(), OpenError> {
    match look(connections).await? {
        Found::Ours => Ok(()),
        Found::Nothing => Err(OpenError::missing(format!(
            "database {} has no schema sysvvm: `vvm init-storage --storage URL` creates it",
            connections.address().database
        ))),
    }
}

/// Creates the schema if it is missing, and raises the bound of TTLs if the URL has a larger one.
pub(super) async fn create(connections: &Connections) -> Result<(), OpenError> {
    let max_ttl = connections.address().max_ttl;
    if let Found::Nothing = look(connections).await? {
        let text = format!("{ONE_CREATOR}; {}", creation(max_ttl.unwrap_or(Ttl::DEFAULT)));
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

async fn look(connections: &Connections) -> Result<Found, OpenError> {
    let text = "SELECT obj_description(oid, 'pg_namespace') FROM pg_namespace WHERE nspname = 'sysvvm'";
    let answer = connections.ask(text).await.map_err(DriverError::of_opening)?;
    let Some(row) = answer.row(0) else { return Ok(Found::Nothing) };
    match row.text(0) {
        Ok(FORMAT) => Ok(Found::Ours),
        Ok(comment) if comment.starts_with(PROGRAM) => Err(OpenError::refused(format!(
            "schema sysvvm has the comment `{comment}`: a later version of vvm made it. Use that version"
        ))),
        _ => Err(other_program()),
    }
}

fn other_program() -> OpenError {
    OpenError::refused("schema sysvvm of this database belongs to another program: use another database")
}

/// How many standbys there are is visible to every login; how far they are is not.
const DESCRIBE: &str = "SELECT current_setting('server_version'); \
    SELECT name, setting FROM pg_settings \
        WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit', 'synchronous_standby_names') \
        ORDER BY name; \
    SELECT count(*), c.system_identifier FROM pg_control_system() c, pg_stat_replication GROUP BY 2; \
    SELECT h.timeline, h.max_ttl_nanos / 1000000 FROM sysvvm.history h";

pub(super) async fn describe(connections: &Connections) -> Result<Description, DriverError> {
    let answer = connections.ask(DESCRIBE).await?;
    let description = of_answer(&answer)?;
    Ok(connections.address().unencrypted().into_iter().fold(description, Description::concerned))
}

fn of_answer(answer: &Answer) -> Result<Description, DriverError> {
    let version = answer.row(0).map_or(Ok("of unknown version"), |row| row.text(0))?;
    let mut description = Description::of(format!("PostgreSQL {version}"));
    let mut has_synchronous_standbys = false;
    for row in answer.rows(1) {
        let (name, value) = (row.text(0)?, row.text(1)?);
        match name {
            "fsync" => description = description.with("fsync", value),
            "full_page_writes" => description = description.with("full_page_writes", value),
            "synchronous_commit" => description = description.with("synchronous_commit", value),
            _ => {
                has_synchronous_standbys = !value.is_empty();
                let value = if value.is_empty() { "none" } else { value };
                description = description.with("synchronous standbys", value);
            }
        }
    }
    let standbys = answer.row(2).map_or(Ok(0), |row| row.number(0))?;
    description = description.with("standbys", standbys);
    if let Some(row) = answer.row(3) {
        description =
            description.with("timeline", row.text(0)?).with("largest TTL", format!("{} ms", row.text(1)?));
    }
    if standbys > 0 && !has_synchronous_standbys {
        description = description.concerned(
            "the standbys are asynchronous: a fail-over may forget the last writes, and while the old \
             primary still runs it may have a leader of its own. Set synchronous_standby_names, or make sure \
             that the old primary is stopped before a standby is promoted",
        );
    }
    Ok(description)
}
