//! The name of a Lease. A plain name is shown as it is; any other by its digest.
//!
//! | partition | Lease |
//! |---|---|
//! | slot 1 of `payroll` | `payroll` |
//! | slot 2, the slot count, the pause, the step-down request, the late end of slot 1 | `payroll.2`, `.slots`, `.pause`, `.step-down`, `.1.ended` |
//! | anything else | `vvm.` and 64 hexadecimal digits |

use crate::key::{
    KEY_PREFIX_LATE_END, KEY_PREFIX_PAUSE, KEY_PREFIX_SLOT_COUNT, KEY_PREFIX_STEP_DOWN,
    KEY_PREFIX_VVM_LEADER, Partition,
};
use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};

/// A Lease's name may have 253 characters, some of which are for what follows the name.
const LONGEST_NAME: usize = 200;

const LONGEST_LABEL: usize = 63;

const SLOT_COUNT: &str = ".slots";

const DIGEST: &str = "vvm.";

struct Parts<'a> {
    name: &'a [u8],
    ending: String,
}

fn parts(at: &Partition) -> Option<Parts<'_>> {
    let (&prefix, rest) = at.as_bytes().split_first()?;
    let setting = |ending: &str| Parts { name: rest, ending: ending.into() };
    match prefix {
        KEY_PREFIX_VVM_LEADER | KEY_PREFIX_LATE_END => {
            let (name, slot) = rest.split_last_chunk::<{ size_of::<u32>() }>()?;
            let ending = match u32::from_be_bytes(*slot) {
                slot if prefix == KEY_PREFIX_LATE_END => format!(".{slot}.ended"),
                1 => String::new(),
                slot => format!(".{slot}"),
            };
            Some(Parts { name, ending })
        }
        KEY_PREFIX_SLOT_COUNT => Some(setting(SLOT_COUNT)),
        KEY_PREFIX_PAUSE => Some(setting(".pause")),
        KEY_PREFIX_STEP_DOWN => Some(setting(".step-down")),
        _ => None,
    }
}

pub(super) fn is_slot(at: &Partition) -> bool {
    at.as_bytes().first() == Some(&KEY_PREFIX_VVM_LEADER)
}

/// Each value has its whole key, which is compared when it is read.
pub(super) fn name(at: &Partition) -> String {
    match parts(at) {
        Some(Parts { name, ending }) if let Some(plain) = plain(name, LONGEST_NAME) => {
            format!("{plain}{ending}")
        }
        _ => format!("{DIGEST}{}", digest(at.as_bytes())),
    }
}

/// The partition of a slot count whose Lease has this name, unless a digest names it.
pub(super) fn slot_count(lease: &str) -> Option<Partition> {
    let plain = plain(lease.strip_suffix(SLOT_COUNT)?.as_bytes(), LONGEST_NAME)?;
    Some(Partition::from_bytes([&[KEY_PREFIX_SLOT_COUNT], plain.as_bytes()].concat()))
}

pub(super) fn is_digest(lease: &str) -> bool {
    lease.strip_prefix(DIGEST).is_some_and(|digits| digits.len() == 64)
}

pub(super) fn label(at: &Partition) -> String {
    let name = parts(at).map_or(at.as_bytes(), |parts| parts.name);
    plain(name, LONGEST_LABEL).map_or_else(|| digest(name)[..LONGEST_LABEL].into(), str::to_owned)
}

/// Returns the name if it has the characters of a DNS label and is no longer than `longest`. It has no dot, so an
/// ending such as `.2` is no part of it, and two partitions never share a Lease.
fn plain(name: &[u8], longest: usize) -> Option<&str> {
    let is_letter = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let ends_well = name.first().is_some_and(is_letter) && name.last().is_some_and(is_letter);
    let is_plain =
        ends_well && name.len() <= longest && name.iter().all(|byte| is_letter(byte) || *byte == b'-');
    std::str::from_utf8(name).ok().filter(|_| is_plain)
}

pub(super) fn digest(bytes: &[u8]) -> String {
    HEXLOWER.encode(&Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(prefix: u8, name: &[u8], slot: &[u8]) -> String {
        name_and_label(prefix, name, slot).0
    }

    fn name_and_label(prefix: u8, cluster: &[u8], slot: &[u8]) -> (String, String) {
        let at = Partition::from_bytes([&[prefix], cluster, slot].concat());
        (name(&at), label(&at))
    }

    #[test]
    fn plain_name_is_the_name_of_its_first_lease() {
        assert_eq!(named(1, b"payroll", &[0, 0, 0, 1]), "payroll");
        assert_eq!(named(1, b"payroll", &[0, 0, 1, 0]), "payroll.256");
        assert_eq!(named(2, b"payroll", &[]), "payroll.slots");
        assert_eq!(slot_count("payroll.slots"), Some(Partition::from_bytes(*b"\x02payroll")));
        assert!(
            ["payroll", "payroll.2", ".slots", "a.b.slots"].iter().all(|other| slot_count(other).is_none())
        );
        assert_eq!(named(3, b"payroll", &[]), "payroll.pause");
        assert_eq!(named(4, b"payroll", &[]), "payroll.step-down");
        assert_eq!(name_and_label(4, b"pay-roll9", &[]).1, "pay-roll9");
        let late_end = name_and_label(5, b"payroll", &[0, 0, 0, 1]);
        assert_eq!(late_end, ("payroll.1.ended".into(), "payroll".into()));
    }

    #[test]
    fn odd_and_long_names_have_digests_that_the_server_accepts() {
        let odd: [&[u8]; 8] =
            [b"", b"a.b", b"A", b"-a", b"a-", "ä".as_bytes(), b"a_b", &[b'a'; LONGEST_NAME + 1]];
        let mut names: Vec<_> = odd.iter().map(|odd| named(1, odd, &[0, 0, 0, 1])).collect();
        for name in &names {
            assert!(name.len() == 68 && is_digest(name), "{name}");
        }
        names.push(named(9, b"unknown", &[]));
        names.sort();
        names.dedup();
        assert_eq!(names.len(), odd.len() + 1);
        let (long, label) = name_and_label(1, &[b'a'; LONGEST_NAME], &[255; 4]);
        assert!(long.starts_with("aaa") && long.len() <= 253 && label.len() == LONGEST_LABEL, "{label}");
    }
}
