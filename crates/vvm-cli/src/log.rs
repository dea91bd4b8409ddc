//! Writes `tracing` events to standard error.
//!
//! Events of `vvm` itself have the target `vvm`: text shows their message, if they have one; JSON all fields.
//! `VVM_LOG` selects events of the libraries.

use crate::announce::{is_json, say, write_event, write_line};
use serde_json::{Map, Value};
use std::io;
use tracing::{Event, Level, Subscriber};
use tracing_serde::fields::AsMap as _;
use tracing_subscriber::{
    EnvFilter, Layer,
    filter::{FilterExt as _, LevelFilter, filter_fn},
    layer::{Context, SubscriberExt as _},
    util::SubscriberInitExt as _,
};

/// Levels and TARGET=LEVEL pairs, separated by commas, such as `debug` or `ielections=trace`.
const VARIABLE: &str = "VVM_LOG";

/// Errors of our crates, but not of the orchestrator, whose problem is in the last line of a run. Nothing of
/// other libraries: an error of a storage's client is one attempt of many, and `vvm` reports those that
/// matter.
const DEFAULT: &str =
    "off,vvm_clock=error,vvm_deadman=error,primary_only=error,vvm_host=error,vvm_storage=error";

/// The target of events of `vvm` itself.
const OURS: &str = "vvm";

/// A value of `VVM_LOG` that selects nothing sensible.
#[derive(Debug, thiserror::Error)]
#[error("VVM_LOG={0}: write off, error, warn, info, debug or trace, or TARGET=LEVEL, separated by commas")]
pub(crate) struct InvalidFilter(String);

/// Checks `VVM_LOG`.
///
/// # Errors
/// [`InvalidFilter`]. A bare word that is no level is refused: tracing takes it for a target, and would log
/// nothing.
pub(crate) fn check() -> Result<(), InvalidFilter> {
    let Some(filter) = std::env::var_os(VARIABLE) else { return Ok(()) };
    let filter = filter.to_string_lossy();
    let is_word = |part: &str| part.contains('=') || part.trim().parse::<LevelFilter>().is_ok();
    let is_valid = filter.is_empty() || filter.split(',').all(is_word) && EnvFilter::try_new(&filter).is_ok();
    if is_valid { Ok(()) } else { Err(InvalidFilter(filter.into_owned())) }
}

/// Starts to write events. [`check`] has accepted `VVM_LOG`.
pub(crate) fn start() {
    let filter = std::env::var(VARIABLE).ok().filter(|filter| !filter.is_empty());
    let filter = EnvFilter::new(filter.as_deref().unwrap_or(DEFAULT));
    // By the whole target: as a directive, `vvm` would also match `vvm_host`.
    let ours = || filter_fn(|event| event.target() == OURS && *event.level() <= Level::INFO);
    // Fails only if there is a subscriber already.
    let _is_first = if is_json() {
        tracing_subscriber::registry().with(Objects.with_filter(filter.or(ours()))).try_init().is_ok()
    } else {
        let not_ours = filter_fn(|event| event.target() != OURS);
        let others = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(|| Droppable);
        let others = others.with_filter(filter.and(not_ours));
        tracing_subscriber::registry().with(others).with(Lines.with_filter(ours())).try_init().is_ok()
    };
}

/// Writes whole lines, and drops those that can't be written at once.
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

/// Writes the message of each event of ours. An event without a message is for programs alone.
struct Lines;

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if let Some(line) = members(event).get("message").and_then(Value::as_str) {
            say!("{line}");
        }
    }
}

/// Writes each event as an object.
struct Objects;

impl<S: Subscriber> Layer<S> for Objects {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut members = members(event);
        let metadata = event.metadata();
        if metadata.target() != OURS {
            members.insert("target".into(), metadata.target().into());
        }
        let word = members.remove("event");
        let word = word.as_ref().and_then(Value::as_str).unwrap_or("log");
        write_event(&metadata.level().to_string().to_lowercase(), word, members);
    }
}

/// Returns the fields of an event.
fn members(event: &Event<'_>) -> Map<String, Value> {
    // Numbers and texts with text keys: serialization can't fail.
    serde_json::to_value(event.field_map())
        .ok()
        .and_then(|fields| fields.as_object().cloned())
        .unwrap_or_default()
}
