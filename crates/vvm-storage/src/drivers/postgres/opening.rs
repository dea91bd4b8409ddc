//! The schema, which is checked at each opening, and created by `vvm init-storage`.

use super::{config::Postgres, connection::Session};
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

impl Opening for Postgres {
    const CREATED: (&str, &str) = ("schema sysvvm", "creates it");

    /// How many standbys there are is visible to every login; how far they are is not.
    const DESCRIBE: &str = "SELECT current_setting('server_version'); \
        SELECT name, setting FROM pg_settings \
            WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit', 'synchronous_standby_names') \
            ORDER BY name; \
        SELECT count(*), c.system_identifier FROM pg_control_system() c, pg_stat_replication GROUP BY 2; \
        SELECT h.timeline, h.max_ttl_nanos / 1000000 FROM sysvvm.history h";

    async fn is_there(connections: &ConnectionPool<Self, Session>) -> Result<bool, OpenError> {
        let text = "SELECT obj_description(oid, 'pg_namespace') FROM pg_namespace WHERE nspname = 'sysvvm'";
        let answer = connections.ask(text).await.map_err(DriverError::into_open_error)?;
        let Some(row) = answer.row(0) else { return Ok(false) };
        is_ours("schema sysvvm", row.text(0).unwrap_or_default())?;
        Ok(true)
    }

    fn grants(address: &Address) -> [String; 2] {
        let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
        let (user, database) = (quoted(&address.user), quoted(&address.database));
        [
            format!("GRANT CREATE ON DATABASE {database} TO {user}"),
            format!(
                "GRANT USAGE ON SCHEMA sysvvm TO {user}; GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA sysvvm \
                 TO {user}; GRANT DELETE ON sysvvm.document TO {user}"
            ),
        ]
    }

    fn description(answer: &StatementResults) -> Result<Description, DecodeError> {
        let version = answer.row(0).map_or(Ok("of unknown version"), |row| row.text(0))?;
        let mut description = Description::new(format!("PostgreSQL {version}"));
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
            description = description
                .with("timeline", row.text(0)?)
                .with("largest TTL", format!("{} ms", row.text(1)?));
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
}
