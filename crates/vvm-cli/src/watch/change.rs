//! [`Change`]: what happened to a slot, as far as somebody who only looks can tell.

use crate::calendar::{Moment, Span};
use ielections::{Epoch, Holder, Ttl};
use serde_json::{Value, json};
use std::{fmt, time::Duration};

/// Something that has changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Change {
    /// When it was seen, in Unix time: for people.
    pub(super) at: Duration,
    /// In which slot; none for what concerns all of them.
    pub(super) slot: Option<u32>,
    pub(super) what: What,
}

/// What has changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum What {
    /// The first look found a record.
    Held(Record),
    /// The first look found none.
    Free { last_epoch: Option<Epoch> },
    /// The first look found nothing of this name at all.
    Unknown,
    /// Nobody is to lead.
    Paused { by: String },
    /// After that, whoever waits may lead.
    Resumed,
    /// A new leadership.
    Leads { record: Record, after: Option<Holder> },
    /// The record is gone, and the slot is free.
    Released { epoch: Epoch },
    /// No renewal was seen for a TTL.
    Overdue { holder: Holder, silent: Duration },
    /// After that, one was seen.
    RenewsAgain { holder: Holder },
    /// The slot shows an older state than before, and goes on to.
    WentBack { from: Option<Epoch>, to: Option<Epoch> },
    /// The storage can't be read.
    Trouble { cause: String },
    /// It can, again.
    Works,
}

/// A leader's record, as much of it as people want.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Record {
    pub(super) holder: Holder,
    pub(super) epoch: Epoch,
    pub(super) ttl: Ttl,
}

impl What {
    /// Whether it is something that somebody may want to look into.
    pub(super) fn is_alarming(&self) -> bool {
        matches!(self, Self::Overdue { .. } | Self::WentBack { .. } | Self::Trouble { .. })
    }

    fn word(&self) -> &'static str {
        match self {
            Self::Held(_) => "held",
            Self::Free { .. } => "free",
            Self::Unknown => "unknown",
            Self::Paused { .. } => "paused",
            Self::Resumed => "resumed",
            Self::Leads { .. } => "leads",
            Self::Released { .. } => "released",
            Self::Overdue { .. } => "overdue",
            Self::RenewsAgain { .. } => "renews_again",
            Self::WentBack { .. } => "went_back",
            Self::Trouble { .. } => "trouble",
            Self::Works => "works_again",
        }
    }

    fn members(&self) -> Value {
        let of = |record: &Record| {
            let ttl_ms = record.ttl.get().as_millis() as u64;
            json!({"holder": record.holder.as_str(), "epoch": record.epoch.get(), "ttl_ms": ttl_ms})
        };
        match self {
            Self::Held(record) => of(record),
            Self::Leads { record, after } => {
                let mut members = of(record);
                members["after"] = after.as_ref().map(Holder::as_str).into();
                members
            }
            Self::Free { last_epoch } => json!({"epoch": last_epoch.map(Epoch::get)}),
            Self::Released { epoch } => json!({"epoch": epoch.get()}),
            Self::Overdue { holder, silent } => {
                json!({"holder": holder.as_str(), "silent_ms": silent.as_millis() as u64})
            }
            Self::RenewsAgain { holder } => json!({"holder": holder.as_str()}),
            Self::WentBack { from, to } => {
                json!({"from_epoch": from.map(Epoch::get), "epoch": to.map(Epoch::get)})
            }
            Self::Trouble { cause } => json!({"cause": cause}),
            Self::Paused { by } => json!({"by": by}),
            Self::Works | Self::Unknown | Self::Resumed => json!({}),
        }
    }
}

impl Change {
    /// One object on one line.
    pub(super) fn to_json(&self) -> String {
        let mut members = self.what.members();
        members["at"] = Moment(self.at).to_string().into();
        members["unix_ms"] = (self.at.as_millis() as u64).into();
        members["slot"] = self.slot.into();
        members["event"] = self.what.word().into();
        members["says"] = self.what.to_string().into();
        members.to_string()
    }
}

impl Change {
    /// One line for a screen, where the day is no news.
    pub(super) fn of_today(&self) -> String {
        let line = self.to_string();
        line.split_once('T').map_or(line.clone(), |(_, from_the_time_on)| from_the_time_on.to_owned())
    }
}

/// One line.
impl fmt::Display for Change {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}  ", Moment(self.at))?;
        self.slot.iter().try_for_each(|slot| write!(out, "slot {slot}: "))?;
        self.what.fmt(out)
    }
}

/// For people. What stands in a storage may hold anything, terminals' own commands too.
impl fmt::Display for What {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held(record) => write!(out, "held by {record}"),
            Self::Free { last_epoch: None } => out.write_str("free, and never led"),
            Self::Free { last_epoch: Some(epoch) } => write!(out, "free, last epoch {epoch}"),
            Self::Unknown => out.write_str("nobody has ever campaigned for this name: check --name"),
            Self::Paused { by } => write!(out, "paused by {}: nobody new leads", by.escape_debug()),
            Self::Resumed => out.write_str("resumed: whoever waits may lead"),
            Self::Leads { record, after: None } => write!(out, "leads: {record}"),
            Self::Leads { record, after: Some(after) } => {
                write!(out, "leads: {record}, after {}", readable(after))
            }
            Self::Released { epoch } => write!(out, "handed back, free, last epoch {epoch}"),
            Self::Overdue { holder, silent } => {
                let (holder, silent) = (readable(holder), Span(*silent));
                write!(out, "no renewal of {holder} seen for {silent}: others may take over")
            }
            Self::RenewsAgain { holder } => write!(out, "{} renews again", readable(holder)),
            Self::WentBack { from, to } => {
                let epoch = |epoch: &Option<Epoch>| epoch.map_or("none".into(), |epoch| epoch.to_string());
                let (from, to) = (epoch(from), epoch(to));
                write!(
                    out,
                    "the storage went back in time, from epoch {from} to {to}: restored from a backup?"
                )
            }
            Self::Trouble { cause } => write!(out, "can't look: {cause}; trying again"),
            Self::Works => out.write_str("can look again"),
        }
    }
}

impl fmt::Display for Record {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}, epoch {}, TTL {}", readable(&self.holder), self.epoch, self.ttl)
    }
}

/// Without anything that a terminal would act on.
pub(super) fn readable(holder: &Holder) -> impl fmt::Display + '_ {
    holder.as_str().escape_debug()
}
