use super::{FromStandby, Pairing, Ping};
use crate::{Epoch, Incarnation, Timing, Version, protocol::Lease, timing::SupportPeriod};
use std::time::Duration;
use vvm_clock::Instant;
#[cfg(feature = "testing")]
use {
    super::{rebase_offer, rebase_ping},
    crate::protocol::{Rebase, rebase_write},
};

/// How far above the last write number the bound of a permission is. No leadership renews so often; 2³¹ namings fit what
/// storages store.
const FAR: u64 = 1 << 32;

/// How many tests a standby passes before it is named.
const TESTS: u8 = 3;

/// After so many renewals without an answer within P/10, the TTL limits the next: if the storage is slow, and not down, that
/// one is confirmed, and the successor withdrawn.
const UNANSWERED: usize = 3;

/// The leader's side: when it names a successor, and what it owes to its word. It knows the deadline of the support
/// alone; that of the TTL stays with the [`Lease`], and the earlier one counts (N1).
#[derive(Clone, Hash, Debug)]
pub struct Support {
    record: (Incarnation, Epoch),
    period: SupportPeriod,
    ping_interval: Duration,
    /// The number of the last ping.
    number: u64,
    /// When the storage confirmed a write last.
    confirmed_at: Instant,
    /// No offer counts before.
    names_from: Instant,
    /// How long the naming after the next withdrawal waits.
    wait: Duration,
    longest_wait: Duration,
    /// The offer that was named last.
    named_before: Option<[u8; 16]>,
    stop: Stop,
    phase: Phase,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Stop {
    None,
    /// Withdraws first, until this instant.
    By(Instant),
    Allowed,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct SentPing {
    number: u64,
    at: Instant,
}

#[derive(Clone, Hash, Debug)]
enum Phase {
    Alone,
    Testing {
        pairing: Pairing,
        passed: u8,
        ping: Option<SentPing>,
        next: Instant,
        /// It asks for no renewal before, and how much later for the next: the storage's last answer is older than P, or
        /// came late.
        renews: (Instant, Duration),
    },
    /// No ping has named the standby yet.
    Tightening {
        pairing: Pairing,
        counts_from: Instant,
    },
    Named(Named),
    Over,
}

#[derive(Clone, Hash, Debug)]
struct Named {
    pairing: Pairing,
    /// W.
    bound: u64,
    /// When the newest acknowledged ping was sent; before the first acknowledgement, an instant before the first ping.
    counts_from: Instant,
    /// Pings without an acknowledgement. The loss bounds their number (I11).
    pings: Vec<SentPing>,
    ping_at: Instant,
    leaves: bool,
    withdraws: bool,
}

impl Named {
    fn withdraw(&mut self, lease: &mut Lease) {
        self.withdraws = true;
        lease.number_from(self.bound);
    }
}

/// An event of a support.
#[derive(Clone, Copy, Debug)]
pub enum SupportEvent {
    /// The instant of the last step has come, or the step was carried out.
    Woken,
    /// A datagram arrived.
    Received(FromStandby),
    /// Guardian and keeper have confirmed the message with *this* support deadline, or a later message. Never: a
    /// deadline that is at least as late (N2).
    Tightened(Instant),
    /// [`LeaseStep::Confirmed`](crate::protocol::LeaseStep::Confirmed) showed this version (N4).
    Confirmed(Version),
    /// The leader is to stop: by a stop, step-down, pause, or because it is not ready.
    Stop,
    /// The lease is lost. Both deadlines are final (N1).
    LeaseLost,
}

/// The next step of a support.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SupportStep {
    /// Do nothing; deliver `Woken` at that instant. Replaces an earlier `Sleep`.
    Sleep(Instant),
    /// Send this now.
    Send(Ping),
    /// Enter this kill deadline beside that of the TTL, hand it to guardian and keeper, and deliver `Tightened`.
    Arm(Instant),
    /// Move the support's kill deadline later.
    Extend(Instant),
    /// Remove the support's kill deadline. That of the TTL stands. `None` if no ping has named the standby.
    Disarm(Option<Withdrawal>),
    /// Deliver [`LeaseEvent::Due`](crate::protocol::LeaseEvent::Due).
    Renew,
    /// The planned stop may begin. Renew, and deliver events here, until the record is handed back.
    MayStop,
    /// The leadership is lost, and its lease has ended. This is the last step.
    Lost,
}

/// Why a successor is no longer named, as the storage has confirmed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Withdrawal {
    /// It asked for this (N7).
    Asked,
    /// The leader is to stop.
    Stop,
    /// It has acknowledged no ping that was sent in the last P/4.
    Silent,
    /// The storage takes longer for a write than P/10.
    Slow,
}

