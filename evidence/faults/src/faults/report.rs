//! The figures of a run, and whether it met what it had to meet.

use super::{
    AMBIGUOUS,
    happened::{Counts, Happened},
    ledger::Ledger,
};
use std::{collections::BTreeMap, time::Duration};
use vvm_clock::{Instant, SystemClock};

/// What every run must have met, whatever its servers.
const EVERYWHERE: [Happened; 9] = [
    Happened::ForgedApplied,
    Happened::ForgedRefused,
    Happened::ForgedUnsent,
    Happened::ConnectionCut,
    Happened::ConnectionRefused,
    Happened::AnswerDelayed,
    Happened::WriteDelivered,
    Happened::LeaderCrashed,
    Happened::DeposedRefused,
];

/// A stretch of a run.
#[derive(Debug)]
pub(super) struct Phase {
    pub(super) name: String,
    pub(super) from: Instant,
    pub(super) until: Instant,
    /// How long after the servers were back every slot had had a leader; `None` for a calm.
    pub(super) recovered: Option<Duration>,
}

#[derive(Default, Debug)]
pub(super) struct Report {
    pub(super) phases: Vec<Phase>,
}

impl Report {
    /// For people.
    pub(super) fn figures(
        &self,
        ledger: &Ledger,
        counts: &Counts,
        by_servers: &[Happened],
        began: Instant,
    ) -> String {
        let leaderships = ledger.judge();
        let mut lines = vec![
            format!(
                "\n{leaderships} leaderships in {:.0} s; {} ambiguous answers forged",
                began.until(SystemClock::read()).as_secs_f64(),
                counts.ambiguous()
            ),
            "                         times    led  then a slot without a leader, at most".into(),
        ];
        let mut kinds: BTreeMap<&str, Vec<&Phase>> = BTreeMap::new();
        for phase in &self.phases {
            kinds.entry(&phase.name).or_default().push(phase);
        }
        for (name, phases) in kinds {
            let led: f64 = phases.iter().map(|phase| ledger.led(phase.from, phase.until)).sum();
            let led = led / phases.len() as f64 * 100.0;
            let longest = phases.iter().filter_map(|phase| phase.recovered).max();
            let longest =
                longest.map_or_else(|| "-".to_owned(), |span| format!("{:.2} s", span.as_secs_f64()));
            lines.push(format!("{name:24} {:5}  {led:3.0} %  {longest}", phases.len()));
        }
        let counted = EVERYWHERE.iter().chain(by_servers);
        lines.extend(counted.map(|what| format!("{:6}  {what}", counts.of(*what))));
        lines.join("\n")
    }
}

/// Whether a run met what it had to meet.
///
/// # Errors
/// What did not happen.
pub(super) fn judge(counts: &Counts, by_servers: &[Happened], is_whole: bool) -> Result<(), String> {
    let never = EVERYWHERE.iter().chain(by_servers).filter(|what| counts.of(**what) == 0);
    let mut lacks: Vec<_> = never.map(|what| format!("none at all: {what}")).collect();
    if is_whole && counts.ambiguous() < AMBIGUOUS {
        lacks.push(format!("{} ambiguous answers are fewer than {AMBIGUOUS}", counts.ambiguous()));
    }
    if lacks.is_empty() { Ok(()) } else { Err(lacks.join("\n")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_met_too_little_has_failed() {
        let counts = Counts::default();
        EVERYWHERE.iter().for_each(|what| counts.add(*what));
        assert_eq!(judge(&counts, &[], false), Ok(()));
        let lacks = judge(&counts, &[Happened::QuorumLost], true).unwrap_err();
        assert!(lacks.contains("none at all: times that no quorum was left"), "{lacks}");
        assert!(lacks.contains("3 ambiguous answers are fewer"), "{lacks}");
    }
}
