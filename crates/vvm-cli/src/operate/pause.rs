//! `vvm pause` and `vvm resume`: nobody leads a name meanwhile.
//!
//! What a successful `vvm pause` guarantees, and why, is said at `requests::may_work`; its part of it is the
//! order: first the pause is written, then each slot is seen to be nobody's, by linearizable reads.

use super::{LOOK, Refusal, StorageInspector, conclude, new_ask, slots::Occupied, tell};
use crate::{
    announce::say,
    calendar::{Moment, Span},
    cli::args::{PauseArgs, ResumeArgs, Wait},
};
use ielections::{Holder, ReadError, WriteError};
use std::{process::ExitCode, time::Duration};
use vvm_clock::{Instant, SystemWallClock, WallClock as _};
use vvm_host::operate::{InspectError, Purpose};
use vvm_storage::Pause;

/// How often a write is tried that is not confirmed.
const ATTEMPTS: u32 = 5;

/// Between two of them.
const PAUSE: Duration = Duration::from_millis(500);

/// `vvm pause`.
pub(crate) fn pause(args: &PauseArgs) -> ExitCode {
    conclude((&args.storage, &args.name), Purpose::Ask, async |desk| pause_and_wait(desk, args).await)
}

/// `vvm resume`.
pub(crate) fn resume(args: &ResumeArgs) -> ExitCode {
    conclude((&args.storage, &args.name), Purpose::Ask, async |desk| take_back(desk, args).await)
}

async fn pause_and_wait(desk: &StorageInspector, args: &PauseArgs) -> Result<(), Refusal> {
    let by = by(args)?;
    desk.slots().await?;
    let (pause, is_ours) = written(desk, &by).await?;
    desk.wake_candidates(args.local_dir.as_ref());
    let since = Moment(pause.since_unix_epoch());
    match is_ours {
        true => tell(desk, format_args!("paused by {}", pause.by())),
        false => tell(desk, format_args!("paused already, by {}, since {since}", pause.by())),
    }
    let began = desk.clock.now();
    let give_up_at = match args.wait {
        Wait::No => return Ok(()),
        Wait::For(patience) => began.after(patience),
    };
    // Counted after the pause was written: who settles the count after this, campaigns after this.
    let mut occupied = Occupied::perhaps(desk.slots().await?, desk.clock.clone());
    let mut said = false;
    loop {
        match occupied.look(desk).await {
            Ok(()) if occupied.is_clear() => break,
            // Still to be seen.
            Ok(()) | Err(Refusal::Inspect(InspectError::Read(ReadError::Unavailable(_)))) => {}
            Err(refusal) => return Err(refusal),
        }
        if !std::mem::replace(&mut said, true) {
            let holders = occupied.holders();
            say!(
                "{}: waiting until nobody leads: {holders} (Ctrl-C ends the waiting, not the pause)",
                desk.name
            );
        }
        if desk.clock.now() >= give_up_at {
            return Err(Refusal::Unfinished(format!(
                "{} is paused, but not everybody has stopped: {}. The pause stands: nobody new begins; call `vvm pause` \
                 again to go on waiting, or `vvm resume`",
                desk.name,
                occupied.holders()
            )));
        }
        desk.clock.sleep_until(desk.clock.now().after(LOOK).min(give_up_at)).await;
    }
    // Somebody may have resumed meanwhile, and then none of it counts.
    match desk.storage.standing_pause(&desk.cluster).await? {
        Some(stands) if stands == pause => {}
        _ => {
            return Err(Refusal::Unfinished(format!("{} was resumed by somebody else meanwhile", desk.name)));
        }
    }
    let took = Span(desk.clock.now().since(began));
    tell(desk, format_args!("nobody leads, and nobody will until `vvm resume` (after {took})"));
    Ok(())
}

async fn take_back(desk: &StorageInspector, args: &ResumeArgs) -> Result<(), Refusal> {
    desk.slots().await?;
    for attempt in 1.. {
        let Some(pause) = desk.storage.standing_pause(&desk.cluster).await? else {
            desk.wake_candidates(args.local_dir.as_ref());
            tell(desk, if attempt == 1 { "not paused" } else { "resumed" });
            return Ok(());
        };
        match desk.storage.resume(&desk.cluster, &pause).await {
            Ok(true) => {
                desk.wake_candidates(args.local_dir.as_ref());
                let since = SystemWallClock.since_unix_epoch().saturating_sub(pause.since_unix_epoch());
                tell(desk, format_args!("resumed; had been paused by {} for {}", pause.by(), Span(since)));
                return Ok(());
            }
            // Gone, or not known: the next look tells.
            Ok(false) => {}
            Err(refusal) => again(desk, attempt, refusal).await?,
        }
    }
    Ok(())
}

/// The pause that stands, once one is certain to, and whether it is ours.
async fn written(desk: &StorageInspector, by: &Holder) -> Result<(Pause, bool), Refusal> {
    let ask = new_ask();
    let mut attempt = 0;
    loop {
        attempt += 1;
        // The same request each time: whichever of the attempts lands is ours.
        match desk.storage.pause(&desk.cluster, by, ask).await {
            Ok((pause, is_ours)) => return Ok((pause.clone(), is_ours || pause.is(ask))),
            Err(refusal) => again(desk, attempt, refusal).await?,
        }
    }
}

/// A pause before the next attempt, unless there shall be none.
async fn again(desk: &StorageInspector, attempt: u32, refusal: WriteError) -> Result<(), Refusal> {
    let is_passing = matches!(refusal, WriteError::NotApplied(_) | WriteError::Unknown(_));
    if !is_passing || attempt >= ATTEMPTS {
        return Err(refusal.into());
    }
    desk.clock.sleep_until(Instant::after(desk.clock.now(), PAUSE)).await;
    Ok(())
}

/// Who pauses, and why, in the words that everybody gets to see.
fn by(args: &PauseArgs) -> Result<Holder, Refusal> {
    let who = args.by.clone().unwrap_or_else(|| {
        let user = std::env::var("USER").ok().filter(|user| !user.is_empty());
        let user = user.unwrap_or_else(|| format!("user {}", rustix::process::getuid().as_raw()));
        format!("{user}@{}", rustix::system::uname().nodename().to_string_lossy())
    });
    let text = args.reason.as_ref().map_or_else(|| who.clone(), |reason| format!("{who}: {reason}"));
    Holder::new(text).map_err(|_| {
        let left = Holder::MAX_BYTES.saturating_sub(who.len() + ": ".len());
        Refusal::Misuse(format!("--reason: too long: at most {left} bytes beside {who}"))
    })
}
