//! What opening checks, and `vvm init-storage` creates.

use super::{
    config::Address,
    connection::{ConnectionPool, Server},
    errors::{DecodeError, DriverError},
    history::{Lineage, ServerHistory},
    rows::StatementResults,
    statements::{Statements, raise_max_ttl},
};
use crate::{opening::OpenError, sysvvm::Description};
use ielections::Ttl;

/// The comment by which tables are known. A change that an older version would misread raises the number.
pub(crate) const FORMAT: &str = "vvm elections, format 1";

const PROGRAM: &str = "vvm elections, format ";

pub(crate) trait Opening: Server + Statements {
    const CREATED: (&str, &str);

    const DESCRIBE: &str;

    /// Whether all that [`creation`](Statements::creation) creates is there. Fails if it is not ours.
    fn is_there(
        connections: &ConnectionPool<Self, Self::Session>,
    ) -> impl Future<Output = Result<bool, OpenError>> + Send;

    /// The statements by which an administrator gives the right to create, and those of candidates.
    fn grants(address: &Address) -> [String; 2];

    fn description(answer: &StatementResults) -> Result<Description, DecodeError>;
}

pub(crate) fn is_ours(what: &str, comment: &str) -> Result<(), OpenError> {
    match comment {
        FORMAT => Ok(()),
        comment if comment.starts_with(PROGRAM) => Err(OpenError::refused(format!(
            "{what} has the comment `{comment}`: a later version of vvm made it. Use that version"
        ))),
        _ => Err(OpenError::refused(format!(
            "{what} of this database belongs to another program: use another database"
        ))),
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::drivers) enum Purpose {
    Lead,
    Look,
}

pub(super) async fn open<S: Opening>(
    server: S,
    purpose: Purpose,
) -> Result<(ConnectionPool<S, S::Session>, ServerHistory), OpenError> {
    if let Some(warning) = server.unencrypted() {
        tracing::warn!(storage = %server.address(), "{warning}");
    }
    let connections = ConnectionPool::new(server)?;
    if !S::is_there(&connections).await? {
        let (what, creates) = S::CREATED;
        return Err(OpenError::missing(format!(
            "database {} has no {what}: `vvm init-storage --storage URL` {creates}",
            connections.address().database
        )));
    }
    let text = match purpose {
        Purpose::Lead => format!("{}; {}", writes_of_nothing::<S>(), S::history()),
        Purpose::Look => S::history(),
    };
    let answer = connections.ask(&text).await.map_err(|error| lacks(&connections, error, USE))?;
    let shown = Lineage::shown(answer.row_from_end(0));
    Ok((connections, shown.map_err(|damaged| DriverError::from(damaged).into_open_error())?))
}

const CREATE: usize = 0;

const USE: usize = 1;

fn lacks<S: Opening>(
    connections: &ConnectionPool<S, S::Session>,
    error: DriverError,
    place: usize,
) -> OpenError {
    match error {
        DriverError::Denied(why) => OpenError::refused(format!(
            "this login lacks a right: {why}. As an administrator of the database: {}",
            S::grants(connections.address())[place]
        )),
        error => error.into_open_error(),
    }
}

pub(super) async fn create<S: Opening>(connections: &ConnectionPool<S, S::Session>) -> Result<(), OpenError> {
    let max_ttl = connections.address().max_ttl;
    if !S::is_there(connections).await? {
        let text = S::creation(max_ttl.unwrap_or(Ttl::DEFAULT)).map_err(DriverError::into_open_error)?;
        let created = connections.ask(&text).await;
        // Another creator may have been faster: what stands now decides.
        if let (Err(error), false) = (created, S::is_there(connections).await?) {
            return Err(lacks(connections, error, CREATE));
        }
    }
    connections.ask(&writes_of_nothing::<S>()).await.map_err(|error| lacks(connections, error, USE))?;
    if let Some(max_ttl) = max_ttl {
        let raised = connections.ask(&raise_max_ttl::<S>(max_ttl)).await;
        raised.map_err(|error| lacks(connections, error, USE))?;
    }
    Ok(())
}

/// Statements that need each right of candidates, and find no row. Servers check rights before they look for rows.
fn writes_of_nothing<S: Statements>() -> String {
    let prefix = S::PREFIX;
    let rows = ["leader", "setting", "document"].map(|table| {
        format!(
            "INSERT INTO {prefix}{table} SELECT * FROM {prefix}{table} WHERE 1 = 0; \
             UPDATE {prefix}{table} SET pk = pk WHERE 1 = 0; "
        )
    });
    format!(
        "{}DELETE FROM {prefix}document WHERE 1 = 0; UPDATE {prefix}history SET adopted = adopted WHERE 1 = 0",
        rows.concat()
    )
}

pub(super) async fn describe<S: Opening>(
    connections: &ConnectionPool<S, S::Session>,
) -> Result<Description, DriverError> {
    let answer = connections.ask(S::DESCRIBE).await?;
    let description = S::description(&answer)?;
    Ok(connections.server().unencrypted().into_iter().fold(description, Description::concerned))
}
