use ielections::{Epoch, Holder, Incarnation, Standing};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use std::{
    ffi::{OsStr, OsString},
    fmt,
};
use vvm_clock::{Instant, SystemClock};
use vvm_containment::{DeathNotice, signal_of};
use vvm_host::operate::LeftBehind;
use vvm_storage::ElectionKey;

pub(crate) fn is_ours(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b"VVM_")
}

/// Returns the `inherited` environment without variables of `vvm` and without those `withheld`.
pub(crate) fn inherited(
    inherited: impl IntoIterator<Item = (OsString, OsString)>,
    withheld: &[&str],
) -> impl Iterator<Item = (OsString, OsString)> {
    let is_kept = move |(name, _): &(OsString, OsString)| {
        !is_ours(name) && !withheld.iter().any(|withheld| name == withheld)
    };
    inherited.into_iter().filter(is_kept)
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Leadership {
    pub(crate) name: String,
    pub(crate) slot: u32,
    pub(crate) epoch: Epoch,
    pub(crate) holder: Holder,
    pub(crate) incarnation: Incarnation,
}

impl Leadership {
    pub(crate) fn new(name: &str, holder: &Holder, slot: &ElectionKey, standing: &Standing) -> Self {
        Self {
            name: name.into(),
            slot: slot.slot.get().get(),
            epoch: standing.epoch(),
            holder: holder.clone(),
            incarnation: standing.incarnation(),
        }
    }

    pub(crate) fn environment(
        &self,
        inherited: impl IntoIterator<Item = (OsString, OsString)>,
        withheld: &[&str],
    ) -> Vec<(OsString, OsString)> {
        let Self { name, slot, epoch, holder, incarnation } = self;
        let (slot, epoch, incarnation) = (slot.to_string(), epoch.to_string(), incarnation.to_string());
        environment([name, &slot, &epoch, holder.as_str(), &incarnation], inherited, withheld)
    }
}

/// Returns the environment of the command: the `inherited` one with name, slot, epoch, holder and incarnation `of` a
/// leadership, without other variables of `vvm` and without those `withheld`.
pub(crate) fn environment(
    of: [&str; 5],
    inherited: impl IntoIterator<Item = (OsString, OsString)>,
    withheld: &[&str],
) -> Vec<(OsString, OsString)> {
    let names =
        ["NAME", "SLOT", "EPOCH", "HOLDER", "INCARNATION"].map(|name| format!("VVM_LEADER_{name}").into());
    self::inherited(inherited, withheld).chain(names.into_iter().zip(of.map(Into::into))).collect()
}

impl fmt::Display for Leadership {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, slot, epoch, holder, .. } = self;
        write!(out, "{name} slot {slot}: leading, epoch {epoch}, as {holder}")
    }
}

/// A message to the process that acts when this one is dead: the guardian, or the demoter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ToGuardian {
    /// A claim is about to be sent, for this leadership. `None`: the storage has no record of this host. The
    /// guardian has the record released if the host dies.
    Claim(Option<RecordId>),
    /// A leadership began. The guardian reports it if the host dies.
    Leading(RecordId),
    /// The keeper has died, so the host can't prove that the command has ended, and releases nothing. The
    /// guardian can, once it has no child left.
    Unproven,
    State(HostState),
    Farewell(ExitWish),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(into = "[u64; 4]", try_from = "[u64; 4]")]
