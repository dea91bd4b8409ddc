//! What the command finds in its environment: ours, without what is only ours, and with the leadership.

use ielections::{Epoch, Holder, Incarnation};
use std::ffi::{OsStr, OsString};

/// Whatever begins like this is for `vvm`: its configuration, and what it alone calls so.
const OURS: &[u8] = b"VVM_";

/// Whether a variable is for `vvm`, and not for what it starts.
pub(crate) fn is_ours(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(OURS)
}

/// The leadership that a worker works under.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Leadership {
    pub(crate) name: String,
    pub(crate) slot: u32,
    pub(crate) epoch: Epoch,
    pub(crate) holder: Holder,
    pub(crate) incarnation: Incarnation,
}

impl Leadership {
    /// The environment of a worker, out of that of this process, without the variables `withheld`.
    pub(crate) fn environment(
        &self,
        inherited: impl IntoIterator<Item = (OsString, OsString)>,
        withheld: &[&str],
    ) -> Vec<(OsString, OsString)> {
        let kept = inherited
            .into_iter()
            .filter(|(name, _)| !is_ours(name) && !withheld.iter().any(|withheld| name == withheld));
        let told = [
            ("VVM_LEADER_NAME", self.name.clone()),
            ("VVM_LEADER_SLOT", self.slot.to_string()),
            ("VVM_LEADER_EPOCH", self.epoch.to_string()),
            ("VVM_LEADER_HOLDER", self.holder.to_string()),
            ("VVM_LEADER_INCARNATION", self.incarnation.to_string()),
        ];
        kept.chain(told.map(|(name, value)| (name.into(), value.into()))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_is_taken_out_and_the_leadership_put_in() {
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
