//! The script: what is done, in which order.

use super::{
    checks::RENEWALS,
    run::{Run, RunError},
    timeline::{CandidateId, Timeline, What},
};
use vvm_clock::{Instant, SystemClock};

/// Does all steps.
pub(super) fn play(run: &mut Run) -> Result<(), RunError> {
    run.begin("1/6  Three candidates, one record: one candidate takes it, and its worker begins.")?;
    for id in CandidateId::ALL {
        run.start(id)?;
    }
    run.until("a first leader at work", renewed(0))?;

    run.begin("2/6  The leader renews its record four times per TTL. The others stand by.")?;
    let first = run.until("renewals of the first leader", renewed(RENEWALS))?;

    // Right after a renewal, when the record has longest to stand.
    run.begin("3/6  kill -9 of all processes of the leader, as if its machine died: a TTL must pass.")?;
    run.act(first, What::Crashed)?;
    let second = run.until("a leader after the crash", next_after(What::Crashed))?;
    run.start(first)?;
    run.until("renewals after the crash", renewed(2))?;

    run.begin("4/6  The leader is asked to stop: its worker ends first, then the record is released.")?;
    run.act(second, What::AskedToStop)?;
    let third = run.until("a leader after the clean stop", next_after(What::AskedToStop))?;
    run.until("the end of the leader that was asked to stop", ended(What::AskedToStop))?;
    run.start(second)?;
    run.until("renewals after the clean stop", renewed(2))?;

    // Not right after a renewal: host and guardian must agree on the deadline.
    let ttl = run.ttl.get();
    run.until("the middle between two renewals", |timeline| {
        let (_, epoch) = timeline.leader()?;
        let written = timeline.renewals(epoch).next_back()?;
        (written.until(SystemClock::read()) >= ttl / 8).then_some(())
    })?;
    run.begin("5/6  The leader's host is stopped for ever. The kernel kills it before the next one leads.")?;
    run.act(third, What::HostStopped)?;
    run.until("the end of the leader that hangs", ended(What::HostStopped))?;
    run.until("a leader after the hang", next_after(What::HostStopped))?;
    run.until("renewals after the hang", renewed(2))?;

    run.begin("6/6  All are asked to stop. Then the workers' own logs are compared.")?;
    let (closing, rest) = (SystemClock::read(), CandidateId::ALL.into_iter().filter(|id| *id != third));
    for id in rest.clone() {
        run.act(id, What::AskedToStop)?;
    }
    run.until("the end of all", |timeline| {
        rest.clone().all(|id| timeline.left(id, closing).is_some()).then_some(())
    })
}

/// Finds the end of the `vvm run` that this was done to.
fn ended(what: What) -> impl Fn(&Timeline) -> Option<Instant> {
    move |timeline| timeline.mark(what).and_then(|mark| timeline.left(mark.id, mark.at))
}

/// Finds a leader whose worker is at work and that has renewed so many times.
fn renewed(times: usize) -> impl Fn(&Timeline) -> Option<CandidateId> {
    move |timeline| {
        let (id, epoch) = timeline.leader()?;
        (timeline.is_working(epoch) && timeline.renewals(epoch).count() >= times).then_some(id)
    }
}

/// Finds the next leader at work after this was done to the leader before, once the record names it, too.
fn next_after(what: What) -> impl Fn(&Timeline) -> Option<CandidateId> {
    move |timeline| {
        let What::WorkBegan(epoch, _) = timeline.next_at_work(timeline.mark(what)?.at)?.what else {
            return None;
        };
        timeline.mark(What::Elected(epoch)).map(|event| event.id)
    }
}
