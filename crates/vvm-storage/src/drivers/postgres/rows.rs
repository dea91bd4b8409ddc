//! Answers as rows of text, by whichever protocol they come.

use crate::drivers::sql::rows::{Row, StatementResult, StatementResults};
use tokio_postgres::SimpleQueryMessage;

pub(super) fn answer(messages: Vec<SimpleQueryMessage>) -> StatementResults {
    let mut statements = vec![StatementResult::default()];
    for message in messages {
        let Some(last) = statements.last_mut() else { break };
        match message {
            SimpleQueryMessage::Row(row) => {
                let columns = (0..row.len()).map(|column| row.get(column).map(str::to_owned));
                last.rows.push(Row::hex(columns));
            }
            SimpleQueryMessage::CommandComplete(affected) => {
                last.affected = affected;
                statements.push(StatementResult::default());
            }
            _ => {}
        }
    }
    // A statement that was not completed is none.
    statements.pop();
    StatementResults(statements)
}

/// Of one prepared statement, all of whose columns are text.
pub(super) fn answer_of_rows(
    rows: Vec<tokio_postgres::Row>,
    affected: u64,
) -> Result<StatementResults, tokio_postgres::Error> {
    let row = |row: &tokio_postgres::Row| {
        let columns = (0..row.len()).map(|column| row.try_get::<_, Option<String>>(column));
        Ok::<_, tokio_postgres::Error>(Row::hex(columns.collect::<Result<Vec<_>, _>>()?))
    };
    let rows = rows.iter().map(row).collect::<Result<_, _>>()?;
    Ok(StatementResults(vec![StatementResult { rows, affected }]))
}
