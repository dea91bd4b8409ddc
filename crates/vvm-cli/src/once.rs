//! `vvm once`: its options, what a candidate finds before it campaigns, and the periods as operators see them.
//! It is a `vvm run` otherwise; the module `run` has its command line and what its leader does.

use crate::{
    announce::printable,
    args::{CandidateArgs, InvalidValue, TargetArgs, parse_duration, parse_failures, parse_line_of_text},
    exit,
    inspection::{InspectionError, operate},
    liveness::{Liveness, Observation, dated_slot},
    result_file::Outcome,
    shown::{Moment, Style, print_rows},
};
use clap::Args;
use ielections::{Epoch, Slot, TtlStorage as _};
use jiff::{
    Timestamp,
    civil::{Date, Time},
    tz::Offset,
};
use serde::Serialize;
use std::{num::NonZeroU32, process::ExitCode, time::Duration};
use vvm_clock::Instant;
use vvm_host::{
    once::{Decision, LEAST_KEPT, LONGEST_PERIOD, MOST_KEPT, Once, PastPeriod, PeriodError, Periods, read},
    operate::{Purpose, StorageInspector},
};

#[derive(Clone, Debug, Args)]
pub(crate) struct OnceArgs {
    /// The period, e.g. "$(date +%F)" for a day: the same text on all machines, and another one for each period
    #[arg(long, value_name = "TEXT", value_parser = parse_period)]
    pub(crate) period: String,
    /// How often the command may be started for one period, on all machines together
    #[arg(long, value_name = "N", default_value = "3", value_parser = parse_failures)]
    #[arg(allow_hyphen_values = true)]
    pub(crate) attempts: NonZeroU32,
    /// Pause before the next attempt, after a command that failed. After a death there is none
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = parse_duration)]
    pub(crate) retry_after: Duration,
    /// Run nothing, and end with status 0, if a newer period is done: for periods of one form that shows which is newer,
    /// such as dates, counters and versions
    #[arg(long)]
    pub(crate) skip_if_newer_done: bool,
    /// Print nothing unless the period was skipped or something went wrong, for cron
    #[arg(long)]
    pub(crate) quiet: bool,
    /// How many periods are remembered, from 32 to 400: the largest number of all starts counts. A period older than
    /// these is not run again if the texts of periods rise, as dates and versions do
    #[arg(long, value_name = "N", default_value = "128", value_parser = parse_keep)]
    #[arg(allow_hyphen_values = true)]
    pub(crate) keep: NonZeroU32,
}

impl OnceArgs {
    pub(crate) fn plan(&self) -> Once {
        let Self { attempts, keep, skip_if_newer_done, .. } = *self;
        Once { period: self.period.clone(), attempts, keep, skip_if_newer_done }
    }

    /// Warns of a period that ends in an hour of local time: autumn repeats one, and its job would not run again.
    pub(crate) fn warn_of_local_hour(&self, now: Timestamp) {
        let period = &self.period;
        if is_local_hour(period, now) {
            tracing::warn!(
                target: "vvm", event = "local_hour", period,
                "the period {period} ends in an hour that is not the present one of UTC. If it is one of local time, \
                 write date -u: the hour that autumn repeats has the period of one that is done, and its job does not run"
            );
        }
    }
}

/// Whether `period` is a date with an hour, and with no zone behind it, that clocks of some zone show now, and clocks
/// of UTC do not.
fn is_local_hour(period: &str, now: Timestamp) -> bool {
    let digits = period.split(|letter: char| !letter.is_ascii_digit()).collect::<Vec<_>>();
    let part = |number: usize, length| {
        let digits = digits.get(number).filter(|digits| digits.len() == length);
        digits.and_then(|digits| digits.parse::<i16>().ok())
    };
    let (Some(year), Some(month), Some(day), Some(hour)) = (part(0, 4), part(1, 2), part(2, 2), part(3, 2))
    else {
        return false;
    };
    // Behind the hour there may be minutes. A zone is a letter at the end, or makes more parts than these.
    let has_zone = !period.ends_with(|letter: char| letter.is_ascii_digit()) || digits.len() > 5;
    let Ok(shown) = Date::new(year, month as i8, day as i8) else { return false };
    let Ok(hour) = Time::new(hour as i8, 0, 0, 0) else { return false };
    let Ok(shown) = Offset::UTC.to_timestamp(shown.to_datetime(hour)) else { return false };
    let hours_apart = (now.as_second().div_euclid(3600) - shown.as_second().div_euclid(3600)).abs();
    !has_zone && (1..=14).contains(&hours_apart)
}

