//! Damaged bytes in front of everything that decodes bytes of others: servers, other programs, apps, people. A decoder
//! may refuse, and must not panic or take long.
//!
//! Each has a corpus below `corpus/`: a line is an input, with the escapes of a byte string. `cargo test` replays the
//! corpora and some thousand changed inputs; `cargo xtask decoders --minutes 10` does so for longer.
#![forbid(unsafe_code)]

mod mutation;

use clap::Parser;
use fastrand::Rng;
use ielections::Incarnation;
use mutation::{changed, lines};
use rustix::time::{ClockId, clock_gettime};
use std::{num::NonZeroU32, panic, process::ExitCode, time::Duration};
use vvm_cli::warm::protocol::FromApp;
use vvm_host::once::Periods;
use vvm_storage::testing;

/// Runs each decoder on changed inputs.
#[derive(Debug, Parser)]
struct Args {
    /// For how long each decoder runs, in processor time.
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    /// Only decoders whose names contain this.
    #[arg(long, default_value = "")]
    only: String,
    /// The seed of the changes.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

struct Decoder {
    name: &'static str,
    corpus: &'static str,
    /// Returns whether the bytes were accepted.
    decodes: fn(&[u8]) -> bool,
}

const fn decoder(name: &'static str, corpus: &'static str, decodes: fn(&[u8]) -> bool) -> Decoder {
    Decoder { name, corpus, decodes }
}

const DECODERS: [Decoder; 10] = [
    decoder(
        "frames between guardian, host, keeper and shim",
        include_str!("../corpus/frames.txt"),
        vvm_containment::decodes,
    ),
    decoder("lines of a warm app", include_str!("../corpus/warm.txt"), |bytes| {
        FromApp::of_line(bytes).is_ok()
    }),
    decoder("packets of MariaDB", include_str!("../corpus/mysql.txt"), vvm_storage::mysql::decodes),
    decoder("answers of etcd", include_str!("../corpus/etcd.txt"), vvm_storage::etcd::decodes),
    decoder("Leases of Kubernetes", include_str!("../corpus/leases.txt"), vvm_storage::kubernetes::decodes),
    decoder("cells", include_str!("../corpus/cells.txt"), vvm_storage::cells::decodes),
    decoder("columns of databases", include_str!("../corpus/columns.txt"), testing::decodes_columns),
    decoder("requests to step down", include_str!("../corpus/step_downs.txt"), testing::decodes_step_down),
    decoder("periods of `vvm once`", include_str!("../corpus/periods.txt"), is_periods),
    decoder("addresses", include_str!("../corpus/addresses.txt"), is_address),
];

fn is_periods(bytes: &[u8]) -> bool {
    let periods = serde_json::from_slice::<Periods>(bytes);
    periods.map(|periods| periods.decide("2026-11-25", NonZeroU32::MIN)).is_ok()
}

/// URLs of storages, and incarnations as commands take them.
fn is_address(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let _may_name_any = (vvm_storage::url::has_password(&text), vvm_storage::url::credentials(&text));
    vvm_storage::url::shared_between_processes(&text).is_ok() | text.parse::<Incarnation>().is_ok()
}

/// Far more processor time than a decoder takes for inputs of this size.
const LONGEST: Duration = Duration::from_secs(5);

/// The processor time of this thread: on a busy machine others get most of it.
#[allow(clippy::disallowed_methods, reason = "no instant: a measure of work")]
fn worked() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// Costs a tenth of [`worked`], which is a system call.
#[allow(clippy::disallowed_methods, reason = "no instant: a measure of work")]
fn shown() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default()
}

/// How many inputs of a decoder there were.
#[derive(Default, Debug)]
struct Counts {
    inputs: u64,
    accepted: u64,
}

/// Runs a decoder on its corpus, and then on changed inputs for as long as `goes_on` says.
///
/// # Errors
/// The input at which it panicked or took too long, or that it refuses most of its corpus.
fn run(decoder: &Decoder, rng: &mut Rng, mut goes_on: impl FnMut(u64) -> bool) -> Result<Counts, String> {
    let mut inputs = lines(decoder.corpus);
    let (mut counts, of_corpus) = (Counts::default(), inputs.len());
    let mut accepted = 0;
    for input in &inputs {
        accepted += usize::from(judged(decoder, input)?);
    }
    // The others were found to do harm once.
    if accepted * 2 < of_corpus {
        return Err(format!("{}: accepts {accepted} of the {of_corpus} of its corpus", decoder.name));
    }
    while goes_on(counts.inputs) {
        let input = changed(&inputs, rng);
        counts.inputs += 1;
        if judged(decoder, &input)? {
            counts.accepted += 1;
            // Later inputs go further from the corpus.
            if inputs.len() < of_corpus + 256 {
                inputs.push(input);
            } else {
                let place = rng.usize(of_corpus..inputs.len());
                inputs[place] = input;
            }
        }
    }
    Ok(counts)
}

fn judged(decoder: &Decoder, input: &[u8]) -> Result<bool, String> {
    let decoded = || panic::catch_unwind(|| (decoder.decodes)(input));
    let began = shown();
    let accepted = decoded();
    let mut took = shown().saturating_sub(began);
    if took > LONGEST {
        // Perhaps other programs had the processor meanwhile.
        let began = worked();
        drop(decoded());
        took = worked().saturating_sub(began);
    }
    let failure = |what| format!("{}: {what}: {}", decoder.name, input.escape_ascii());
    match accepted {
        Err(_) => Err(failure("panicked".into())),
        Ok(_) if took > LONGEST => Err(failure(format!("took {took:?}"))),
        Ok(accepted) => Ok(accepted),
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    let mut holds = true;
    for decoder in DECODERS.iter().filter(|decoder| decoder.name.contains(&args.only)) {
        let until = worked() + Duration::from_secs_f64(args.minutes.max(0.0) * 60.0);
        // The clock is read for one input in 64.
        let goes_on = |count: u64| !count.is_multiple_of(64) || worked() < until;
        match run(decoder, &mut Rng::with_seed(args.seed), goes_on) {
            Ok(Counts { inputs, accepted }) => {
                println!("{}: {inputs} changed inputs, {accepted} of them accepted", decoder.name);
            }
            Err(failure) => {
                println!("{failure}");
                holds = false;
            }
        }
    }
    if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_decoder_takes_its_corpus_and_survives_changed_inputs() {
        for decoder in &DECODERS {
            let counts = run(decoder, &mut Rng::with_seed(1), |count| count < 2_000).unwrap();
            assert!(counts.accepted > 0 && counts.accepted < counts.inputs, "{}: {counts:?}", decoder.name);
        }
    }

    #[test]
    fn panic_is_reported_with_its_input() {
        let broken = Decoder { name: "x", corpus: "ab\\x00", decodes: |bytes| bytes[1] == b'b' };
        let failure = run(&broken, &mut Rng::with_seed(1), |count| count < 3_000).unwrap_err();
        assert!(failure.starts_with("x: panicked: "), "{failure}");
    }
}
