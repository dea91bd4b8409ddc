//! [`Change`]: a change of a slot or a name, as an observer sees it.

use crate::calendar::{Moment, Span};
use ielections::{Entry, Epoch, Holder, Ttl};
use serde::{Serialize, Serializer};
use std::{fmt, time::Duration};

/// A change that was seen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Change {
    /// When it was seen, in Unix time.
    pub(super) at: Duration,
    /// None if it concerns all slots.
    pub(super) slot: Option<u32>,
    pub(super) what: What,
}

/// What has changed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum What {
    /// The first look found a record.
    Held(Record),
    /// The first look found no record.
    Free {
        epoch: Option<u64>,
    },
    /// The first look found that no candidate has used the name.
    Unknown,
    Paused {
        by: String,
    },
    Resumed,
    /// A new leadership.
    Leads {
        #[serde(flatten)]
        record: Record,
        after: Option<String>,
    },
    Released {
        epoch: u64,
    },
    /// No renewal was seen for a TTL.
    Overdue {
        holder: String,
        silent_ms: u64,
    },
    /// A renewal was seen after that.
    RenewsAgain {
        holder: String,
    },
    /// Several looks found an older state than before.
    WentBack {
        from_epoch: Option<u64>,
        epoch: Option<u64>,
    },
    /// The storage can't be read.
    #[serde(rename = "trouble")]
    Unreadable {
        cause: String,
    },
    #[serde(rename = "works_again")]
    ReadableAgain,
}

/// A leader's record.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(super) struct Record {
    holder: String,
    epoch: u64,
    #[serde(rename = "ttl_ms", serialize_with = "milliseconds")]
    ttl: Ttl,
}

fn milliseconds<S: Serializer>(ttl: &Ttl, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u128(ttl.get().as_millis())
}

impl Record {
    pub(super) fn of(entry: &Entry) -> Self {
        Self { holder: entry.holder.to_string(), epoch: entry.epoch.get(), ttl: entry.ttl }
    }
}

impl What {
    /// Returns whether an operator should look into it.
    pub(super) fn is_alarming(&self) -> bool {
        matches!(self, Self::Overdue { .. } | Self::WentBack { .. } | Self::Unreadable { .. })
    }

    pub(super) fn free(last_epoch: Option<Epoch>) -> Self {
        Self::Free { epoch: last_epoch.map(Epoch::get) }
    }
}

impl Change {
    /// Returns one JSON object on one line.
    pub(super) fn to_json(&self) -> serde_json::Result<String> {
        let mut members = serde_json::to_value(&self.what)?;
        members["at"] = Moment(self.at).to_string().into();
        members["unix_ms"] = (self.at.as_millis() as u64).into();
        members["slot"] = self.slot.into();
        members["says"] = self.what.to_string().into();
        Ok(members.to_string())
    }

    /// Returns the line without the date.
    pub(super) fn without_date(&self) -> String {
        let line = self.to_string();
        line.split_once('T').map_or(line.clone(), |(_, from_the_time_on)| from_the_time_on.to_owned())
    }
}

impl fmt::Display for Change {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}  ", Moment(self.at))?;
        self.slot.iter().try_for_each(|slot| write!(out, "slot {slot}: "))?;
        self.what.fmt(out)
    }
}

/// Texts from the storage are escaped: they may contain control sequences of terminals.
impl fmt::Display for What {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held(record) => write!(out, "held by {record}"),
            Self::Free { epoch: None } => out.write_str("free, and never led"),
            Self::Free { epoch: Some(epoch) } => write!(out, "free, last epoch {epoch}"),
            Self::Unknown => out.write_str("no candidate has ever used this name: check --name"),
            Self::Paused { by } => write!(out, "paused by {}: no new leader begins", by.escape_debug()),
            Self::Resumed => out.write_str("resumed: candidates may lead again"),
            Self::Leads { record, after: None } => write!(out, "leads: {record}"),
            Self::Leads { record, after: Some(after) } => {
                write!(out, "leads: {record}, after {}", after.escape_debug())
            }
            Self::Released { epoch } => write!(out, "released, free, last epoch {epoch}"),
            Self::Overdue { holder, silent_ms } => {
                let (holder, silent) = (holder.escape_debug(), Span(Duration::from_millis(*silent_ms)));
                write!(out, "no renewal of {holder} seen for {silent}: candidates may take over")
            }
            Self::RenewsAgain { holder } => write!(out, "{} renews again", holder.escape_debug()),
            Self::WentBack { from_epoch, epoch } => {
                let text = |epoch: &Option<u64>| epoch.map_or("none".into(), |epoch| epoch.to_string());
                let (from, to) = (text(from_epoch), text(epoch));
                write!(out, "the storage shows an older epoch, {to} after {from}: restored from a backup?")
            }
            Self::Unreadable { cause } => write!(out, "can't be read: {cause}; trying again"),
            Self::ReadableAgain => out.write_str("can be read again"),
        }
    }
}

impl fmt::Display for Record {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}, epoch {}, TTL {}", self.holder.escape_debug(), self.epoch, self.ttl)
    }
}

/// Returns the name without anything that a terminal would act on.
pub(super) fn readable(holder: &Holder) -> String {
    holder.as_str().escape_debug().to_string()
}