pub(crate) struct RecordId {
    pub(crate) slot: u32,
    pub(crate) epoch: Epoch,
    pub(crate) incarnation: Incarnation,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct HostReport {
    /// The last claim that may have been applied and not been released.
    pub(crate) claim: Option<RecordId>,
    /// When that was heard, on a clock that does not jump.
    pub(crate) since: Instant,
    pub(crate) leading: Option<RecordId>,
    pub(crate) unproven: bool,
    pub(crate) farewell: Option<ExitWish>,
}

impl HostReport {
    pub(crate) fn hear(&mut self, message: ToGuardian) {
        match message {
            ToGuardian::Claim(claim) => (self.claim, self.since) = (claim, SystemClock::read()),
            ToGuardian::Unproven => self.unproven = true,
            ToGuardian::Leading(leading) => self.leading = Some(leading),
            ToGuardian::Farewell(farewell) => self.farewell = Some(farewell),
            ToGuardian::State(_) => {}
        }
    }
}

impl Default for HostReport {
    fn default() -> Self {
        Self { claim: None, since: Instant::ORIGIN, leading: None, unproven: false, farewell: None }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ExitWish {
    Exit(u8),
    DieOf(Signal),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct HostState {
    pub(crate) activity: Activity,
    pub(crate) leading: Option<(u32, Epoch)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Activity {
    Waiting,
    Leading,
    Restarting,
    /// Another campaign may follow.
    Stopping,
    /// No other campaign follows.
    StoppingForGood,
    Ended,
}

const ACTIVITIES: [(Activity, &str, &str); 6] = [
    (Activity::Waiting, "waiting for leadership", ""),
    (Activity::Leading, "leading", ""),
    (Activity::Restarting, "restarting", ", no command runs"),
    (Activity::Stopping, "stopping", ""),
    (Activity::StoppingForGood, "stopping", ""),
    (Activity::Ended, "ended", ""),
];

impl fmt::Display for HostState {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (_, before, after) = ACTIVITIES[self.activity as usize];
        match self.leading {
            None => out.write_str(before),
            Some((slot, epoch)) => write!(out, "{before}: slot {slot}, epoch {epoch}{after}"),
        }
    }
}

impl From<ToGuardian> for DeathNotice {
    fn from(message: ToGuardian) -> Self {
        let (kind, words) = match message {
            ToGuardian::Leading(leading) => (0, leading.into()),
            ToGuardian::Claim(claim) => (4, claim.map_or([0; 4], Into::into)),
            ToGuardian::Farewell(ExitWish::Exit(status)) => (1, [u64::from(status), 0, 0, 0]),
            ToGuardian::Farewell(ExitWish::DieOf(signal)) => {
                (2, [u64::from(signal.as_raw().unsigned_abs()), 0, 0, 0])
            }
            ToGuardian::Unproven => (5, [0; 4]),
            // No epoch is 0.
            ToGuardian::State(HostState { activity, leading }) => {
                let (slot, epoch) = leading.map_or((0, 0), |(slot, epoch)| (slot, epoch.get()));
                (3, [u64::from(slot), epoch, activity as u64, 0])
            }
        };
        Self { kind, words }
    }
}

impl From<LeftBehind> for RecordId {
    fn from(record: LeftBehind) -> Self {
        let LeftBehind { slot, epoch, incarnation, .. } = record;
        Self { slot: slot.get().get(), epoch, incarnation }
    }
}

impl From<&Leadership> for RecordId {
    fn from(leadership: &Leadership) -> Self {
        let Leadership { slot, epoch, incarnation, .. } = *leadership;
        Self { slot, epoch, incarnation }
    }
}

impl From<RecordId> for [u64; 4] {
    fn from(RecordId { slot, epoch, incarnation }: RecordId) -> Self {
        let number = u128::from_le_bytes(*incarnation.as_bytes());
        [u64::from(slot), epoch.get(), number as u64, (number >> 64) as u64]
    }
}

impl TryFrom<[u64; 4]> for RecordId {
    type Error = &'static str;

    fn try_from([slot, epoch, low, high]: [u64; 4]) -> Result<Self, Self::Error> {
        let number = u128::from(low) | u128::from(high) << 64;
        let slot = u32::try_from(slot).map_err(|_| "no slot")?;
        let epoch = Epoch::new(epoch).map_err(|_| "no epoch")?;
        Ok(Self { slot, epoch, incarnation: Incarnation::from_bytes(number.to_le_bytes()) })
    }
}

impl ToGuardian {
    /// Returns `None` for a message of another version.
    pub(crate) fn read(note: DeathNotice) -> Option<Self> {
        let [first, second, third, _] = note.words;
        let leading = || Some((u32::try_from(first).ok()?, Epoch::new(second).ok()?));
        Some(match note.kind {
            0 => Self::Leading(note.words.try_into().ok()?),
            1 => Self::Farewell(ExitWish::Exit(u8::try_from(first).ok()?)),
            2 => Self::Farewell(ExitWish::DieOf(signal_of(i32::try_from(first).ok()?)?)),
            3 => {
                let (activity, ..) = *ACTIVITIES.get(usize::try_from(third).ok()?)?;
                Self::State(HostState { activity, leading: leading() })
            }
            4 => Self::Claim(note.words.try_into().ok()),
            5 => Self::Unproven,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environment_has_the_leadership_and_no_other_variable_of_vvm() {
        let leadership = Leadership {
            name: "payroll".into(),
            slot: 2,
            epoch: Epoch::new(17).unwrap(),
            holder: Holder::new("here:1").unwrap(),
            incarnation: Incarnation::from_bytes([0xab; 16]),
        };
        let inherited = [
            ("PATH", "/bin"),
            ("VVM_SECRET", "x"),
            ("VVM_LEADER_EPOCH", "16"),
            ("VVMX", "kept"),
            ("KEY", "secret"),
            ("KEYS", "kept"),
        ];
        let inherited = inherited.map(|(name, value)| (name.into(), value.into()));
        let environment = leadership.environment(inherited, &["KEY", "TOKEN"]);
        let expected = [
            ("PATH", "/bin"),
            ("VVMX", "kept"),
            ("KEYS", "kept"),
            ("VVM_LEADER_NAME", "payroll"),
            ("VVM_LEADER_SLOT", "2"),
            ("VVM_LEADER_EPOCH", "17"),
            ("VVM_LEADER_HOLDER", "here:1"),
            ("VVM_LEADER_INCARNATION", &"ab".repeat(16)),
        ];
        assert_eq!(environment, expected.map(|(name, value)| (name.into(), value.into())));
    }

    #[test]
    fn every_note_is_read_back() {
        let incarnation = Incarnation::from_bytes(std::array::from_fn(|place| place as u8));
        let epoch = Epoch::new(Epoch::MAX).unwrap();
        let leading = RecordId { slot: u32::MAX, epoch, incarnation };
        let mut messages = vec![
            ToGuardian::Leading(leading),
            ToGuardian::Claim(Some(leading)),
            ToGuardian::Claim(None),
            ToGuardian::Unproven,
            ToGuardian::Farewell(ExitWish::Exit(255)),
            ToGuardian::Farewell(ExitWish::DieOf(Signal::INT)),
        ];
        for (activity, ..) in ACTIVITIES {
            for leading in [None, Some((7, epoch))] {
                messages.push(ToGuardian::State(HostState { activity, leading }));
            }
        }
        for message in messages {
            assert_eq!(ToGuardian::read(message.into()), Some(message));
        }
        assert_eq!(ToGuardian::read(DeathNotice { kind: 6, words: [0; 4] }), None);
        assert_eq!(ToGuardian::read(DeathNotice { kind: 3, words: [0, 0, 7, 0] }), None);
    }
}
