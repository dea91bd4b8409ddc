//! The messages between a host and a warm app, as lines of JSON. `docs/warm.md` lists them for users.
#![allow(missing_docs, reason = "docs/warm.md explains the fields")]

use ielections::Epoch;
use serde::{Deserialize, Serialize};
use vvm_clock::Instant;

/// The version that both sides say in `hello`.
pub const VERSION: u32 = 1;

/// The longest line, with its end: a page. Every message is far shorter.
pub const LONGEST_LINE: usize = 4096;

/// To the app. Each is one line.
#[derive(Clone, PartialEq, Eq, Serialize, Debug)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToApp {
    /// The first message.
    Hello {
        version: u32,
        name: String,
        holder: String,
        ttl_ms: u64,
        /// By the clock of the deadlines, so that an app with another clock notices.
        now: Millis,
        /// How often it has to say `alive` while it leads, if it has to.
        #[serde(skip_serializing_if = "Option::is_none")]
        alive_within_ms: Option<u64>,
    },
    /// This participant leads from now on.
    Lead { slot: u32, epoch: Decimal, stop_by: Millis, kill_at: Millis },
    /// A renewal moved the deadlines, or a loss did.
    Renewed { epoch: Decimal, stop_by: Millis, kill_at: Millis },
    /// No renewal was confirmed for half a TTL.
    AtRisk { epoch: Decimal },
    /// Stop the work, then say `stopped`.
    Stop { epoch: Decimal, reason: Reason, stop_by: Millis, kill_at: Millis },
    /// The last message: why this connection is closed.
    Refused { reason: String },
}

/// From the app. Unknown fields are ignored.
#[derive(Clone, PartialEq, Eq, Hash, Deserialize, Debug)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FromApp {
    /// The first message.
    Hello { version: u32 },
    /// Whether this participant could lead.
    Ready { ready: bool },
    /// It has received `lead`, and works.
    Leading { epoch: Decimal },
    /// It still works.
    Alive { epoch: Decimal },
    /// It wants to lead no more, and waits for `stop`.
    Resign { epoch: Decimal },
    /// Its work has stopped.
    Stopped { epoch: Decimal },
    /// Its work has ended with an error, and may have left something behind.
    Failed { epoch: Decimal, reason: Box<str> },
    /// Of a later version.
    #[serde(other)]
    Unknown,
}

/// Why a leadership ends.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// It is lost, or could not be renewed in time.
    Lost,
    /// An operator asked for a step-down or a pause.
    StepDown,
    /// `vvm` ends.
    Terminating,
    /// The app resigned.
    Resigned,
    /// The app is not ready any more.
    NotReady,
}

/// An epoch. As text, because numbers of 64 bits are not exact in every language.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Deserialize, Serialize, Debug)]
#[serde(try_from = "String", into = "String")]
pub struct Decimal(pub Epoch);

impl TryFrom<String> for Decimal {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let epoch = text.parse().ok().and_then(|number| Epoch::new(number).ok());
        epoch.map(Self).ok_or("an epoch is a decimal number in quotes")
    }
}

impl From<Decimal> for String {
    fn from(Decimal(epoch): Decimal) -> Self {
        epoch.get().to_string()
    }
}

/// An instant, as milliseconds of CLOCK_BOOTTIME, rounded down: never later than the deadline that it stands for.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Debug)]
pub struct Millis(u64);

impl From<Instant> for Millis {
    fn from(at: Instant) -> Self {
        Self(at.as_nanos() / 1_000_000)
    }
}

impl ToApp {
    pub fn to_line(&self) -> Vec<u8> {
        // Only a map with keys that are no text, or a failing `Serialize`, has no JSON.
        let mut line = serde_json::to_vec(self).unwrap_or_default();
        line.push(b'\n');
        line
    }
}

/// A line that is no message.
#[derive(Debug, thiserror::Error)]
#[error("no message of the warm protocol: {0}")]
pub struct NoMessage(#[from] serde_json::Error);

impl FromApp {
    /// Reads a line. Fails if it is no JSON, or lacks a field.
    pub fn of_line(line: &[u8]) -> Result<Self, NoMessage> {
        Ok(serde_json::from_slice(line)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn messages_to_the_app_are_lines_of_json() {
        let at = Instant::ORIGIN.after(Duration::from_micros(12_345_678_999));
        let epoch = Decimal(Epoch::new(Epoch::MAX).unwrap());
        let lead = ToApp::Lead { slot: 1, epoch, stop_by: at.into(), kill_at: Instant::NEVER.into() };
        let line = String::from_utf8(lead.to_line()).unwrap();
        assert_eq!(
            line,
            "{\"type\":\"lead\",\"slot\":1,\"epoch\":\"9223372036854775807\",\"stop_by\":12345678,\
             \"kill_at\":18446744073709}\n"
        );
        let stop = ToApp::Stop { epoch, reason: Reason::StepDown, stop_by: at.into(), kill_at: at.into() };
        assert!(String::from_utf8(stop.to_line()).unwrap().contains("\"reason\":\"step_down\""));
    }

    #[test]
    fn messages_of_the_app_are_read_with_unknown_fields() {
        let epoch = Decimal(Epoch::new(7).unwrap());
        let table = [
            (r#"{"type":"hello","version":1,"client":"python"}"#, FromApp::Hello { version: 1 }),
            (r#"{"ready":false,"type":"ready"}"#, FromApp::Ready { ready: false }),
            (r#"{"type":"leading","epoch":"7"}"#, FromApp::Leading { epoch }),
            (r#"{"type":"resign","epoch":"7","why":"tired"}"#, FromApp::Resign { epoch }),
            (r#"{"type":"stopped","epoch":"7"}"#, FromApp::Stopped { epoch }),
            (r#"{"type":"alive","epoch":"7"}"#, FromApp::Alive { epoch }),
            (
                r#"{"type":"failed","epoch":"7","reason":"disk"}"#,
                FromApp::Failed { epoch, reason: "disk".into() },
            ),
            (r#"{"type":"later"}"#, FromApp::Unknown),
        ];
        for (line, message) in table {
            assert_eq!(FromApp::of_line(line.as_bytes()).unwrap(), message, "{line}");
        }
        for line in
            ["", "ready", r#"{"type":"stopped","epoch":7}"#, r#"{"type":"stopped"}"#, r#"{"epoch":"7"}"#]
        {
            assert!(FromApp::of_line(line.as_bytes()).is_err(), "{line}");
        }
    }
}
