//! What is logged by `tracing`, on standard error: what the libraries below have to say, for whoever asks
//! with `VVM_LOG`; and for programs (`--log-format json`) also our own changes of state, which people are
//! told in lines of their own.

use crate::announce::{Readers, readers, say, write_line, write_object};
use serde_json::{Map, Value};
use std::{fmt, io};
use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    EnvFilter, Layer,
    filter::{FilterExt as _, filter_fn},
    layer::{Context, SubscriberExt as _},
    util::SubscriberInitExt as _,
};

/// In the form of `tracing_subscriber::EnvFilter`, e.g. `debug` or `ielections=trace`.
const VARIABLE: &str = "VVM_LOG";

/// Errors of ours; but not the orchestrator's, whose every problem ends up in the last line of a run. Of the
/// libraries that others made, nothing: what a storage's client takes for an error is one attempt of many,
/// and if it matters it comes to us, is judged, and is said in words of our own.
const USUAL: &str =
    "off,vvm_clock=error,vvm_deadman=error,primary_only=error,vvm_host=error,vvm_storage=error";

/// The target of our own changes of state.
pub(crate) const OURS: &str = "vvm";

/// Starts to write.
pub(crate) fn start() {
    let wanted = std::env::var(VARIABLE).unwrap_or_else(|_| USUAL.into());
    let wanted = EnvFilter::try_new(&wanted).map(|_| wanted).unwrap_or_else(|refusal| {
        say!("{VARIABLE}: {refusal}: write a level, or TARGET=LEVEL,…");
        USUAL.into()
    });
    // Refused only where there is one already, and then that one is what somebody wanted.
    let _is_first = match readers() {
        Readers::People => {
            let others = tracing_subscriber::fmt::layer().with_ansi(false).without_time();
            let others = others.with_writer(|| Droppable);
            let not_ours = filter_fn(|event| event.target() != OURS);
            let others = others.with_filter(EnvFilter::new(wanted).and(not_ours));
            let ours = filter_fn(|event| event.target() == OURS && *event.level() <= Level::INFO);
            let ours = Lines.with_filter(ours);
            tracing_subscriber::registry().with(others).with(ours).try_init().is_ok()
        }
        Readers::Programs => {
            // By the whole name: a filter's `vvm` would take in every crate whose name begins so.
            let ours = filter_fn(|event| event.target() == OURS && *event.level() <= Level::INFO);
            let filter = EnvFilter::new(wanted).or(ours);
            tracing_subscriber::registry().with(Objects.with_filter(filter)).try_init().is_ok()
        }
    };
}

/// A line at a time, and what can't be written at once is dropped: a log must not hold up a renewal.
struct Droppable;

impl io::Write for Droppable {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        write_line(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The message of each event of ours, as a line for people. An event without one is for programs.
struct Lines;

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut members = Members(Map::new());
        event.record(&mut members);
        if let Some(line) = members.0.get("message").and_then(Value::as_str) {
            say!("{line}");
        }
    }
}

/// Each event as an object.
struct Objects;

impl<S: Subscriber> Layer<S> for Objects {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut members = Members(Map::new());
        event.record(&mut members);
        let Members(mut members) = members;
        let metadata = event.metadata();
        if metadata.target() != OURS {
            members.insert("target".into(), metadata.target().into());
        }
        let word = members.remove("event");
        let word = word.as_ref().and_then(Value::as_str).unwrap_or("log");
        write_object(&metadata.level().to_string().to_lowercase(), word, members);
    }
}

/// The fields of an event.
struct Members(Map<String, Value>);

impl Visit for Members {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name().into(), format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().into(), value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(field.name().into(), value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.0.insert(field.name().into(), value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.0.insert(field.name().into(), value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.0.insert(field.name().into(), value.into());
    }
}