impl Support {
    /// Of the leadership of `lease`, whose claim was confirmed at `now`.
    pub fn begin(lease: &Lease, period: SupportPeriod, now: Instant) -> Self {
        let held = lease.held();
        Self {
            record: (held.incarnation(), held.epoch),
            period,
            ping_interval: Timing::support(period).ping_interval(),
            number: 0,
            confirmed_at: now,
            names_from: now,
            wait: period.get(),
            longest_wait: held.ttl.get() / 4,
            named_before: None,
            stop: Stop::None,
            phase: Phase::Alone,
        }
    }

    /// Returns the next step. Limits the calls of `lease` by P while a successor is or is being named, and numbers its
    /// writes (N4).
    pub fn on(&mut self, now: Instant, event: SupportEvent, lease: &mut Lease) -> SupportStep {
        if matches!(event, SupportEvent::LeaseLost) {
            self.phase = Phase::Over;
        }
        if let Phase::Named(named) = &self.phase
            && now >= self.timing().loss_at(named.counts_from)
        {
            self.phase = Phase::Over;
            lease.end();
            return SupportStep::Lost;
        }
        let step = match event {
            SupportEvent::Woken | SupportEvent::LeaseLost => None,
            SupportEvent::Received(message) => self.received(now, message),
            SupportEvent::Tightened(kill_at) => {
                self.tightened(now, kill_at, lease);
                None
            }
            SupportEvent::Confirmed(version) => self.confirmed(now, version, lease),
            SupportEvent::Stop => {
                if self.stop == Stop::None {
                    self.stop = Stop::By(now.after(self.period.get()));
                }
                None
            }
        };
        step.unwrap_or_else(|| self.next(now, lease))
    }

    fn timing(&self) -> Timing {
        Timing::support(self.period)
    }

    fn received(&mut self, now: Instant, message: FromStandby) -> Option<SupportStep> {
        let timing = self.timing();
        match (message, &mut self.phase) {
            (FromStandby::Offer(pairing), Phase::Alone) => {
                let is_new = (pairing.incarnation, pairing.epoch) == self.record
                    && self.named_before != Some(pairing.offer);
                if is_new && now >= self.names_from && self.stop == Stop::None {
                    let renews = (now, self.period.get());
                    self.phase = Phase::Testing { pairing, passed: 0, ping: None, next: now, renews };
                }
            }
            (
                FromStandby::Answer { pairing: from, number, acknowledges: false, .. },
                Phase::Testing { pairing, passed, ping, next, .. },
            ) => {
                let sent_at =
                    ping.filter(|ping| from == *pairing && ping.number == number).map(|ping| ping.at);
                if let Some(sent_at) = sent_at.filter(|at| now.since(*at) <= timing.attempt_timeout()) {
                    *passed = passed.saturating_add(1);
                    *ping = None;
                    // One that has passed waits for the storage.
                    *next = if *passed < TESTS {
                        sent_at.after(self.ping_interval)
                    } else {
                        timing.withdraw_at(sent_at)
                    };
                }
            }
            (FromStandby::Answer { pairing, number, acknowledges: true, leaves }, Phase::Named(named))
                if pairing == named.pairing =>
            {
                named.leaves |= leaves;
                let at = named.pings.iter().position(|ping| ping.number == number)?;
                named.counts_from = named.pings[at].at;
                named.pings.drain(..=at);
                return Some(SupportStep::Extend(timing.kill_at(named.counts_from)));
            }
            _ => {}
        }
        None
    }

