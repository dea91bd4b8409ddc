//! Inputs: those of a corpus, and changed ones.

use fastrand::Rng;

/// Returns the inputs of a corpus, one a line. Escapes are those of a byte string.
pub(crate) fn lines(corpus: &str) -> Vec<Vec<u8>> {
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

const LONGEST: usize = 4 << 10;

/// Numbers at which decoders go wrong.
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

/// Returns one of the inputs with one to four changes.
pub(crate) fn changed(inputs: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
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
    input.truncate(LONGEST);
    input
}
