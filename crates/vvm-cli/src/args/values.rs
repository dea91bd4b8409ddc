//! Parsers of option values.

use super::duration::NotADuration;
pub(super) use super::duration::parse_duration;
use ielections::{Holder, Ttl};
use std::{
    error::Error,
    net::{Ipv4Addr, SocketAddr},
    num::NonZeroU32,
    time::Duration,
};
use vvm_host::{LocalDir, UnfitFolder};
use vvm_orch::Acquisition;

/// A value that an option can't have. The text says what to write.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct InvalidValue(pub(super) &'static str);

type AnyError = Box<dyn Error + Send + Sync>;

pub(super) fn parse_ttl(text: &str) -> Result<Ttl, AnyError> {
    Ok(Ttl::new(parse_duration(text)?)?)
}

/// Parses a duration greater than zero.
pub(super) fn parse_interval(text: &str) -> Result<Duration, AnyError> {
    let duration = parse_duration(text)?;
    if duration.is_zero() { Err(InvalidValue("write more than 0, like 10s").into()) } else { Ok(duration) }
}

pub(super) fn parse_acquire_timeout(text: &str) -> Result<Acquisition, AnyError> {
    match text {
        "forever" => Ok(Acquisition::Forever),
        "never" => Err(InvalidValue("write forever to wait without a limit").into()),
        _ => match parse_duration(text) {
            Ok(duration) => Ok(Acquisition::Within(duration)),
            Err(refusal @ NotADuration::NoUnit(_)) => Err(refusal.into()),
            Err(NotADuration::Malformed) => {
                Err(InvalidValue("write forever, 0, or a duration like 20s").into())
            }
        },
    }
}

/// A storage that this binary can't campaign on.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotAStorage {
    #[error(transparent)]
    Url(#[from] vvm_storage::OpenError),
    /// Each process would lead in a storage of its own.
    #[error("other processes can't share this storage, so each of them would lead: use sqlite:PATH")]
    NotShared,
}

/// Parses the URL of a storage that processes share.
pub(super) fn parse_storage(url: &str) -> Result<String, NotAStorage> {
    let is_shared = vvm_storage::url::shared_between_processes(url)?;
    if is_shared { Ok(url.into()) } else { Err(NotAStorage::NotShared) }
}

/// Parses the URL of a storage, shared or not.
pub(super) fn parse_any_storage(url: &str) -> Result<String, NotAStorage> {
    vvm_storage::url::shared_between_processes(url)?;
    Ok(url.into())
}

/// Parses a holder: like a name, it is shown in lines of text.
pub(super) fn parse_holder(text: &str) -> Result<Holder, AnyError> {
    if text.is_empty() || text.chars().any(char::is_control) {
        return Err(InvalidValue("a holder has 1 to 255 bytes and no control characters").into());
    }
    Ok(Holder::new(text)?)
}

/// The most slots of a name: a campaign reads all of them.
const MAX_SLOTS: u32 = 100_000;

pub(super) fn parse_slots(text: &str) -> Result<NonZeroU32, InvalidValue> {
    let count = text.parse::<NonZeroU32>().ok().filter(|count| count.get() <= MAX_SLOTS);
    count.ok_or(InvalidValue("write a number from 1 to 100000"))
}

/// Parses a name, which is shown in records, lines of text and an environment variable.
pub(super) fn parse_name(text: &str) -> Result<String, InvalidValue> {
    parse_line_of_text(text, "a name has 1 to 255 bytes and no control characters")
}

/// Parses a text for operators.
pub(super) fn parse_text(text: &str) -> Result<String, InvalidValue> {
    parse_line_of_text(text, "write 1 to 255 bytes without control characters")
}

fn parse_line_of_text(text: &str, hint: &'static str) -> Result<String, InvalidValue> {
    let fits = (1..=255).contains(&text.len()) && !text.chars().any(char::is_control);
    if fits { Ok(text.into()) } else { Err(InvalidValue(hint)) }
}

pub(super) fn parse_exit_status(text: &str) -> Result<u8, InvalidValue> {
    text.parse().map_err(|_| InvalidValue("write a number from 0 to 255"))
}

pub(super) fn parse_failures(text: &str) -> Result<NonZeroU32, InvalidValue> {
    text.parse().map_err(|_| InvalidValue("write a number from 1 on"))
}

/// Parses a line for `sh -c`.
pub(super) fn parse_line(text: &str) -> Result<String, InvalidValue> {
    let is_empty = text.trim().is_empty();
    if is_empty { Err(InvalidValue("write a line for sh -c, like './drain --now'")) } else { Ok(text.into()) }
}

/// Parses the folder of local wake-ups, and fails if it is unfit.
pub(super) fn parse_local_dir(text: &str) -> Result<LocalDir, UnfitFolder> {
    let dir = text.parse::<LocalDir>()?;
    dir.check()?;
    Ok(dir)
}

/// Parses an address to listen at. No name is looked up except `localhost`.
pub(super) fn parse_address(text: &str) -> Result<SocketAddr, InvalidValue> {
    let local = text.strip_prefix("localhost:").and_then(|port| port.parse().ok());
    let local = local.map(|port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    local.or_else(|| text.parse().ok()).ok_or(InvalidValue(
        "write an address of this machine and a port, like 127.0.0.1:8080, [::1]:8080, localhost:8080, or \
         0.0.0.0:8080 for all networks",
    ))
}
