//! What it costs: a table of measurements beside their goals. `cargo xtask bench` runs it.
//!
//! What lives here: the command line, and which measurement has which name. What a measurement does is in the module of
//! that name. Nothing is asserted: a goal that is missed is printed as such, and whether that matters depends on the
//! machine.
#![forbid(unsafe_code)]

mod bed;
mod figure;
mod held;
mod pairs;
mod report;
mod resources;
mod sqlite;
mod succession;

use clap::{Parser, Subcommand, ValueEnum};
use figure::Figure;
use std::{error::Error, io, process::ExitCode};

/// What it costs: pairs, held leaderships, SQLite, fail-over and hand-over, beside their goals.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench", bin_name = "cargo xtask bench")]
struct CommandLine {
    /// One JSON array of figures, with every sample, instead of a table.
    #[arg(long)]
    json: bool,
    /// This measurement alone; may be given more than once.
    #[arg(long, value_name = "NAME")]
    only: Vec<Measurement>,
    /// Fewer and shorter rounds: whether it works, not what it costs.
    #[arg(long)]
    quick: bool,
    #[command(subcommand)]
    part: Option<Part>,
}

/// What this binary starts itself again for.
#[derive(Debug, Subcommand)]
enum Part {
    /// One round of `held`, in a process of its own.
    #[command(hide = true)]
    HeldRound(held::Round),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Measurement {
    /// Acquire and release on `mem`, one pair after another.
    Pairs,
    /// Memory and CPU of many leaderships held at once.
    Held,
    /// Acquire, renew and release on SQLite, beside the same statements made directly.
    Sqlite,
    /// Fail-over and hand-over between real processes.
    Succession,
}

impl Measurement {
    fn run(self, quick: bool) -> Result<Vec<Figure>, Box<dyn Error>> {
        Ok(match self {
            Self::Pairs => pairs::measure(quick)?,
            Self::Held => held::measure(quick)?,
            Self::Sqlite => sqlite::measure(quick)?,
            Self::Succession => succession::measure(quick)?,
        })
    }
}

fn main() -> ExitCode {
    match run(&CommandLine::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(line: &CommandLine) -> Result<(), Box<dyn Error>> {
    if let Some(Part::HeldRound(round)) = &line.part {
        return Ok(round.run()?);
    }
    let chosen = if line.only.is_empty() { Measurement::value_variants() } else { &line.only };
    let mut figures = Vec::new();
    for measurement in chosen {
        figures.extend(measurement.run(line.quick)?);
    }
    let mut out = io::stdout().lock();
    if line.json {
        report::json(&mut out, &figures)?
    } else {
        report::table(&mut out, &figures)?
    }
    Ok(())
}
