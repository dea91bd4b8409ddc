//! Resident memory and CPU time of this process or another one, from /proc.

use std::{fs, io, time::Duration};

/// The kernel's account could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResourcesError {
    #[error("{path} could not be read: {cause}. Memory and CPU are measured on Linux only")]
    Read { path: String, cause: io::Error },
    #[error("{path} has an unknown form: {text}")]
    Understand { path: String, text: String },
}

/// Bytes resident in memory.
pub(crate) fn resident_bytes() -> Result<u64, ResourcesError> {
    resident_bytes_of("self")
}

/// The same for another process.
pub(crate) fn resident_bytes_of(process: &str) -> Result<u64, ResourcesError> {
    Ok(field(&format!("/proc/{process}/statm"), 1)? * rustix::param::page_size() as u64)
}

/// The memory of a process, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Memory {
    /// PSS: a shared page is divided among its processes.
    pub(crate) proportional: u64,
    /// Pages that no other process shares.
    pub(crate) private: u64,
}

/// The memory of another process.
pub(crate) fn memory_of(process: i32) -> Result<Memory, ResourcesError> {
    let path = format!("/proc/{process}/smaps_rollup");
    let text = read(&path)?;
    let bytes = |name: &str| number_behind(&text, name).map(|kilobytes| kilobytes * 1024);
    let memory = (|| {
        let private = bytes("Private_Clean:")? + bytes("Private_Dirty:")?;
        Some(Memory { proportional: bytes("Pss:")?, private })
    })();
    memory.ok_or(ResourcesError::Understand { path, text })
}

/// Proportional memory (PSS) of another process.
pub(crate) fn proportional_bytes_of(process: i32) -> Result<u64, ResourcesError> {
    memory_of(process).map(|memory| memory.proportional)
}

/// CPU time of all threads that run now, in nanoseconds; `getrusage` is less exact.
pub(crate) fn cpu_time() -> Result<Duration, ResourcesError> {
    cpu_time_of("self")
}

/// The same for another process.
pub(crate) fn cpu_time_of(process: &str) -> Result<Duration, ResourcesError> {
    let each = files_of_threads(process, "schedstat")?.into_iter();
    each.map(|path| Ok(Duration::from_nanos(field(&path, 0)?))).sum()
}

/// How often all threads of a process that run now have stopped waiting.
pub(crate) fn wake_ups_of(process: &str) -> Result<u64, ResourcesError> {
    let each = files_of_threads(process, "status")?.into_iter();
    each.map(|path| {
        let text = read(&path)?;
        let number = number_behind(&text, "voluntary_ctxt_switches:");
        number.ok_or(ResourcesError::Understand { path, text })
    })
    .sum()
}

/// The paths of this file of each thread.
fn files_of_threads(process: &str, file: &str) -> Result<Vec<String>, ResourcesError> {
    let threads = format!("/proc/{process}/task");
    let unreadable = |cause| ResourcesError::Read { path: threads.clone(), cause };
    let each = fs::read_dir(&threads).map_err(unreadable)?;
    each.map(|thread| Ok(thread.map_err(unreadable)?.path().join(file).display().to_string())).collect()
}

/// The number behind a name at the beginning of a line.
fn number_behind(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok())
}

fn read(path: &str) -> Result<String, ResourcesError> {
    fs::read_to_string(path).map_err(|cause| ResourcesError::Read { path: path.to_owned(), cause })
}

fn field(path: &str, index: usize) -> Result<u64, ResourcesError> {
    let text = read(path)?;
    let number = text.split_whitespace().nth(index).and_then(|field| field.parse().ok());
    number.ok_or_else(|| ResourcesError::Understand { path: path.to_owned(), text })
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_touched_is_resident() {
        let before = resident_bytes().unwrap();
        let touched = std::hint::black_box(vec![1_u8; 64 << 20]);
        assert!(resident_bytes().unwrap() >= before + (60 << 20));
        drop(touched);
    }

    #[test]
    fn work_takes_cpu_time() {
        let clock = vvm_clock::SystemClock::read;
        let (started, used) = (clock(), cpu_time().unwrap());
        while cpu_time().unwrap() < used + Duration::from_millis(5) {
            assert!(clock().since(started) < Duration::from_secs(60), "no CPU time was counted");
        }
    }
}
