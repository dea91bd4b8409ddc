//! Races the conditions of a server: counts the writes that it acknowledged, and those that stand.

use super::super::{errors::Failure, open::Requests};
use crate::cells::{Cell, CellWrite, Expected};
use bytes::Bytes;
use futures_util::future::join_all;
use ielections::{Entropy as _, OsEntropy};
use object_store::path::Path;
use std::time::Duration;

const WRITERS: usize = 16;

/// How many objects the writers create in turn. Each is left there.
const CREATIONS: usize = 8;

/// How often each writer tries to increment a number in an object.
const INCREMENTS: usize = 16;

/// After so long nothing else begins.
const ENOUGH: Duration = Duration::from_secs(10);

/// What a server acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Raced {
    creations: usize,
    /// Of these, with more than one winner.
    creations_won_twice: usize,
    increments: usize,
    /// The number in the end.
    number: usize,
}

impl Raced {
    /// Returns what is wrong with the server, if anything is.
    pub(super) fn verdict(&self) -> Option<String> {
        let Self { creations, creations_won_twice, increments, number } = self;
        // An increment without an answer may count, so the number may be larger.
        (*creations_won_twice > 0 || increments > number).then(|| {
            format!(
                "of {WRITERS} writers, several created the same object in {creations_won_twice} of \
                 {creations} rounds, and of {increments} acknowledged replacements {number} stand"
            )
        })
    }

    /// Returns what held.
    pub(super) fn summary(&self) -> String {
        let Self { creations, increments, .. } = self;
        format!("obeyed by {WRITERS} writers in {creations} creations and {increments} replacements")
    }
}

/// Races creations of new objects, then replacements of one, each of what its writer has read.
///
/// # Errors
/// Of a read, or of a round in which every write failed.
pub(super) async fn race(requests: &Requests) -> Result<Raced, Failure> {
    let began_at = requests.clock.now();
    let is_enough = || requests.clock.now().since(began_at) >= ENOUGH;
    let run = OsEntropy::default().next_u64();
    let mut raced = Raced::default();
    let name = |number: usize| requests.names.probe(&format!("race/{run:016x}-{number}"));
    for number in 0..CREATIONS {
        if is_enough() {
            break;
        }
        let winners = create(requests, &name(number)).await?;
        raced.creations += 1;
        raced.creations_won_twice += usize::from(winners > 1);
    }
    let name = name(0);
    let writers = (0..WRITERS).map(async |writer| {
        let mut acknowledged = 0;
        for _ in 0..INCREMENTS {
            if is_enough() {
                break;
            }
            acknowledged += usize::from(increment(requests, &name, writer).await?);
        }
        Ok(acknowledged)
    });
    raced.increments = join_all(writers).await.into_iter().sum::<Result<usize, Failure>>()?;
    raced.number = number(&read(requests, &name).await?);
    Ok(raced)
}

/// Returns how many of the writers created the object.
async fn create(requests: &Requests, name: &Path) -> Result<usize, Failure> {
    let writers =
        (0..WRITERS).map(async |writer| requests.put(name, content(0, writer), &Expected::Absent).await);
    let (mut winners, mut refused, mut failure) = (0, 0, None);
    for outcome in join_all(writers).await {
        match outcome {
            Ok(CellWrite::Written(_)) => winners += 1,
            Ok(CellWrite::Refused) => refused += 1,
            Err(error) => failure = Some(error),
        }
    }
    match failure {
        Some(error) if winners + refused == 0 => Err(error),
        _ => Ok(winners),
    }
}

/// Replaces the number that was read by the next one. Returns whether that was acknowledged. A content whose
/// tag is of another one, by a read that is not atomic, loses an increment, too.
async fn increment(requests: &Requests, name: &Path, writer: usize) -> Result<bool, Failure> {
    let cell = read(requests, name).await?;
    let next = content(number(&cell) + 1, writer);
    match requests.put(name, next, &Expected::Tag(cell.tag)).await {
        Ok(outcome) => Ok(outcome != CellWrite::Refused),
        Err(Failure::Denied(said)) => Err(Failure::Denied(said)),
        // Not acknowledged. A server may be busy, or forbid more than one write a second.
        Err(_) => Ok(false),
    }
}

async fn read(requests: &Requests, name: &Path) -> Result<Cell, Failure> {
    let cell = requests.get(name).await?.cell;
    cell.ok_or_else(|| Failure::Refused(format!("{name} is missing after it was created")))
}

/// Each writer has a content of its own: equal ones would have one tag.
fn content(number: usize, writer: usize) -> Bytes {
    format!("{number} by writer {writer}").into()
}

fn number(cell: &Cell) -> usize {
    let text = String::from_utf8_lossy(&cell.value);
    text.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or_default()
}
