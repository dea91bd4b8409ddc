//! What this process uses, as the kernel counts it: resident memory and CPU time.

use std::{fs, io, time::Duration};

/// Linux keeps no account in the form that is asked for here.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResourcesError {
    #[error("{path} could not be read: {cause}. Memory and CPU are measured on Linux only")]
    Read { path: String, cause: io::Error },
    #[error("{path} is not understood: {text:?}")]
    Understand { path: String, text: String },
}

/// Bytes resident in memory.
pub(crate) fn resident_bytes() -> Result<u64, ResourcesError> {
    Ok(field("/proc/self/statm", 1)? * rustix::param::page_size() as u64)
}

/// CPU time of all threads that run now. To the nanosecond, which `getrusage` is not.
pub(crate) fn cpu_time() -> Result<Duration, ResourcesError> {
    const THREADS: &str = "/proc/self/task";
    let unreadable = |cause| ResourcesError::Read { path: THREADS.to_owned(), cause };
    let mut sum = Duration::ZERO;
    for thread in fs::read_dir(THREADS).map_err(unreadable)? {
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
        let clock = clock::SystemClock::read;
        let (started, used) = (clock(), cpu_time().unwrap());
        while cpu_time().unwrap() < used + Duration::from_millis(5) {
            assert!(clock().since(started) < Duration::from_secs(60), "no CPU time was counted");
        }
    }
}
