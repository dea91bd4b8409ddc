//! [`Report`]: the figures of a run, and whether all required events happened.

use super::{
    AMBIGUOUS,
    event::{Counts, Event},
    leadership_log::LeadershipLog,
};
use std::{collections::BTreeMap, time::Duration};
use vvm_clock::{Instant, SystemClock};

/// The events that every run must have.
const REQUIRED: [Event; 8] = [
    Event::ForgedApplied,
    Event::ForgedUnsent,
    Event::ConnectionCut,
    Event::ConnectionRefused,
    Event::AnswerDelayed,
    Event::WriteDelivered,
    Event::LeaderCrashed,
    Event::DeposedRefused,
];

/// A part of a run.
#[derive(Debug)]
pub(super) struct Phase {
    pub(super) name: String,
    pub(super) from: Instant,
    pub(super) until: Instant,
    /// How long after the fault every slot had a leader; `None` without a fault.
    pub(super) recovered: Option<Duration>,
}

#[derive(Default, Debug)]
pub(super) struct Report {
    pub(super) phases: Vec<Phase>,
}

impl Report {
    /// Returns the text of the report.
    pub(super) fn figures(&self, log: &LeadershipLog, counts: &Counts, began: Instant) -> String {
        let leaderships = log.judge();
        let mut lines = vec![
            format!(
                "\n{leaderships} leaderships in {:.0} s; {} ambiguous answers forged",
                began.until(SystemClock::read()).as_secs_f64(),
                counts.ambiguous()
            ),
            "                         times    led  longest time without a leader afterwards".into(),
        ];
        let mut kinds: BTreeMap<&str, Vec<&Phase>> = BTreeMap::new();
        for phase in &self.phases {
            kinds.entry(&phase.name).or_default().push(phase);
        }
        for (name, phases) in kinds {
            let led: f64 = phases.iter().map(|phase| log.led(phase.from, phase.until)).sum();
            let led = led / phases.len() as f64 * 100.0;
            let longest = phases.iter().filter_map(|phase| phase.recovered).max();
            let longest =
                longest.map_or_else(|| "-".to_owned(), |span| format!("{:.2} s", span.as_secs_f64()));
            lines.push(format!("{name:24} {:5}  {led:3.0} %  {longest}", phases.len()));
        }
        lines.extend(counts.all().into_iter().map(|(what, times)| format!("{times:6}  {what}")));
        lines.join("\n")
    }
}

/// Checks that all required events happened.
///
/// # Errors
/// The missing events.
pub(super) fn judge(counts: &Counts, by_servers: &[Event], has_default_duration: bool) -> Result<(), String> {
    let never = REQUIRED.iter().chain(by_servers).filter(|what| counts.of(**what) == 0);
    let mut missing: Vec<_> = never.map(|what| format!("never happened: {what}")).collect();
    if has_default_duration && counts.ambiguous() < AMBIGUOUS {
        missing.push(format!("{} ambiguous answers are fewer than {AMBIGUOUS}", counts.ambiguous()));
    }
    if missing.is_empty() { Ok(()) } else { Err(missing.join("\n")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_without_a_required_event_fails() {
        let counts = Counts::default();
        REQUIRED.iter().for_each(|what| counts.add(*what));
        assert_eq!(judge(&counts, &[], false), Ok(()));
        let missing = judge(&counts, &[Event::QuorumLost], true).unwrap_err();
        assert!(missing.contains("never happened: times that no quorum was left"), "{missing}");
        assert!(missing.contains("2 ambiguous answers are fewer"), "{missing}");
    }
}
