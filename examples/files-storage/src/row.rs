//! What stands in the file of a slot: a line for each part of the record, the holder last, for it may have
//! any bytes.
//!
//! A released slot has only the first line.

use ielections::{Entry, Epoch, Holder, Incarnation, Slot, Ttl, Vacant, Version};
use std::{str::FromStr, time::Duration};

pub(crate) fn released(epoch: Epoch) -> Vec<u8> {
    format!("epoch {}\n", epoch.get()).into_bytes()
}

pub(crate) fn held(entry: &Entry) -> Vec<u8> {
    let Entry { holder, version, ttl, epoch } = entry;
    let Version { incarnation, write } = version;
    let (epoch, ttl) = (epoch.get(), ttl.get().as_nanos());
    format!("epoch {epoch}\nincarnation {incarnation}\nwrite {write}\nttl-nanoseconds {ttl}\nholder {holder}")
        .into_bytes()
}

/// # Errors
/// What is wrong with it. A file that can't be read is no vacancy: somebody may lead.
pub(crate) fn parse(content: &[u8]) -> Result<Slot, String> {
    let text = str::from_utf8(content).map_err(|error| error.to_string())?;
    let (epoch, rest) = part::<u64>(text, "epoch")?;
    let epoch = Epoch::new(epoch).map_err(|error| error.to_string())?;
    if rest.is_empty() {
        return Ok(Slot::Vacant(Vacant { last_epoch: Some(epoch) }));
    }
    let (incarnation, rest) = part::<Incarnation>(rest, "incarnation")?;
    let (write, rest) = part(rest, "write")?;
    let (ttl, rest) = part(rest, "ttl-nanoseconds")?;
    let holder = rest.strip_prefix("holder ").ok_or("there is no holder")?;
    let entry = Entry {
        holder: Holder::new(holder).map_err(|error| error.to_string())?,
        version: Version { incarnation, write },
        ttl: Ttl::new(Duration::from_nanos(ttl)).map_err(|error| error.to_string())?,
        epoch,
    };
    Ok(Slot::Held { entry, proven_age: None })
}

/// The value of the first line, which has this name, and what follows.
fn part<'a, T: FromStr>(text: &'a str, name: &str) -> Result<(T, &'a str), String> {
    let (line, rest) = text.split_once('\n').ok_or_else(|| format!("the line {name:?} is cut off"))?;
    let value = line.strip_prefix(name).and_then(|value| value.strip_prefix(' '));
    let value = value.and_then(|value| value.parse().ok());
    Ok((value.ok_or_else(|| format!("{line:?} is not a good {name:?}"))?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry {
        Entry {
            holder: Holder::new("two\nlines").unwrap(),
            version: Version { incarnation: Incarnation::from_bytes([7; 16]), write: u64::MAX },
            ttl: Ttl::DEFAULT,
            epoch: Epoch::new(5).unwrap(),
        }
    }

    #[test]
    fn a_record_comes_back_as_it_was_written() {
        assert_eq!(parse(&held(&entry())), Ok(Slot::Held { entry: entry(), proven_age: None }));
    }

    #[test]
    fn a_file_cut_off_anywhere_before_the_holder_is_no_vacancy() {
        let content = held(&entry());
        let of_epoch = "epoch 5\n".len();
        let before_holder = content.len() - "two\nlines".len();
        for length in (0..before_holder).filter(|length| *length != of_epoch) {
            assert!(parse(&content[..length]).is_err(), "{length} bytes");
        }
    }
}
