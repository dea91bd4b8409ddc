//! Where tests keep their files: in memory, where the machine has such a place.
//!
//! Tests are about elections, whose TTLs are a second or two in them, and not about the disk below. A disk on
//! which a build has just written gigabytes, or which is shared with strangers, has been seen to take 700 ms
//! for one fsync, and then leaderships are lost in tests about something else, as they should be on such a
//! disk. Nothing else differs: the file system is a real one, and what tests say of full and broken disks
//! they bring about themselves.

use rustix::fs::{StatVfsMountFlags, statvfs};
use std::path::Path;

/// A file system in memory on every Linux (shm_overview(7)).
const IN_MEMORY: &str = "/dev/shm";

/// What the hungriest step needs by far, a node of Cassandra.
const NEEDED_BYTES: u64 = 4 << 30;

/// The variable by which programs are told where temporary files go.
pub(crate) const VARIABLE: &str = "TMPDIR";

/// The place; none where somebody has chosen one already, or where there is no room for files, or for
/// programs, which some tests start from there.
pub(crate) fn place() -> Option<&'static str> {
    let is_chosen = std::env::var_os(VARIABLE).is_some();
    (!is_chosen && has_room(Path::new(IN_MEMORY), NEEDED_BYTES)).then_some(IN_MEMORY)
}

fn has_room(place: &Path, bytes: u64) -> bool {
    let unfit = StatVfsMountFlags::NOEXEC | StatVfsMountFlags::RDONLY;
    statvfs(place).is_ok_and(|found| {
        found.f_bavail.saturating_mul(found.f_frsize) >= bytes && !found.f_flag.intersects(unfit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_without_room_is_none() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        assert!(has_room(here, 1));
        assert!(!has_room(here, u64::MAX));
        assert!(!has_room(&here.join("nowhere"), 0));
        assert!(!has_room(Path::new("/proc"), 1), "there is no room at all");
    }
}