    fn tightened(&mut self, now: Instant, in_force: Instant, lease: &Lease) {
        let Phase::Tightening { pairing, counts_from } = self.phase else { return };
        let is_recent = now < self.timing().withdraw_at(counts_from) && self.is_storage_near(now, lease);
        if in_force != self.timing().kill_at(counts_from) || !is_recent || self.stop != Stop::None {
            return;
        }
        self.named_before = Some(pairing.offer);
        self.phase = Phase::Named(Named {
            pairing,
            bound: lease.last_write() + FAR,
            counts_from,
            pings: Vec::new(),
            ping_at: now,
            leaves: false,
            withdraws: false,
        });
    }

    fn is_storage_near(&self, now: Instant, lease: &Lease) -> bool {
        let took = self.confirmed_at.since(lease.confirmed_sent_at());
        now.since(self.confirmed_at) <= self.period.get() && took <= self.timing().attempt_timeout()
    }

    fn confirmed(&mut self, now: Instant, version: Version, lease: &mut Lease) -> Option<SupportStep> {
        self.confirmed_at = now;
        let is_near = self.is_storage_near(now, lease);
        let Phase::Named(named) = &mut self.phase else { return None };
        if version.write < named.bound {
            if !is_near {
                named.withdraw(lease);
            } else if !named.withdraws {
                lease.limit_calls(Some(self.period));
            }
            return named.withdraws.then_some(SupportStep::Renew);
        }
        let why = match self.stop {
            _ if named.leaves => Withdrawal::Asked,
            Stop::None if !is_near => Withdrawal::Slow,
            Stop::None => Withdrawal::Silent,
            Stop::By(_) | Stop::Allowed => Withdrawal::Stop,
        };
        self.names_from = now.after(self.wait);
        self.wait = (self.wait * 2).min(self.longest_wait);
        Some(self.loosen(lease, Some(why)))
    }

    fn loosen(&mut self, lease: &mut Lease, why: Option<Withdrawal>) -> SupportStep {
        lease.limit_calls(None);
        self.phase = Phase::Alone;
        SupportStep::Disarm(why)
    }

