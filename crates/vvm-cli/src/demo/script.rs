//! The script: what is done when.

use super::{
    act::Act,
    cut::Cut,
    event::Lane,
    timeline::{Leadership, MarkKind, Timeline},
    verdict::RENEWALS,
    watch::Watch,
};
use vvm_clock::SystemClock;
use vvm_containment::Ended;

/// How many renewals of each later leader are shown.
const ENCORE: usize = 2;

/// Plays all acts.
///
/// # Errors
/// When the run is cut short.
pub(crate) fn play(watch: &mut Watch<'_>) -> Result<(), Cut> {
    watch.begin(Act::Gather)?;
    for lane in Lane::ALL {
        watch.start(lane)?;
    }
    watch.until("a first leader at work", at_work)?;

    watch.begin(Act::Renew)?;
    let first = watch.until("renewals", |timeline| renewed(timeline, RENEWALS))?;

    // Right after a renewal, when the record has longest to stand.
    watch.begin(Act::Crash)?;
    watch.crash(first)?;
    let second = watch.until("a next leader after the crash", next_after(MarkKind::Crashed))?;
    watch.start(first)?;
    watch.until("renewals after the crash", |timeline| renewed(timeline, ENCORE))?;

    watch.begin(Act::Stop)?;
    watch.ask_to_stop(second)?;
    let third = watch.until("a next leader after the stop", next_after(MarkKind::AskedToStop))?;
    left(watch, second, Ended::Exited(0), "exited with status 0, as its worker has")?;
    watch.start(second)?;
    watch.until("renewals after the stop", |timeline| renewed(timeline, ENCORE))?;

    // Not right after a renewal: the host must have heard of it, and told the guardian, for both to have one deadline.
    let ttl = watch.ttl.get();
    watch.until("the middle between two renewals", |timeline| {
        let written = timeline.leader()?.last_written();
        (written.until(SystemClock::read()) >= ttl / 8).then_some(())
    })?;
    watch.begin(Act::Hang)?;
    watch.hang(third)?;
    left(watch, third, Ended::Exited(137), "exited with status 137, as killed by the kernel")?;
    watch.until("a next leader after the hang", next_after(MarkKind::HostStopped))?;
    watch.until("renewals after the hang", |timeline| renewed(timeline, ENCORE))?;

    watch.begin(Act::Close)?;
    for lane in Lane::ALL.into_iter().filter(|lane| *lane != third) {
        watch.ask_to_stop(lane)?;
    }
    watch.until("the end of all", |timeline| {
        timeline.lives.iter().all(|life| life.left.is_some()).then_some(())
    })
}

/// Whose worker is at work, and has the record.
fn at_work(timeline: &Timeline) -> Option<Lane> {
    timeline.leader().filter(|leader| leader.is_working()).map(|leader| leader.lane)
}

/// Who leads and has renewed so many times.
fn renewed(timeline: &Timeline, times: usize) -> Option<Lane> {
    let enough = |leader: &&Leadership| leader.is_working() && leader.renewals.len() >= times;
    timeline.leader().filter(enough).map(|leader| leader.lane)
}

/// Who is at work after what was done to the one before.
fn next_after(kind: MarkKind) -> impl FnMut(&Timeline) -> Option<Lane> {
    move |timeline| {
        let (next, _) = timeline.next_at_work(timeline.mark(kind)?.at)?;
        // The record says so too, by now or soon.
        timeline.leader().filter(|leader| leader.epoch == next.epoch).map(|leader| leader.lane)
    }
}

/// Waits until the `vvm run` of `lane` has left, and sees to it that it did so as it should.
fn left(watch: &mut Watch<'_>, lane: Lane, wanted: Ended, should: &'static str) -> Result<(), Cut> {
    watch.until("the end of the one that leads no more", |timeline| {
        timeline.lives.iter().rfind(|life| life.lane == lane)?.left
    })?;
    match watch.ended(lane) {
        Some(ended) if ended != wanted => Err(Cut::LeftOtherwise { lane, ended, should }),
        _ => Ok(()),
    }
}
