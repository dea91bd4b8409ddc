//! Where tests keep their files: in memory, where the machine has such a place.
//!
//! Tests use TTLs of a second or two. A disk that is busy with a build has been seen to take 700 ms for one
//! fsync, which costs leaderships. Tests of full and broken disks make these themselves.

use rustix::fs::{StatVfsMountFlags, statvfs};
use std::path::Path;

/// A file system in memory on every Linux (shm_overview(7)).
const IN_MEMORY: &str = "/dev/shm";

/// The need of the largest step, a node of Cassandra.
const NEEDED_BYTES: u64 = 4 << 30;

/// The variable that names the folder of temporary files.
pub(crate) const VARIABLE: &str = "TMPDIR";

/// Returns the place. `None` if `TMPDIR` is set already, or if there is no room, or if programs can't be
/// started from there, as some tests do.
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
