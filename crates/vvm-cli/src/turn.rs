//! The turn of a start among those of the same line on this machine ([`LocalQueue`]). It waits in the process that the
//! user starts, before that has a host, a containment or a connection.

use crate::{
    announce::{is_json, is_quiet, say_text, write_event},
    once::OnceArgs,
    run::RunArgs,
    runtime::{Signals, ends_a_candidate},
};
use ielections::Holder;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::Signal,
};
use serde_json::json;
use std::{env, fs, io, time::Duration};
use vvm_clock::{Instant, SystemClock};
use vvm_host::{
    LocalDir,
    operate::{Admission, LocalQueue},
};
use vvm_orch::AcquireTimeout;

/// Between two looks of a start that waits: short beside the start of a host, and 50 starts cost 1 % of a core.
const PACE: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(crate) enum QueueOutcome {
    /// It becomes a candidate. Others wait behind the admission, if there is one.
    Candidate(Option<Admission>),
    Stopped(Signal),
    TimedOut,
}

/// Waits until it is the turn of this start, which began at `began`. `on_wait` is called once if it has to wait. A
/// start that ends soon in any case does not wait, nor does one that serves before it leads: a warm app, or HTTP.
/// Without a folder, or if the system refuses, there is no queue: the storage alone decides which candidate leads.
pub(crate) fn wait_for_turn(
    args: &RunArgs,
    once: Option<&OnceArgs>,
    holder: &Holder,
    began: Instant,
    on_wait: impl FnOnce(),
) -> io::Result<QueueOutcome> {
    let candidate = &args.candidate;
    let give_up_at = match candidate.acquire_timeout {
        AcquireTimeout::Within(timeout) => began.after(timeout),
        _ => Instant::NEVER,
    };
    let ends_soon = candidate.try_once || give_up_at == began;
    if ends_soon || args.warm || candidate.http.is_some() {
        return Ok(QueueOutcome::Candidate(None));
    }
    let dir = candidate.local_dir.as_ref().unwrap_or(&LocalDir::Usual);
    let period = once.map(|once| once.period.as_str()).unwrap_or_default();
    // The host tells why the folder can't be used.
    let queue = LocalQueue::join(dir, &line(args, once), candidate.slots.get(), period);
    let Ok(Some(queue)) = queue else { return Ok(QueueOutcome::Candidate(None)) };
    let mut queue = match queue.try_enter() {
        Ok(Err(queue)) => queue,
        admission => return Ok(QueueOutcome::Candidate(admission.ok().and_then(Result::ok))),
    };
    let mut signals = Signals::catch()?;
    say(args, holder);
    on_wait();
    loop {
        let now = SystemClock::read();
        if now >= give_up_at {
            return Ok(QueueOutcome::TimedOut);
        }
        let pause = Timespec::try_from(PACE.min(now.until(give_up_at))).ok();
        // After an error, this looks at everything as well.
        let _ = poll(&mut [PollFd::new(&signals, PollFlags::IN)], pause.as_ref());
        let caught = signals.pending().unwrap_or_default();
        if let Some(caught) = caught.iter().find(|caught| ends_a_candidate(caught.signal)) {
            return Ok(QueueOutcome::Stopped(caught.signal));
        }
        let admission = match queue.try_enter() {
            Ok(Err(waits)) => {
                queue = waits;
                continue;
            }
            admission => admission.ok().and_then(Result::ok),
        };
        // Later signals are the guardian's.
        let caught = signals.hand_over()?;
        let stop = caught.iter().find(|caught| ends_a_candidate(caught.signal));
        return Ok(
            stop.map_or(QueueOutcome::Candidate(admission), |caught| QueueOutcome::Stopped(caught.signal))
        );
    }
}

fn say(args: &RunArgs, holder: &Holder) {
    let name = &args.candidate.name;
    let what = "waiting for leadership behind other starts of this line on this machine";
    say_text!("{name}: {what}, as {holder}");
    if is_json() && !is_quiet() {
        let message = format!("{name}: {what}");
        write_event("info", "queued", json!({"name": name, "holder": holder.as_str(), "message": message}));
    }
}

/// Variables by which drivers find their server, by the beginnings of their names.
const OF_DRIVERS: [&str; 5] = ["AWS_", "AZURE_", "GOOGLE_", "KUBE", "HOME"];

/// Returns what starts have in common that wait for each other: the storage, as it is found from here, name, slots,
/// and a holder that was given. In doubt they differ, and don't wait for each other.
fn line(args: &RunArgs, once: Option<&OnceArgs>) -> String {
    let candidate = &args.candidate;
    let file = vvm_storage::url::files(&candidate.storage).into_iter().next();
    let file = file.and_then(|file| std::path::absolute(file).ok());
    let of_drivers = env::vars_os().filter(|(name, _)| {
        let name = name.to_string_lossy();
        OF_DRIVERS.iter().any(|beginning| name.starts_with(beginning))
    });
    let mut of_drivers = of_drivers.collect::<Vec<_>>();
    of_drivers.sort();
    let namespaces = ["net", "mnt"].map(|kind| fs::read_link(format!("/proc/self/ns/{kind}")).ok());
    let given = (&candidate.storage, &candidate.name, candidate.slots, &candidate.holder);
    format!("{:?}", (once.is_some(), given, file, of_drivers, namespaces))
}
