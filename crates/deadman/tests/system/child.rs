//! A process that arms its deadman for the scenario in its first argument. It prints the deadline in nanoseconds on the
//! machine's clock. A scenario that outlives the deadline prints its results afterwards.
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "a test may start what it likes")]

use rustix::process::{Resource, Rlimit, setrlimit};
use std::{error::Error, fs, hint, thread, time::Duration};
use vvm_clock::{Alarm, Instant, SystemClock};
use vvm_deadman::{ArmedDeadline, Deadman, KernelTimer, Subject};

/// Long enough for the parent's action between the message and the deadline.
const SOON: Duration = Duration::from_millis(250);
const LATER: Duration = Duration::from_millis(500);

fn main() -> Result<(), Box<dyn Error>> {
    let scenario = std::env::args().nth(1).unwrap_or_default();
    match scenario.as_str() {
        "idle" => print_deadline(arm_in(&system()?, SOON)?.0),
        "spinning" => {
            let (at, _armed) = arm_in(&system()?, SOON)?;
            print_deadline(at);
            for _ in 0..thread::available_parallelism()?.get() {
                thread::spawn(|| {
                    loop {
                        hint::spin_loop();
                    }
                });
            }
        }
        "dropped" => {
            let deadman = system()?;
            let (at, armed) = arm_in(&deadman, SOON)?;
            drop(armed);
            drop(deadman);
            print_deadline(at);
        }
        "panicked" => {
            let deadman = system()?;
            let (at, armed) = arm_in(&deadman, SOON)?;
            print_deadline(at);
            let owner = thread::spawn(move || {
                let _held = (deadman, armed);
                panic!("planted, with an armed deadline");
            });
            assert!(owner.join().is_err());
        }
        "confirmed" => {
            let deadman = system()?;
            let (at, armed) = arm_in(&deadman, SOON)?;
            let later = at.after(LATER - SOON);
            deadman.confirm([(&armed, later)]);
            print_deadline(later);
        }
        "disarmed" => {
            let deadman = system()?;
            let (at, armed) = arm_in(&deadman, SOON)?;
            deadman.disarm(armed);
            print_deadline(at);
            return outlive(at);
        }
        "cleaned-up" => {
            let deadman = system()?;
            let (at, armed) = arm_in(&deadman, SOON)?;
            deadman.disarm(armed);
            drop(deadman);
            print_deadline(at);
            println!("{} threads", threads()?);
            println!("{} timers", fs::read_to_string("/proc/self/timers")?.lines().count());
            return outlive(at);
        }
        "without-timers" => {
            setrlimit(Resource::Sigpending, Rlimit { current: Some(0), maximum: Some(0) })?;
            print_deadline(SystemClock::read());
            println!("{:?}", system().err().map(|refusal| refusal.to_string()));
            return outlive(SystemClock::read());
        }
        "kernel-timer-dropped" => {
            let timer = KernelTimer::new()?;
            print_deadline(set_in(&timer, SOON)?);
            drop(timer);
        }
        "kernel-timer-moved" => {
            let timer = KernelTimer::new()?;
            let at = set_in(&timer, SOON)?.after(LATER - SOON);
            timer.set(Some(at))?;
            print_deadline(at);
        }
        "kernel-timer-in-the-past" => {
            print_deadline(Instant::ORIGIN);
            KernelTimer::new()?.set(Some(Instant::ORIGIN))?;
        }
        unknown => return Err(format!("there is no scenario \"{unknown}\"").into()),
    }
    loop {
        thread::park();
    }
}

fn system() -> Result<Deadman, Box<dyn Error>> {
    Ok(Deadman::system()?)
}

/// Returns the number of this process's threads. The kernel may still list a joined one, with the flag
/// `PF_EXITING` of its `sched.h` in the ninth field of proc_pid_stat(5).
fn threads() -> Result<usize, Box<dyn Error>> {
    const EXITING: u64 = 0x4;
    let mut count = 0;
    for task in fs::read_dir("/proc/self/task")? {
        // It may end after it was listed.
        let Ok(stat) = fs::read_to_string(task?.path().join("stat")) else { continue };
        let (_, fields) = stat.rsplit_once(") ").ok_or("no name")?;
        let flags = fields.split(' ').nth(6).ok_or("no flags")?.parse::<u64>()?;
        count += usize::from(flags & EXITING == 0);
    }
    Ok(count)
}

fn arm_in(deadman: &Deadman, span: Duration) -> Result<(Instant, ArmedDeadline), Box<dyn Error>> {
    let at = deadman.now().after(span);
    let subject = Subject { key: "payroll\n1".into(), holder: "here".into(), epoch: 1 };
    Ok((at, deadman.arm(subject, at)?))
}

fn set_in(timer: &KernelTimer, span: Duration) -> Result<Instant, Box<dyn Error>> {
    let at = SystemClock::read().after(span);
    timer.set(Some(at))?;
    Ok(at)
}

fn print_deadline(deadline: Instant) {
    println!("{}", deadline.as_nanos());
}

/// Waits until long after both layers would have acted.
fn outlive(deadline: Instant) -> Result<(), Box<dyn Error>> {
    let alarm = Alarm::new()?;
    alarm.set(deadline.after(vvm_deadman::SECOND_LAYER_BEHIND * 10));
    alarm.wait();
    println!("alive");
    Ok(())
}
