//! Renewals a second of 64 leaders that renew as fast as they can, and how many were not confirmed. For some
//! drivers, beside 64 bare writers by turns.

use super::{
    BareStatements, Scene, StorageError,
    bare::{BareError, BareWriter},
    verbs::Leader,
};
use crate::report::{Figure, Side, Statistic, Unit};
use futures_util::future::try_join_all;
use std::time::Duration;
use vvm_clock::{Instant, SystemClock};

pub(crate) const LEADERS: u32 = 64;
/// The first slot of this part.
const FIRST_SLOT: u32 = 10_000;
/// The least share of the bare writers' rate.
const SHARE: f64 = 0.95;

pub(super) async fn measure(
    scene: &Scene,
    bare: &mut dyn BareStatements,
    quick: bool,
) -> Result<Vec<Figure>, StorageError> {
    // Short turns, so that other load and the server's own work hit both sides alike.
    let (turns, span) = if quick { (2, Duration::from_secs(1)) } else { (20, Duration::from_secs(2)) };
    let slots = FIRST_SLOT..FIRST_SLOT + LEADERS;
    let mut leaders = Vec::new();
    for slot in slots.clone() {
        leaders.push(Leader::claim(scene, scene.key(slot)).await?);
    }
    let mut writers = bare.writers(slots).await?;
    let (mut rates, mut tallies, mut bare_rates, mut shares) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    // A server is slow in its first seconds: the first turn warms up.
    for turn in 0..=turns {
        let bare_begins = turn % 2 == 0;
        let before = if bare_begins { bare_rate(&mut writers, span).await? } else { None };
        let began = SystemClock::read();
        let until = began.after(span);
        let found = try_join_all(leaders.iter_mut().map(|leader| renew(leader, until))).await?;
        let rate = per_second(found.iter().map(|tally| tally.millis.len()).sum(), began);
        let bare_rate = if bare_begins { before } else { bare_rate(&mut writers, span).await? };
        if turn > 0 {
            shares.extend(bare_rate.map(|bare| rate / bare));
            bare_rates.extend(bare_rate);
            rates.push(rate);
        }
        tallies.extend(found);
    }
    for leader in &leaders {
        leader.release().await?;
    }
    let confirmed: Vec<f64> = tallies.iter().flat_map(|tally| tally.millis.iter().copied()).collect();
    let unconfirmed = tallies.iter().map(|tally| f64::from(tally.unconfirmed)).sum();
    let name = |what| format!("{LEADERS} leaders at once: {what}");
    let mut beside_bare = Vec::new();
    if !shares.is_empty() {
        let shares = Figure::new(name("share of the bare rate"), Unit::Ratio, shares);
        beside_bare.push(Figure::new(format!("{LEADERS} bare writers at once"), Unit::PerSecond, bare_rates));
        beside_bare.push(shares.with_goal(Statistic::Median, Side::AtLeast, SHARE));
    }
    let mut figures = vec![
        Figure::new(name("renewals"), Unit::PerSecond, rates),
        Figure::new(name("each renewal"), Unit::Milliseconds, confirmed),
        Figure::new(name("not confirmed"), Unit::Count, vec![unconfirmed]).with_goal(
            Statistic::Max,
            Side::AtMost,
            0.0,
        ),
    ];
    figures.extend(beside_bare);
    Ok(figures)
}

/// The renewals of one leader.
#[derive(Default)]
struct Tally {
    /// Times of those that were confirmed.
    millis: Vec<f64>,
    /// How many timed out or failed.
    unconfirmed: u32,
}

async fn renew(leader: &mut Leader<'_>, until: Instant) -> Result<Tally, StorageError> {
    let mut tally = Tally::default();
    while leader.scene.clock.now() < until {
        match leader.renew().await? {
            Some(millis) => tally.millis.push(millis),
            None => tally.unconfirmed += 1,
        }
    }
    Ok(tally)
}

/// Lets the bare writers renew for `span`. Returns how often a second, all of them.
async fn bare_rate(
    writers: &mut Option<Vec<Box<dyn BareWriter>>>,
    span: Duration,
) -> Result<Option<f64>, BareError> {
    let Some(writers) = writers else { return Ok(None) };
    let began = SystemClock::read();
    let until = began.after(span);
    let each = writers.iter_mut().map(async |writer: &mut Box<dyn BareWriter>| {
        let mut renewals = 0;
        while SystemClock::read() < until {
            writer.renew().await?;
            renewals += 1;
        }
        Ok::<usize, BareError>(renewals)
    });
    let renewals = try_join_all(each).await?;
    Ok(Some(per_second(renewals.into_iter().sum(), began)))
}

fn per_second(renewals: usize, began: Instant) -> f64 {
    renewals as f64 / began.until(SystemClock::read()).as_secs_f64()
}
