use crate::report::Failure;
use harness::{Level, Program, Running, Trial};
use rustix::{
    io::Errno,
    process::{Pid, Signal, kill_process},
};
use servers::{
    objects::CREDENTIALS,
    owned::{DIES_WITH_ITS_OWNER, run},
};
use std::{
    env, fs, io,
    process::{Command, Stdio},
    time::Duration,
};
use vvm_clock::{Instant, SystemClock};

/// Each command holds the lock for as long as it, or what it leaves behind, lives.
const SCRIPT: &str = "exec 9>>\"$0\"; flock -n 9 && echo alone || echo beside another; exec sleep 1000";

pub(crate) const TTL: [&str; 2] = ["--ttl", "20s"];

pub(crate) fn program(level: Level) -> Result<Program, Failure> {
    let vvm = env::current_exe()?.with_file_name("vvm");
    if !vvm.exists() {
        let how = "build it with `cargo build --profile dist -p vvm-cli`";
        return Err(format!("{} is missing; {how}", vvm.display()).into());
    }
    Ok(Program::new(vvm.display().to_string().leak(), level))
}

pub(crate) fn init_storage(url: &str) -> Result<(), Failure> {
    let mut init = Command::new(env::current_exe()?.with_file_name("vvm"));
    init.envs(CREDENTIALS).args(["init-storage", "--storage", url]).stdin(Stdio::null());
    run(&mut init, "vvm beside it")?;
    Ok(())
}

/// Ends so many leaders, one after the other, by `strike`, each with a standby. Returns the seconds from each instant
/// that `strike` returns until the standby's command works.
pub(crate) fn take_overs(
    rounds: usize,
    mut start: impl FnMut(usize) -> Result<Running, Failure>,
    mut strike: impl FnMut(&Running) -> Result<Instant, Failure>,
) -> Result<Vec<f64>, Failure> {
    let mut leader = start(0)?;
    leader.stdout.wait_for("alone");
    let mut samples = Vec::new();
    for round in 1..=rounds {
        let mut standby = start(round)?;
        standby.stderr.wait_for("waiting for leadership");
        let ended_at = strike(&leader)?;
        standby.stdout.wait_for("alone");
        samples.push(SystemClock::read().since(ended_at).as_secs_f64());
        leader.finish();
        leader = standby;
    }
    Ok(samples)
}

pub(crate) fn strike_host(leader: &Running, signal: Signal) -> Result<Instant, Failure> {
    let host = leader.host();
    let struck_at = SystemClock::read();
    kill_process(host, signal)?;
    Ok(struck_at)
}

/// Starts a candidate through the command `before`, with `options`. It dies with this process. Its command
/// prints `alone` if no other holds the lock.
pub(crate) fn start(trial: &Trial, before: &[&str], options: &[&str]) -> Result<Running, Failure> {
    let lock = trial.folder().join("lock").display().to_string();
    start_command(trial, before, &[&TTL[..], options].concat(), &["sh", "-c", SCRIPT, &lock])
}

pub(crate) fn start_command(
    trial: &Trial,
    before: &[&str],
    options: &[&str],
    command: &[&str],
) -> Result<Running, Failure> {
    let candidate = trial.run(command.iter().copied()).with(options.iter().copied());
    Ok(candidate.through([&DIES_WITH_ITS_OWNER[..], before].concat()).start())
}

pub(crate) struct Used {
    /// PSS, in bytes: a shared page is divided among its users.
    pub(crate) proportional: u64,
    /// Resident memory, in bytes: shared pages count more than once.
    pub(crate) resident: u64,
    pub(crate) cpu: Duration,
}

pub(crate) struct ProcessTree(pub(crate) Vec<Pid>);

impl ProcessTree {
    pub(crate) fn of(ancestor: i32) -> Self {
        let mut all: Vec<Pid> = Pid::from_raw(ancestor).into_iter().collect();
        let mut next = 0;
        while let Some(pid) = all.get(next) {
            // Any of its threads may have started a process.
            let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
            let children: Vec<_> =
                threads.map(|thread| fs::read_to_string(thread.path().join("children"))).collect();
            let children = children.iter().flatten().flat_map(|children| children.split_whitespace());
            all.extend(children.filter_map(|child| Pid::from_raw(child.parse().ok()?)));
            next += 1;
        }
        Self(all)
    }

    pub(crate) fn used(&self) -> Result<Used, Failure> {
        let mut sum = Used { proportional: 0, resident: 0, cpu: Duration::ZERO };
        for process in self.0.iter().map(ToString::to_string) {
            sum.proportional += proportional_bytes_of(&process)?;
            sum.resident += resident_bytes_of(&process)?;
            sum.cpu += cpu_time_of(&process)?;
        }
        Ok(sum)
    }
}

fn unreadable(path: &str) -> impl Fn(io::Error) -> Failure {
    move |cause| {
        format!("{path} could not be read: {cause}. Memory and CPU are measured on Linux only").into()
    }
}

pub(crate) fn resident_bytes() -> Result<u64, Failure> {
    resident_bytes_of("self")
}

fn resident_bytes_of(process: &str) -> Result<u64, Failure> {
    let path = format!("/proc/{process}/statm");
    let text = fs::read_to_string(&path).map_err(unreadable(&path))?;
    Ok(number_at(&path, &text, 1)? * rustix::param::page_size() as u64)
}

fn proportional_bytes_of(process: &str) -> Result<u64, Failure> {
    let path = format!("/proc/{process}/smaps_rollup");
    let text = fs::read_to_string(&path).map_err(unreadable(&path))?;
    let (_, kilobytes) = text.split_once("\nPss:").unwrap_or(("", &text));
    Ok(number_at(&path, kilobytes, 0)? * 1024)
}

/// CPU time of all threads that run now, in nanoseconds; `getrusage` is less exact.
pub(crate) fn cpu_time() -> Result<Duration, Failure> {
    cpu_time_of("self")
}

fn cpu_time_of(process: &str) -> Result<Duration, Failure> {
    let threads = format!("/proc/{process}/task");
    let mut sum = Duration::ZERO;
    for thread in fs::read_dir(&threads).map_err(unreadable(&threads))? {
        let path = thread.map_err(unreadable(&threads))?.path().join("schedstat").display().to_string();
        match fs::read_to_string(&path) {
            Ok(text) => sum += Duration::from_nanos(number_at(&path, &text, 0)?),
            Err(gone) if gone.kind() == io::ErrorKind::NotFound => {}
            Err(gone) if gone.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => {}
            Err(cause) => return Err(unreadable(&path)(cause)),
        }
    }
    Ok(sum)
}

fn number_at(path: &str, text: &str, index: usize) -> Result<u64, Failure> {
    let number = text.split_whitespace().nth(index).and_then(|field| field.parse().ok());
    number.ok_or_else(|| format!("{path} has an unknown form: {text}").into())
}

#[cfg(test)]
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
