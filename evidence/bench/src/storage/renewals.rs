//! Renewals a second of 64 leaders that renew as fast as they can, and how many were not confirmed. For some
//! drivers, beside 64 bare writers by turns.

use super::{BareStatements, Scene, StorageError, leader::Leader};
use crate::figure::{Figure, Side, Statistic, Unit};
use futures_util::future::try_join_all;
use std::time::Duration;
use vvm_clock::{Instant, SystemClock};

pub(crate) const LEADERS: u32 = 64;
/// The first slot of this part.
const FIRST_SLOT: u32 = 10_000;
/// The goal for three nodes of Cassandra on two cores.
const GOAL: f64 = 1_000.0;
/// The least share of the bare writers' rate.
const SHARE: f64 = 0.95;

pub(super) async fn measure(
    scene: &Scene,
    bare: &mut dyn BareStatements,
    quick: bool,
) -> Result<Vec<Figure>, StorageError> {
    // A server is slow in its first seconds.
    let (rounds, span) = if quick { (1, Duration::from_secs(2)) } else { (4, Duration::from_secs(10)) };
    let mut leaders = Vec::new();
    for slot in FIRST_SLOT..FIRST_SLOT + LEADERS {
        leaders.push(Leader::claim(scene, scene.key(slot)).await?);
    }
    let (mut rates, mut tallies, mut bare_rates, mut shares) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        let first = FIRST_SLOT + round * LEADERS;
        let bare_rate = bare.rate(LEADERS, first, span).await?;
        let began = SystemClock::read();
        let until = began.after(span);
        let round = try_join_all(leaders.iter_mut().map(|leader| renew(leader, until))).await?;
        let took = began.until(SystemClock::read()).as_secs_f64();
        let rate = round.iter().map(|tally| tally.millis.len()).sum::<usize>() as f64 / took;
        shares.extend(bare_rate.map(|bare| rate / bare));
        bare_rates.extend(bare_rate);
        rates.push(rate);
        tallies.extend(round);
    }
    for leader in &leaders {
        leader.release().await?;
    }
    let confirmed: Vec<f64> = tallies.iter().flat_map(|tally| tally.millis.iter().copied()).collect();
    let unconfirmed = tallies.iter().map(|tally| f64::from(tally.unconfirmed)).sum();
    let name = |what| format!("{LEADERS} leaders at once: {what}");
    let rate = Figure::new(name("renewals"), Unit::PerSecond, rates);
    // An embedded storage is as fast as its disk, so that only servers have a goal.
    let mut beside_bare = Vec::new();
    if !shares.is_empty() {
        let shares = Figure::new(name("share of the bare rate"), Unit::Ratio, shares);
        beside_bare.push(Figure::new(format!("{LEADERS} bare writers at once"), Unit::PerSecond, bare_rates));
        beside_bare.push(shares.with_goal(Statistic::Median, Side::AtLeast, SHARE));
    }
    let networked = !matches!(scene.scheme.as_str(), "sqlite" | "sled" | "mem");
    let mut figures = vec![
        if networked { rate.with_goal(Statistic::Median, Side::AtLeast, GOAL) } else { rate },
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
