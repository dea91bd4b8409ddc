//! One object per event and last a summary, for programs.

use super::{Audience, Finale};
use crate::demo::{
    act::Act,
    draw_terminal::Scene,
    event::{Event, What},
    measured::{Offset, milliseconds},
};
use serde::Serialize;
use std::{
    io::{self, Write as _},
    path::Path,
};
use vvm_clock::Instant;
use vvm_containment::Ended;

/// Objects on standard output, one a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Json;

/// An event. What does not apply is left out.
#[derive(Debug, Serialize)]
struct EventObject {
    event: &'static str,
    /// Since the run began.
    at_ms: f64,
    candidate: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    epoch: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_status: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<i32>,
}

/// What came of the run. A figure that was not measured is null.
#[derive(Debug, Serialize)]
struct Summary<'run> {
    event: &'static str,
    held: bool,
    /// What did not hold, in words.
    failures: Vec<String>,
    ttl_ms: f64,
    renewals: usize,
    crash_failover_ms: Option<f64>,
    handover_ms: Option<f64>,
    kill_after_deadline_ms: Option<f64>,
    next_after_kill_ms: Option<f64>,
    overlaps: usize,
    epochs: Vec<u64>,
    picture: &'run Path,
}

fn object(event: &Event, began: Instant) -> EventObject {
    let Event { at, lane, what } = *event;
    let (exit_status, signal) = match what {
        What::Left(Ended::Exited(status)) => (Some(status), None),
        What::Left(Ended::Signalled(number)) => (None, Some(number)),
        _ => (None, None),
    };
    EventObject {
        event: what.name(),
        at_ms: milliseconds(began.until(at)),
        candidate: lane.name(),
        epoch: what.epoch().map(|epoch| epoch.get()),
        pid: what.process().map(|process| process.as_raw_pid()),
        exit_status,
        signal,
    }
}

fn summary<'run>(finale: &Finale<'run>) -> Summary<'run> {
    let measured = &finale.verdict.measured;
    Summary {
        event: "summary",
        held: finale.verdict.held(),
        failures: finale.verdict.failures().map(ToString::to_string).collect(),
        ttl_ms: milliseconds(finale.scene.ttl.get()),
        renewals: measured.renewals,
        crash_failover_ms: measured.crash_failover.map(milliseconds),
        handover_ms: measured.handover.map(milliseconds),
        kill_after_deadline_ms: measured.kill_after_deadline.map(Offset::millis),
        next_after_kill_ms: measured.next_after_kill.map(Offset::millis),
        overlaps: measured.overlaps,
        epochs: measured.epochs.iter().map(|epoch| epoch.get()).collect(),
        picture: finale.picture,
    }
}

fn write(object: &impl Serialize) -> io::Result<()> {
    writeln!(io::stdout(), "{}", serde_json::to_string(object)?)
}

impl Audience for Json {
    fn act(&mut self, _: Act) -> io::Result<()> {
        Ok(())
    }

    fn event(&mut self, event: &Event, began: Instant) -> io::Result<()> {
        write(&object(event, began))
    }

    fn moment(&mut self, _: &Scene<'_>) -> io::Result<()> {
        Ok(())
    }

    fn verdict(&mut self, finale: &Finale<'_>) -> io::Result<()> {
        write(&summary(finale))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::{rehearsal, verdict::Verdict};
    use serde_json::{Value, json};

    #[test]
    fn an_event_has_what_applies_to_it_and_nothing_else() {
        let objects = rehearsal::events()
            .into_iter()
            .map(|event| serde_json::to_value(object(&event, rehearsal::BEGAN)));
        let objects = objects.map(Result::unwrap).collect::<Vec<Value>>();
        let first = |name: &str| objects.iter().find(|object| object["event"] == name).unwrap();
        assert_eq!(*first("crashed"), json!({"event": "crashed", "at_ms": 1600.0, "candidate": "A"}));
        assert_eq!(
            *first("work_began"),
            json!({"event": "work_began", "at_ms": 140.0, "candidate": "A", "epoch": 1795243930000_u64, "pid": 103})
        );
        assert_eq!(*first("left"), json!({"event": "left", "at_ms": 1602.0, "candidate": "A", "signal": 9}));
    }

    #[test]
    fn the_summary_has_every_figure() {
        let timeline = rehearsal::whole();
        let verdict = Verdict::on(&timeline, &rehearsal::evidence(), rehearsal::ttl(), None);
        let scene =
            Scene { timeline: &timeline, act: Act::Close, ttl: rehearsal::ttl(), now: rehearsal::at(9_300) };
        let finale = Finale { scene, verdict: &verdict, picture: Path::new("demo.svg") };
        let found = serde_json::to_value(summary(&finale)).unwrap();
        let expected = json!({
            "event": "summary", "held": true, "failures": [], "ttl_ms": 2000.0, "renewals": 3,
            "crash_failover_ms": 2010.0, "handover_ms": 330.0, "kill_after_deadline_ms": 1.0,
            "next_after_kill_ms": 431.0, "overlaps": 0, "picture": "demo.svg",
            "epochs": [1795243930000_u64, 1795243931000_u64, 1795243932000_u64, 1795243933000_u64],
        });
        assert_eq!(found, expected);
    }
}
