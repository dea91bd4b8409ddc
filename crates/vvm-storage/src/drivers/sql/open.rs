//! Opens a database: whether what this project creates is there and ours, and its creation.

use super::{
    answer::Answer,
    connections::{Connections, Server},
    errors::{Damaged, DriverError},
    history::{History, Shown},
    rows::{Statements, raise_max_ttl},
};
use crate::{opening::OpenError, sysvvm::Description};
use ielections::Ttl;

/// The comment by which tables are known. A change that an older version would misread raises the number.
pub(crate) const FORMAT: &str = "vvm elections, format 1";

/// Its beginning, without the number.
const PROGRAM: &str = "vvm elections, format ";

/// What a database has to have, and what it reports about itself.
pub(crate) trait Opening: Server + Statements {
    /// What is created, and what creates it again.
    const CREATED: (&str, &str);

    /// Statements by which a server describes itself.
    const DESCRIBE: &str;

    /// Whether all that [`creation`](Statements::creation) creates is there. Fails if it is not ours.
    fn is_there(
        connections: &Connections<Self, Self::Session>,
    ) -> impl Future<Output = Result<bool, OpenError>> + Send;

    /// What [`DESCRIBE`](Self::DESCRIBE) shows.
    fn description(answer: &Answer) -> Result<Description, Damaged>;
}

/// Fails unless `comment`, which `what` has, is ours.
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

/// Connects, checks what is there, and returns the history that the server has now.
pub(super) async fn open<S: Opening>(server: S) -> Result<(Connections<S, S::Session>, Shown), OpenError> {
    if let Some(warning) = server.unencrypted() {
        tracing::warn!(storage = %server.address(), "{warning}");
    }
    let connections = Connections::new(server)?;
    if !S::is_there(&connections).await? {
        let (what, creates) = S::CREATED;
        return Err(OpenError::missing(format!(
            "database {} has no {what}: `vvm init-storage --storage URL` {creates}",
            connections.address().database
        )));
    }
    let answer = connections.ask(&S::history()).await.map_err(DriverError::of_opening)?;
    let shown = History::shown(answer.row(0)).map_err(|damaged| DriverError::from(damaged).of_opening())?;
    Ok((connections, shown))
}

pub(super) async fn create<S: Opening>(connections: &Connections<S, S::Session>) -> Result<(), OpenError> {
    let max_ttl = connections.address().max_ttl;
    if !S::is_there(connections).await? {
        let text = S::creation(max_ttl.unwrap_or(Ttl::DEFAULT)).map_err(DriverError::of_opening)?;
        let created = connections.ask(&text).await;
        // Another creator may have been faster: what stands now decides.
        if let (Err(error), false) = (created, S::is_there(connections).await?) {
            return Err(error.of_opening());
        }
    }
    if let Some(max_ttl) = max_ttl {
        connections.ask(&raise_max_ttl::<S>(max_ttl)).await.map_err(DriverError::of_opening)?;
    }
    Ok(())
}

/// What a server reports about itself: version, durability, replicas.
pub(super) async fn describe<S: Opening>(
    connections: &Connections<S, S::Session>,
) -> Result<Description, DriverError> {
    let answer = connections.ask(S::DESCRIBE).await?;
    let description = S::description(&answer)?;
    Ok(connections.server().unencrypted().into_iter().fold(description, Description::concerned))
}
