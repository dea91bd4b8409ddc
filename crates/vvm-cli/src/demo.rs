//! `vvm demo`: real `vvm run` processes on one SQLite file; one leads, crashes, stops, hangs, and the next one takes
//! over. Then the workers' own logs are compared.
//!
//! - `script`: what is done when; `act`: what to call it; `cut`: why it does not go on.
//! - `candidate`, `worker`: the processes. `place`, `record`, `heartbeat`, `hanging`, `watch`: what is seen of them.
//! - `event`, `timeline`: what has happened. `check`, `measured`, `verdict`: what that proves.
//! - `args`: how it is asked for. `audience`, `draw_terminal`, `draw_svg`: how it is shown.

mod act;
pub(crate) mod args;
mod audience;
mod candidate;
mod check;
mod cut;
mod draw_svg;
pub(crate) mod draw_terminal;
mod event;
mod hanging;
mod heartbeat;
mod measured;
mod place;
mod record;
#[cfg(test)]
mod rehearsal;
mod script;
mod timeline;
mod verdict;
mod watch;
mod worker;

pub(crate) use candidate::main as candidate_main;
pub(crate) use worker::main as worker_main;

use crate::{
    announce::say,
    cli::exit,
    report::{Report, Unwritable},
    signals::Signals,
};
use act::Act;
use args::DemoArgs;
use audience::Finale;
use candidate::Folder;
use check::Evidence;
use cut::Cut;
use draw_svg::Picture;
use draw_terminal::Scene;
use event::Lane;
use heartbeat::{Reader, Unreadable};
use ielections::Ttl;
use place::Place;
use record::{Record, RecordError};
use rustix::process::{getpid, set_child_subreaper};
use std::{env, fs, io, path::PathBuf, process::ExitCode};
use tempfile::{Builder, TempDir};
use timeline::Timeline;
use verdict::Verdict;
use vvm_clock::SystemClock;
use vvm_containment::{Family, ForeignProcFs};
use vvm_storage::BeyondLimits;
use watch::Watch;

/// Why there is no verdict.
#[derive(Debug, thiserror::Error)]
enum DemoError {
    #[error(transparent)]
    Ttl(#[from] BeyondLimits),
    #[error(transparent)]
    ProcFs(#[from] ForeignProcFs),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error("the demo can't have a folder of its own (TMPDIR says where): {0}")]
    Folder(#[source] io::Error),
    #[error("the system refuses what the demo needs: {0}")]
    System(#[from] io::Error),
    #[error("--picture: {0}")]
    NoPlaceForPicture(#[from] Unwritable),
    #[error("the picture can't be written to {}: {cause}", path.display())]
    Picture { path: PathBuf, cause: io::Error },
    #[error(transparent)]
    Log(#[from] Unreadable),
    #[error(transparent)]
    Cut(#[from] Cut),
}

/// Plays, judges, and says what came of it.
pub(crate) fn main(demo: &DemoArgs) -> ExitCode {
    match run(demo) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(refusal) => {
            say!("demo: {refusal}");
            match refusal {
                DemoError::Ttl(_) | DemoError::NoPlaceForPicture(_) => exit::MISUSE.into(),
                DemoError::Cut(Cut::Interrupted(signal)) => exit::die_of(signal),
                _ => ExitCode::FAILURE,
            }
        }
    }
}

fn run(demo: &DemoArgs) -> Result<bool, DemoError> {
    Report::check_writable(&demo.picture)?;
    let path = std::path::absolute(&demo.picture)?;
    let temporary = temporary_folder().map_err(DemoError::Folder)?;
    let folder = Folder(temporary.path());
    let signals = Signals::catch()?;
    let family = Family::of_this_process()?;
    // What a guardian that is killed leaves behind becomes ours, so that nothing outlives the demo (I9).
    set_child_subreaper(Some(getpid())).map_err(io::Error::from)?;
    let mut record = Record::open(&folder.storage())?;
    check_ttl(demo.ttl, &record)?;
    let mut audience = audience::of_standard_output(demo.json);

    let mut watch = Watch {
        folder,
        ttl: demo.ttl,
        family,
        signals,
        record: &mut record,
        audience: audience.as_mut(),
        places: Lane::ALL.map(|lane| Place::new(lane, Reader::new(lane, folder.log(lane)))),
        hanging: None,
        timeline: Timeline::beginning_at(SystemClock::read()),
        act: Act::Gather,
    };
    let played = script::play(&mut watch);
    watch.clean_up();
    let Watch { timeline, act, .. } = watch;
    record.close();
    let cut = match played {
        Ok(()) => None,
        Err(cut @ (Cut::Interrupted(_) | Cut::Audience(_))) => return Err(cut.into()),
        Err(cut) => Some(cut),
    };

    let end = SystemClock::read();
    let verdict = Verdict::on(&timeline, &evidence(folder)?, demo.ttl, cut.as_ref());
    let svg = Picture { timeline: &timeline, verdict: &verdict, ttl: demo.ttl, end }.to_svg();
    fs::write(&path, svg).map_err(|cause| DemoError::Picture { path: path.clone(), cause })?;
    let scene = Scene { timeline: &timeline, act, ttl: demo.ttl, now: end };
    let shown = audience.verdict(&Finale { scene, verdict: &verdict, picture: &path });
    shown.map_err(Cut::Audience)?;
    if !verdict.held() {
        verdict
            .failures()
            .for_each(|claim| say!("demo: did not hold: {}: {} ({})", claim.name, claim.found, claim.bound));
        say!("demo: what was written meanwhile is kept in {}", temporary.keep().display());
        return Ok(false);
    }
    Ok(true)
}

/// In memory, if nobody says otherwise: what is shown is an election, and not how long this machine's disk can take to
/// answer when others use it.
fn temporary_folder() -> io::Result<TempDir> {
    let mut folder = Builder::new();
    folder.prefix("vvm-demo-");
    match env::var_os("TMPDIR") {
        Some(_) => folder.tempdir(),
        None => folder.tempdir_in("/dev/shm").or_else(|_| folder.tempdir()),
    }
}

/// Refuses at once what every `vvm run` would refuse.
fn check_ttl(ttl: Ttl, record: &Record) -> Result<(), BeyondLimits> {
    let least = record.limits().min_ttl;
    if ttl.get() < least { Err(BeyondLimits::Ttl { ttl, least }) } else { Ok(()) }
}

/// What the workers have written, all of it, now that none is left to write.
fn evidence(folder: Folder<'_>) -> Result<Evidence, Unreadable> {
    let read = |lane| Ok((lane, Reader::new(lane, folder.log(lane)).all()?));
    Ok(Evidence::of(&Lane::ALL.into_iter().map(read).collect::<Result<Vec<_>, _>>()?))
}
