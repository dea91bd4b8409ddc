//! [`Freezer`]: a control group whose processes are frozen together.

use std::{
    cell::Cell,
    fs, io,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};
use vvm_clock::{Instant, SystemClock};

/// The duration of a freeze.
const FROZEN: Duration = Duration::from_millis(500);

/// The time between two freezes, in milliseconds. Most attempts end in between.
const THAWED_MILLIS: std::ops::Range<u64> = 5_000..15_000;

/// The interval between two checks of the processes.
const PACE: Duration = Duration::from_millis(50);

/// The group. Dropping it removes it; it must be empty then.
#[derive(Debug)]
pub(super) struct Freezer {
    group: PathBuf,
    next: Cell<Instant>,
}

impl Freezer {
    /// # Errors
    /// If there are no control groups, or this process may not create one.
    pub(super) fn new() -> io::Result<Self> {
        let group = own_group()?.join(format!("vvm-test-timed-{}", std::process::id()));
        fs::create_dir(&group)?;
        Ok(Self { group, next: Cell::new(later()) })
    }

    /// Returns `command`, started in the group.
    pub(super) fn enter(&self, command: &Command) -> Command {
        let mut entering = Command::new("sh");
        entering.args(["-c", "echo 0 > \"$0/cgroup.procs\" && exec \"$@\""]).arg(&self.group);
        entering.arg(command.get_program()).args(command.get_args());
        entering.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        entering
    }

    /// Freezes the group if it is time, and waits a moment.
    ///
    /// # Errors
    /// If the group was removed.
    pub(super) fn freeze_now_and_then(&self) -> io::Result<()> {
        if SystemClock::read() < self.next.get() {
            SystemClock::block_for(PACE);
            return Ok(());
        }
        self.set("1")?;
        SystemClock::block_for(FROZEN);
        self.set("0")?;
        self.next.set(later());
        Ok(())
    }

    fn set(&self, frozen: &str) -> io::Result<()> {
        fs::write(self.group.join("cgroup.freeze"), frozen)
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        // Tests in which guardian and host are killed leave empty groups of commands.
        for group in fs::read_dir(&self.group).into_iter().flatten().flatten() {
            let _is_file = fs::remove_dir(group.path());
        }
        // A group with a process remains. Its name shows its origin.
        let _busy = fs::remove_dir(&self.group);
    }
}

fn later() -> Instant {
    SystemClock::read().after(Duration::from_millis(fastrand::u64(THAWED_MILLIS)))
}

/// Returns the folder of the group of this process.
fn own_group() -> io::Result<PathBuf> {
    let missing = || io::Error::from(io::ErrorKind::NotFound);
    let groups = fs::read_to_string("/proc/self/cgroup")?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/")).ok_or_else(missing)?;
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    let is_unified = |line: &&str| line.split(' ').nth(2) == Some("cgroup2");
    let mount =
        mounts.lines().find(is_unified).and_then(|line| line.split(' ').nth(1)).ok_or_else(missing)?;
    Ok(Path::new(mount).join(group))
}
