//! [`Answer`] and [`Row`]: what a request was answered, as the simple protocol has it: text.

use super::{super::errors::Damaged, from_hex};
use tokio_postgres::SimpleQueryMessage;

/// What a request was answered: for each of its statements rows, and how many rows it showed or changed.
#[derive(Debug)]
pub(in super::super) struct Answer(Vec<Statement>);

#[derive(Default, Debug)]
struct Statement {
    rows: Vec<Row>,
    affected: u64,
}

impl Answer {
    pub(in super::super) fn of(messages: Vec<SimpleQueryMessage>) -> Self {
        let mut statements = vec![Statement::default()];
        for message in messages {
            let Some(last) = statements.last_mut() else { break };
            match message {
                SimpleQueryMessage::Row(row) => {
                    let columns = (0..row.len()).map(|column| row.get(column).map(str::to_owned));
                    last.rows.push(Row(columns.collect()));
                }
                SimpleQueryMessage::CommandComplete(affected) => {
                    last.affected = affected;
                    statements.push(Statement::default());
                }
                _ => {}
            }
        }
        Self(statements)
    }

    /// Of one prepared statement, all of whose columns are text.
    pub(in super::super) fn of_rows(
        rows: Vec<tokio_postgres::Row>,
        affected: u64,
    ) -> Result<Self, tokio_postgres::Error> {
        let row = |row: &tokio_postgres::Row| {
            let columns = (0..row.len()).map(|column| row.try_get::<_, Option<String>>(column));
            Ok::<_, tokio_postgres::Error>(Row(columns.collect::<Result<_, _>>()?))
        };
        let rows = rows.iter().map(row).collect::<Result<_, _>>()?;
        Ok(Self(vec![Statement { rows, affected }]))
    }

    /// The first row of a statement, counted from 0.
    pub(in super::super) fn row(&self, statement: usize) -> Option<&Row> {
        self.rows(statement).first()
    }

    /// The rows of a statement alone.
    pub(in super::super) fn into_rows(mut self, statement: usize) -> Vec<Row> {
        self.0.get_mut(statement).map(|statement| std::mem::take(&mut statement.rows)).unwrap_or_default()
    }

    pub(in super::super) fn rows(&self, statement: usize) -> &[Row] {
        self.0.get(statement).map_or(&[], |statement| &statement.rows)
    }

    /// How many rows a statement showed or changed.
    pub(in super::super) fn affected(&self, statement: usize) -> u64 {
        self.0.get(statement).map_or(0, |statement| statement.affected)
    }
}

/// The columns of a row, as text.
#[derive(Debug)]
pub(in super::super) struct Row(Vec<Option<String>>);

impl Row {
    #[cfg(test)]
    pub(in super::super) fn of<const N: usize>(columns: [Option<&str>; N]) -> Self {
        Self(columns.map(|column| column.map(str::to_owned)).into())
    }

    pub(in super::super) fn text(&self, column: usize) -> Result<&str, Damaged> {
        let missing = || Damaged::of(format!("column {} is null where others are not", column + 1));
        self.0.get(column).and_then(Option::as_deref).ok_or_else(missing)
    }

    pub(in super::super) fn is_null(&self, column: usize) -> bool {
        self.0.get(column).is_none_or(Option::is_none)
    }

    pub(in super::super) fn number(&self, column: usize) -> Result<i64, Damaged> {
        self.text(column)?.parse().map_err(Damaged::of)
    }

    pub(in super::super) fn is_true(&self, column: usize) -> Result<bool, Damaged> {
        Ok(self.text(column)? == "t")
    }

    pub(in super::super) fn bytes(&self, column: usize) -> Result<Vec<u8>, Damaged> {
        from_hex(self.text(column)?)
    }
}
