//! Memory and CPU of a waiting candidate: all its processes.

use super::{
    Failure,
    compared_program::{Candidate, ComparedProgram},
    comparison::{Column, Comparison, Sample},
};
use std::{io, path::Path, time::Duration};
use vvm_clock::SystemClock;

/// How many candidates wait.
const WAITING: usize = 3;

/// Starting up is over by then.
const SETTLED: Duration = Duration::from_secs(5);

const MEMORY: &str = "it has two processes";
const CPU: &str = "a standby looks once a second, and its server tells it nothing";

/// Measures one program after the other, not side by side.
pub(crate) fn measure(
    programs: &[ComparedProgram],
    folder: &Path,
    ttl: Duration,
    watched: Duration,
) -> Result<Vec<Comparison>, Failure> {
    let all = programs
        .iter()
        .map(|program| Ok((program, used(program, folder, ttl, watched)?)))
        .collect::<Result<Vec<_>, Failure>>()?;
    let line = |title, unit, of: fn(&Used) -> f64, reason| {
        let samples = |used: &[Used]| used.iter().map(|used| Sample(Some(of(used)))).collect();
        let columns = all.iter().map(|(program, used)| Column::of(program, samples(used))).collect();
        Comparison::new(title, unit, columns, reason)
    };
    Ok(vec![
        line("memory of a waiting candidate, sum of RSS", "MB", |used| used.resident as f64 / 1e6, MEMORY),
        line("memory of a waiting candidate, PSS", "MB", |used| used.proportional as f64 / 1e6, MEMORY),
        line("CPU of a waiting candidate, each minute", "ms", |used| used.cpu.as_secs_f64() * 1e3, CPU),
    ])
}

struct Used {
    resident: u64,
    proportional: u64,
    /// In a minute.
    cpu: Duration,
}

fn used(
    compared_program: &ComparedProgram,
    folder: &Path,
    ttl: Duration,
    watched: Duration,
) -> Result<Vec<Used>, Failure> {
    let scene = folder.join(format!("{}-waiting", compared_program.name()));
    let start = |number| compared_program.start(&scene, ttl, number);
    let candidates = (0..=WAITING).map(start).collect::<io::Result<Vec<_>>>()?;
    SystemClock::block_for(SETTLED);
    let cpu = |candidate: &Candidate| candidate.process_tree().cpu_time();
    // The holder runs a command and is left out. There is exactly one.
    let waiting: Vec<&Candidate> =
        candidates.iter().filter(|candidate| !candidate.process_tree().runs(&scene)).collect();
    if waiting.len() != WAITING {
        return Err(format!(
            "{}: of {} candidates {} wait",
            compared_program.title(),
            WAITING + 1,
            waiting.len()
        )
        .into());
    }
    let before = waiting.iter().map(|one| cpu(one)).collect::<Result<Vec<_>, _>>()?;
    let began = SystemClock::read();
    SystemClock::block_for(watched);
    let minutes = began.until(SystemClock::read()).as_secs_f64() / 60.0;
    waiting
        .iter()
        .zip(before)
        .map(|(one, before)| {
            let process_tree = one.process_tree();
            Ok(Used {
                resident: process_tree.resident_bytes()?,
                proportional: process_tree.proportional_bytes()?,
                cpu: cpu(one)?.saturating_sub(before).div_f64(minutes),
            })
        })
        .collect()
}
