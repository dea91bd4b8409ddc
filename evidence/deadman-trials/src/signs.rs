//! Signs of life: a file in which each thread of a spinning process writes the time at which it last ran.
//!
//! The end of a process depends on the scheduler, which must run each of its threads once more. Safety
//! depends on the last instruction of its threads.

use std::{fs, fs::File, hint, io, os::unix::fs::FileExt, path::Path};
use vvm_clock::{Instant, SystemClock};

/// The rounds between two signs: about 0.1 ms.
const ROUNDS: usize = 50_000;

const SIZE: usize = size_of::<u64>();

/// Spins, and writes signs to `file` at the place of thread `index`. Returns only after an error.
pub(crate) fn leave(file: &File, index: usize) -> io::Error {
    loop {
        for _ in 0..ROUNDS {
            hint::spin_loop();
        }
        let now = SystemClock::read().as_nanos().to_le_bytes();
        if let Err(error) = file.write_all_at(&now, (index * SIZE) as u64) {
            return error;
        }
    }
}

/// Returns the last sign of all threads, if there is one.
pub(crate) fn last(path: &Path) -> io::Result<Option<Instant>> {
    let signs = fs::read(path)?;
    let (signs, _) = signs.as_chunks::<SIZE>();
    Ok(signs.iter().map(|sign| Instant::from_nanos(u64::from_le_bytes(*sign))).max())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_sign_is_the_latest_of_all_threads() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(last(file.path()).unwrap(), None);
        for (index, sign) in [7_u64, 9, 8].into_iter().enumerate() {
            file.as_file().write_all_at(&sign.to_le_bytes(), (index * SIZE) as u64).unwrap();
        }
        assert_eq!(last(file.path()).unwrap(), Some(Instant::from_nanos(9)));
    }
}
