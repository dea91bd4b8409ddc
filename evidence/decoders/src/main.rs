//! Damaged bytes for everything that decodes bytes of others: servers, other programs, apps, people. A decoder may
//! refuse, but not panic or take long. Each has a corpus below `corpus/`: a line is an input, escaped as a byte string.
//! `cargo test` replays the corpora and some thousand changed inputs; `cargo xtask decoders --minutes 10` changes more.
#![forbid(unsafe_code)]

use clap::Parser;
use fastrand::Rng;
use ielections::Incarnation;
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

#[derive(Default, Debug)]
struct Counts {
    inputs: u64,
    accepted: u64,
}

/// Runs a decoder on its corpus, and then on changed inputs for as long as `goes_on` says. The error is the input at
/// which it panicked or took too long, or that it refuses most of its corpus.
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
    let chosen = DECODERS.iter().filter(|decoder| decoder.name.contains(&args.only)).collect::<Vec<_>>();
    let mut holds = !chosen.is_empty();
    if chosen.is_empty() {
        println!("there is no such decoder: {}", DECODERS.map(|decoder| decoder.name).join(", "));
    }
    for decoder in chosen {
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

/// Returns the inputs of a corpus, one a line. Escapes are those of a byte string.
fn lines(corpus: &str) -> Vec<Vec<u8>> {
    corpus.lines().filter(|line| !line.is_empty()).map(unescaped).collect()
}

fn unescaped(line: &str) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::new(), line.bytes());
    while let Some(byte) = rest.next() {
        bytes.push(match (byte, if byte == b'\\' { rest.next() } else { None }) {
            (b'\\', Some(b'n')) => b'\n',
            (b'\\', Some(b'r')) => b'\r',
            (b'\\', Some(b't')) => b'\t',
            (b'\\', Some(b'x')) => {
                let mut digit = || rest.next().and_then(|digit| char::from(digit).to_digit(16)).unwrap_or(0);
                (digit() * 16 + digit()) as u8
            }
            (b'\\', Some(other)) => other,
            (byte, _) => byte,
        });
    }
    bytes
}

const LONGEST_INPUT: usize = 4 << 10;

const NUMBERS: [&[u8]; 8] = [
    b"0",
    b"-1",
    b"255",
    b"65536",
    b"4294967295",
    b"18446744073709551615",
    b"1e400",
    b"99999999999999999999",
];

fn changed(inputs: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let any = |rng: &mut Rng| rng.choice(inputs).cloned().unwrap_or_default();
    let mut input = any(rng);
    for _ in 0..rng.usize(1..=4) {
        let at = rng.usize(0..=input.len());
        let until = rng.usize(at..=input.len().min(at + 16));
        match rng.u8(..8) {
            0 => input.truncate(at),
            1 => drop(input.drain(at..until)),
            2 => {
                let again = input[at..until].to_vec();
                input.splice(at..at, again);
            }
            3 => input.insert(at, rng.u8(..)),
            4 => {
                let other = any(rng);
                let from = rng.usize(0..=other.len());
                input.splice(at.., other[from..].iter().copied());
            }
            5 => {
                let is_digit = |byte: &u8| byte.is_ascii_digit();
                let at = input[at..].iter().position(is_digit).map_or(at, |behind| at + behind);
                let digits = input[at..].iter().take_while(|byte| is_digit(byte)).count();
                let number = rng.choice(NUMBERS).unwrap_or_default();
                input.splice(at..at + digits, number.iter().copied());
            }
            _ => {
                if let Some(byte) = input.get_mut(at) {
                    *byte = match rng.u8(..4) {
                        0 => 0,
                        1 => u8::MAX,
                        2 => *byte ^ 1 << rng.u8(..8),
                        _ => rng.u8(..),
                    };
                }
            }
        }
    }
    input.truncate(LONGEST_INPUT);
    input
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
