//! [`Plan`]: the fault of each call. Planned faults first, then those for every call, then random ones.

use super::{Fault, Verb};
use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

/// The probability of each fault, for every call. The rest up to 1 is the probability of no fault.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Odds {
    /// Probability of [`Fault::NotApplied`].
    pub not_applied: f64,
    /// Probability of [`Fault::Fatal`].
    pub fatal: f64,
    /// Probability of [`Fault::LostRequest`].
    pub lost_request: f64,
    /// Probability of [`Fault::LostAnswer`].
    pub lost_answer: f64,
    /// Probability of [`Fault::SlowRequest`].
    pub slow_request: f64,
    /// Probability of [`Fault::SlowAnswer`].
    pub slow_answer: f64,
    /// Probability of [`Fault::Late`].
    pub late: f64,
    /// Probability of [`Fault::HeldBack`].
    pub held_back: f64,
    /// Probability of [`Fault::Hang`].
    pub hang: f64,
    /// Slow and late calls take a random span below this one.
    pub longest_delay: Duration,
}

impl Odds {
    fn draw(&self, dice: &mut fastrand::Rng) -> Option<Fault> {
        // Always two draws, so that one call does not change the faults of the next.
        let mut chance = dice.f64();
        let delay = self.longest_delay.mul_f64(dice.f64());
        let faults = [
            (self.not_applied, Fault::NotApplied),
            (self.fatal, Fault::Fatal),
            (self.lost_request, Fault::LostRequest),
            (self.lost_answer, Fault::LostAnswer),
            (self.slow_request, Fault::SlowRequest(delay)),
            (self.slow_answer, Fault::SlowAnswer(delay)),
            (self.late, Fault::Late(delay)),
            (self.held_back, Fault::HeldBack),
            (self.hang, Fault::Hang),
        ];
        faults.into_iter().find_map(|(probability, fault)| {
            let strikes = chance < probability;
            chance -= probability;
            strikes.then_some(fault)
        })
    }
}

#[derive(Debug, Default)]
pub(super) struct Plan {
    calls: u64,
    by_number: BTreeMap<u64, Fault>,
    next: BTreeMap<Verb, VecDeque<Option<Fault>>>,
    always: BTreeMap<Verb, Fault>,
    chance: Option<(Odds, fastrand::Rng)>,
}

impl Plan {
    /// Returns the fault of the call that begins now.
    pub(super) fn strike(&mut self, verb: Verb) -> Option<Fault> {
        self.calls += 1;
        // Drawn in any case: a planned fault must not change the random ones.
        let by_chance = self.chance.as_mut().and_then(|(odds, dice)| odds.draw(dice));
        if let Some(fault) = self.by_number.remove(&self.calls) {
            return Some(fault);
        }
        if let Some(planned) = self.next.get_mut(&verb).and_then(VecDeque::pop_front) {
            return planned;
        }
        self.always.get(&verb).copied().or(by_chance)
    }

    pub(super) fn calls(&self) -> u64 {
        self.calls
    }

    pub(super) fn on_call(&mut self, number: u64, fault: Fault) {
        self.by_number.insert(number, fault);
    }

    pub(super) fn on_next(&mut self, verb: Verb, fault: Option<Fault>) {
        self.next.entry(verb).or_default().push_back(fault);
    }

    pub(super) fn always(&mut self, verb: Verb, fault: Fault) {
        self.always.insert(verb, fault);
    }

    pub(super) fn at_random(&mut self, odds: Odds, seed: u64) {
        self.chance = Some((odds, fastrand::Rng::with_seed(seed)));
    }

    pub(super) fn heal(&mut self) {
        *self = Self { calls: self.calls, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thousand(odds: Odds, seed: u64) -> Vec<Option<Fault>> {
        let mut plan = Plan::default();
        plan.at_random(odds, seed);
        (0..1000).map(|_| plan.strike(Verb::Get)).collect()
    }

    #[test]
    fn random_faults_follow_odds_and_seed() {
        let odds = Odds { lost_answer: 0.25, hang: 0.25, ..Odds::default() };
        let struck = thousand(odds, 1);
        assert_eq!(struck, thousand(odds, 1));
        assert_ne!(struck, thousand(odds, 2));
        let count = |fault| struck.iter().filter(|&&one| one == fault).count();
        // Four standard deviations of a binomial distribution: 55 either way.
        assert!((195..305).contains(&count(Some(Fault::LostAnswer))));
        assert!((195..305).contains(&count(Some(Fault::Hang))));
        assert_eq!(count(None) + count(Some(Fault::LostAnswer)) + count(Some(Fault::Hang)), 1000);
    }

    #[test]
    fn random_delays_stay_below_the_longest_delay() {
        let longest_delay = Duration::from_secs(1);
        for fault in thousand(Odds { late: 1.0, longest_delay, ..Odds::default() }, 3) {
            assert!(matches!(fault, Some(Fault::Late(delay)) if delay < longest_delay), "{fault:?}");
        }
    }

    #[test]
    fn planned_fault_precedes_the_fault_for_every_call() {
        let mut plan = Plan::default();
        plan.always(Verb::Get, Fault::Fatal);
        plan.on_next(Verb::Get, None);
        plan.on_next(Verb::Get, Some(Fault::Hang));
        plan.on_call(2, Fault::LostRequest);
        let struck: Vec<_> = (0..4).map(|_| plan.strike(Verb::Get)).collect();
        assert_eq!(struck, [None, Some(Fault::LostRequest), Some(Fault::Hang), Some(Fault::Fatal)]);
        assert_eq!(plan.strike(Verb::Scan), None);
        plan.heal();
        assert_eq!(plan.strike(Verb::Get), None);
        assert_eq!(plan.calls(), 6);
    }
}