    fn next(&mut self, now: Instant, lease: &mut Lease) -> SupportStep {
        let timing = self.timing();
        if let Stop::By(until) = self.stop {
            if let Phase::Testing { .. } = self.phase {
                self.phase = Phase::Alone;
            }
            if matches!(self.phase, Phase::Alone | Phase::Over) || now >= until {
                self.stop = Stop::Allowed;
                return SupportStep::MayStop;
            }
        }
        let is_near = self.is_storage_near(now, lease);
        match &mut self.phase {
            Phase::Alone | Phase::Over => SupportStep::Sleep(Instant::NEVER),
            Phase::Testing { ping: Some(ping), .. } => {
                let until = ping.at.after(timing.attempt_timeout());
                if now >= until {
                    self.phase = Phase::Alone;
                    return SupportStep::Sleep(Instant::NEVER);
                }
                SupportStep::Sleep(until)
            }
            // Not while a call is under way that the TTL limits.
            Phase::Testing { pairing, passed, .. } if *passed >= TESTS && is_near && lease.is_waiting() => {
                lease.limit_calls(Some(self.period));
                self.phase = Phase::Tightening { pairing: *pairing, counts_from: now };
                SupportStep::Arm(timing.kill_at(now))
            }
            // With a long TTL, the next renewal is far.
            Phase::Testing { passed, renews: (from, pause), .. }
                if *passed >= TESTS && !is_near && now >= *from && lease.is_waiting() =>
            {
                *from = now.after(*pause);
                *pause = (*pause * 2).min(self.longest_wait);
                SupportStep::Renew
            }
            Phase::Testing { next, .. } if now < *next => SupportStep::Sleep(*next),
            Phase::Testing { pairing, ping, .. } => {
                self.number += 1;
                *ping = Some(SentPing { number: self.number, at: now });
                SupportStep::Send(Ping {
                    pairing: *pairing,
                    number: self.number,
                    period: self.period,
                    below: None,
                })
            }
            Phase::Tightening { counts_from, .. } => {
                let until = timing.withdraw_at(*counts_from);
                if now >= until || self.stop != Stop::None {
                    return self.loosen(lease, None);
                }
                SupportStep::Sleep(until)
            }
            Phase::Named(named) => {
                let withdraw_at = timing.withdraw_at(named.counts_from);
                if !named.withdraws && (named.leaves || self.stop != Stop::None || now >= withdraw_at) {
                    named.withdraw(lease);
                    return SupportStep::Renew;
                }
                if lease.unresolved() >= UNANSWERED {
                    lease.limit_calls(None);
                }
                if now >= named.ping_at {
                    self.number += 1;
                    named.pings.push(SentPing { number: self.number, at: now });
                    named.ping_at = now.after(self.ping_interval);
                    return SupportStep::Send(Ping {
                        pairing: named.pairing,
                        number: self.number,
                        period: self.period,
                        below: Some(named.bound),
                    });
                }
                let withdraw_at = if named.withdraws { Instant::NEVER } else { withdraw_at };
                let stop_by = if let Stop::By(until) = self.stop { until } else { Instant::NEVER };
                let loss_at = timing.loss_at(named.counts_from);
                SupportStep::Sleep(named.ping_at.min(withdraw_at).min(loss_at).min(stop_by))
            }
        }
    }
}

#[cfg(feature = "testing")]
impl Support {
    /// With fewer pings than shipped, which is within the rules and makes fewer states.
    #[must_use]
    pub fn with_ping_interval(mut self, ping_interval: Duration) -> Self {
        self.ping_interval = ping_interval;
        self
    }

    /// The successor's offer, if one is named.
    pub fn successor(&self) -> Option<Pairing> {
        if let Phase::Named(named) = &self.phase { Some(named.pairing) } else { None }
    }

    /// Hands on every instant, name and number, to be shifted and renumbered.
    pub fn rebase(&mut self, to: &mut dyn Rebase) {
        to.since(&mut self.confirmed_at);
        to.until(&mut self.names_from);
        if let Stop::By(until) = &mut self.stop {
            to.until(until);
        }
        let leadership = self.record.0;
        rebase_ping(leadership, &mut self.number, to);
        crate::protocol::rebase_record(&mut self.record, to);
        self.named_before.iter_mut().for_each(|offer| rebase_offer(offer, to));
        let ping = |ping: &mut SentPing, to: &mut dyn Rebase| {
            rebase_ping(leadership, &mut ping.number, to);
            to.since(&mut ping.at);
        };
        match &mut self.phase {
            Phase::Alone | Phase::Over => {}
            Phase::Testing { pairing, ping: sent, next, renews: (from, _), .. } => {
                sent.iter_mut().for_each(|sent| ping(sent, to));
                to.until(next);
                to.until(from);
                pairing.rebase(to);
            }
            Phase::Tightening { pairing, counts_from } => {
                to.since(counts_from);
                pairing.rebase(to);
            }
            Phase::Named(named) => {
                rebase_write(leadership, &mut named.bound, to);
                named.pings.iter_mut().for_each(|sent| ping(sent, to));
                to.since(&mut named.counts_from);
                to.until(&mut named.ping_at);
                named.pairing.rebase(to);
            }
        }
    }
}
