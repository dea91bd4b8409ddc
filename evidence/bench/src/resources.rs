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

/// Proportional memory (PSS): a shared page is divided among its processes.
pub(crate) fn proportional_bytes_of(process: i32) -> Result<u64, ResourcesError> {
    let path = format!("/proc/{process}/smaps_rollup");
    let text =
        fs::read_to_string(&path).map_err(|cause| ResourcesError::Read { path: path.clone(), cause })?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("Pss:")?.split_whitespace().next()?.parse::<u64>().ok());
    line.map(|kilobytes| kilobytes * 1024).ok_or(ResourcesError::Understand { path, text })
}

/// CPU time of all threads that run now, in nanoseconds; `getrusage` is less exact.
pub(crate) fn cpu_time() -> Result<Duration, ResourcesError> {
    cpu_time_of("self")
}

/// The same for another process.
pub(crate) fn cpu_time_of(process: &str) -> Result<Duration, ResourcesError> {
    let threads = format!("/proc/{process}/task");
    let unreadable = |cause| ResourcesError::Read { path: threads.clone(), cause };
    let mut sum = Duration::ZERO;
    for thread in fs::read_dir(&threads).map_err(unreadable)? {
        let path = thread.map_err(unreadable)?.path().join("schedstat");
        sum += Duration::from_nanos(field(&path.display().to_string(), 0)?);
    }
    Ok(sum)
}

fn field(path: &str, index: usize) -> Result<u64, ResourcesError> {
    let text =
        fs::read_to_string(path).map_err(|cause| ResourcesError::Read { path: path.to_owned(), cause })?;
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