fn parse_period(text: &str) -> Result<String, InvalidValue> {
    parse_line_of_text(
        text,
        LONGEST_PERIOD,
        "a period has 1 to 64 bytes, no control characters, no blank at an end",
    )
}

fn parse_keep(text: &str) -> Result<NonZeroU32, InvalidValue> {
    let count = text.parse::<NonZeroU32>().ok();
    let count = count.filter(|count| (LEAST_KEPT..=MOST_KEPT).contains(&count.get()));
    count.ok_or(InvalidValue("write a number from 32 to 400"))
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum OnceEnd {
    /// `vvm` ends with this outcome and status, however its command ended, if it ran.
    Reason(Outcome, u8, String),
    Skipped(String),
    Marked(String),
    Failed(String),
}

impl OnceEnd {
    pub(crate) fn from_decision(decision: &Decision, args: &OnceArgs) -> Option<Self> {
        let period = &args.period;
        let done = |text| Self::Reason(Outcome::AlreadyDone, 0, text);
        match decision {
            Decision::Run { .. } => None,
            Decision::Done(past) => Some(done(format!("period {period} is done: {}", Attempt(past)))),
            Decision::Superseded(newer) => Some(Self::Skipped(format!(
                "period {period} is skipped: the newer period {} is done: {}",
                printable(&newer.period),
                Attempt(newer)
            ))),
            Decision::NoAttemptLeft(last) => {
                let text = format!(
                    "period {period} is not done, and was started {} times: {}; correct the cause, then try again \
                     with --attempts {}",
                    last.attempts,
                    Attempt(last),
                    last.attempts.saturating_add(1)
                );
                Some(Self::Reason(Outcome::NoAttemptLeft, exit::NO_ATTEMPT_LEFT, text))
            }
            Decision::Older { oldest } => {
                let text = format!(
                    "period {period} comes before {oldest}, the oldest one that is remembered (--keep), so it may \
                     have been done: to run it, give it a text of its own, like {period}-again"
                );
                Some(Self::Reason(Outcome::Misuse, exit::MISUSE, text))
            }
        }
    }

    pub(crate) fn text(&self) -> &str {
        let (Self::Reason(_, _, text) | Self::Skipped(text) | Self::Marked(text) | Self::Failed(text)) = self;
        text
    }
}

impl From<PeriodError> for OnceEnd {
    fn from(error: PeriodError) -> Self {
        match error {
            PeriodError::NoDocuments => {
                let text = format!("--storage: {error}: use another one");
                Self::Reason(Outcome::Misuse, exit::MISUSE, text)
            }
            error => Self::Reason(Outcome::StorageRefused, exit::STORAGE, error.to_string()),
        }
    }
}

struct Attempt<'past>(&'past PastPeriod);

impl std::fmt::Display for Attempt<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let PastPeriod { holder, epoch, started_ms, ended_ms, end, attempts, .. } = self.0;
        let at = Moment(Duration::from_millis(ended_ms.unwrap_or(*started_ms)));
        let how = end.as_ref().map(|end| format!("{}, ", printable(end))).unwrap_or_default();
        write!(out, "{how}attempt {attempts} by {} at {at}, epoch {epoch}", printable(holder))
    }
}

/// Reads the storage before a campaign, and returns the end that needs no leadership, if there is one. A storage that
/// does not exist or fails is left to the campaign: the leader reads again in any case. May be dropped at will.
pub(crate) async fn look(candidate: &CandidateArgs, args: &OnceArgs) -> Option<OnceEnd> {
    let inspector = StorageInspector::open(&candidate.storage, &candidate.name, Purpose::Read).await.ok()?;
    let periods = periods(&inspector).await;
    inspector.storage.close().await;
    match periods {
        Ok(periods) => {
            let decision = periods.decide_for(&args.plan());
            OnceEnd::from_decision(&decision, args).filter(|_| decision.needs_no_leader())
        }
        Err(PeriodError::Unanswered(_)) => None,
        Err(refusal) => Some(refusal.into()),
    }
}

