//! [`Leadership`]: the leadership that a command or hook works under, and its environment.

use ielections::{Epoch, Holder, Incarnation, Standing};
use std::{
    ffi::{OsStr, OsString},
    fmt,
};
use vvm_storage::ElectionKey;

/// Whether a variable is for `vvm`, and not for what it starts.
pub(crate) fn is_ours(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b"VVM_")
}

/// A leadership of this process.
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

    /// Returns the environment of the command: the `inherited` one with the leadership, without other
    /// variables of `vvm` and without those `withheld`.
    pub(crate) fn environment(
        &self,
        inherited: impl IntoIterator<Item = (OsString, OsString)>,
        withheld: &[&str],
    ) -> Vec<(OsString, OsString)> {
        let kept = inherited
            .into_iter()
            .filter(|(name, _)| !is_ours(name) && !withheld.iter().any(|withheld| name == withheld));
        let added = [
            ("VVM_LEADER_NAME", self.name.clone()),
            ("VVM_LEADER_SLOT", self.slot.to_string()),
            ("VVM_LEADER_EPOCH", self.epoch.to_string()),
            ("VVM_LEADER_HOLDER", self.holder.to_string()),
            ("VVM_LEADER_INCARNATION", self.incarnation.to_string()),
        ];
        kept.chain(added.map(|(name, value)| (name.into(), value.into()))).collect()
    }
}

/// The line that reports it.
impl fmt::Display for Leadership {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, slot, epoch, holder, .. } = self;
        write!(out, "{name} slot {slot}: leading, epoch {epoch}, as {holder}")
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
}