async fn periods(inspector: &StorageInspector) -> Result<Periods, PeriodError> {
    let Some(key) = inspector.keys_of(None).pop() else { return Ok(Periods::default()) };
    read(inspector.storage.documents(), &key).await
}

#[derive(Debug, Serialize)]
struct PeriodRow {
    state: &'static str,
    #[serde(flatten)]
    past: PastPeriod,
}

/// `vvm history --periods`: those of the name, oldest first; none if its storage keeps no documents.
pub(crate) fn history(target: &TargetArgs, as_json: bool) -> ExitCode {
    operate(target.pair(), Purpose::Read, async |inspector| {
        inspector.slots().await?;
        let Some(key) = inspector.keys_of(None).pop() else { return Ok(0) };
        let slot = dated_slot(&inspector.storage, &key).await?;
        let periods = match periods(inspector).await {
            Err(PeriodError::NoDocuments) => Periods::default(),
            periods => periods.map_err(|error| InspectionError::new(exit::STORAGE, error))?,
        };
        let line = |past: &PastPeriod| PeriodRow { state: past.state(leading(&slot)), past: past.clone() };
        let lines = periods.list().iter().map(line).collect::<Vec<_>>();
        let columns = [
            ("PERIOD", 20),
            ("STATE", 11),
            ("ATTEMPTS", -8),
            ("START", 20),
            ("END", 20),
            ("EPOCH", -14),
            ("HOLDER", 24),
            ("HOW THE LAST ATTEMPT FAILED", 0),
        ];
        print_rows(as_json, columns, &lines, |PeriodRow { state, past }| {
            let moment = |millis| Moment(Duration::from_millis(millis)).to_string();
            let cells = [
                Some(past.period.clone()),
                Some((*state).to_owned()),
                Some(past.attempts.to_string()),
                Some(moment(past.started_ms)),
                past.ended_ms.map(moment),
                Some(past.epoch.to_string()),
                Some(past.holder.clone()),
                past.end.clone(),
            ];
            (Style::Plain, cells)
        })?;
        Ok(0)
    })
}

fn leading(slot: &Slot) -> Option<Epoch> {
    let epoch = slot.entry()?.epoch;
    (Observation::default().add(slot, Instant::ORIGIN) != Liveness::Stale).then_some(epoch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::liveness::tests::record;

    #[test]
    fn attempt_runs_while_its_record_stands_and_is_not_known_to_be_stale() {
        let past: PastPeriod = serde_json::from_value(serde_json::json!({
            "period": "p", "done": false, "attempts": 1, "holder": "a", "epoch": 7, "started_ms": 1
        }))
        .unwrap();
        let state = |proven_age: Option<u64>, epoch| {
            let proven_age = proven_age.map(Duration::from_secs);
            past.state(leading(&Slot::Held { entry: record("a", epoch, 1), proven_age }))
        };
        assert_eq!([state(Some(1), 7), state(None, 7)], ["running"; 2]);
        assert_eq!([state(Some(20), 7), state(Some(1), 8)], ["interrupted"; 2]);
    }

    #[test]
    fn hour_that_only_clocks_of_another_zone_show_is_a_local_one() {
        let now = "2026-10-25T00:30:00Z".parse().unwrap();
        for local in ["2026-10-25T02", "2026-10-25 02:30", "2026-10-24-16", "2026.10.25.14"] {
            assert!(is_local_hour(local, now), "{local}");
        }
        for other in [
            "2026-10-25T00",
            "2026-10-25T00:29",
            "2026-10-25T02Z",
            "2026-10-25T02:00+02:00",
            "2026-10-25",
            "2026-10-20T02",
            "2026-W43-07-02",
            "1.2.3.4",
            "9999-99-99T99",
            "",
        ] {
            assert!(!is_local_hour(other, now), "{other}");
        }
    }
}
