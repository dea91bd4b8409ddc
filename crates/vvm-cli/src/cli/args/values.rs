//! What a value on the command line may be, wherever it is asked for.

pub(crate) use crate::cli::duration::GivenDuration;
use ielections::{Holder, Ttl, record::HolderTooLong};
use std::{net::SocketAddr, num::NonZeroU32, str::FromStr, time::Duration};
pub(super) use vvm_host::LocalDir;
use vvm_host::UnfitFolder;

pub(crate) fn parse_duration(text: &str) -> Result<Duration, <GivenDuration as FromStr>::Err> {
    text.parse().map(|GivenDuration(duration)| duration)
}

pub(crate) fn parse_ttl(text: &str) -> Result<Ttl, Box<dyn std::error::Error + Send + Sync>> {
    Ok(Ttl::new(parse_duration(text)?)?)
}

/// A URL of no storage that this program could use.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotAStorage {
    #[error(transparent)]
    Url(#[from] vvm_storage::OpenError),
    /// Every process would lead in a storage of its own, and see nobody else's.
    #[error("other processes can't share this storage, so that each of them would lead: use sqlite:PATH")]
    NotShared,
}

/// A storage that processes share.
pub(crate) fn parse_storage(url: &str) -> Result<String, NotAStorage> {
    let is_shared = vvm_storage::url::shared_between_processes(url)?;
    if is_shared { Ok(url.into()) } else { Err(NotAStorage::NotShared) }
}

/// A storage, shared or not.
pub(crate) fn parse_any_storage(url: &str) -> Result<String, NotAStorage> {
    vvm_storage::url::shared_between_processes(url)?;
    Ok(url.into())
}

/// A text that can't be a holder.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub(crate) enum NotAHolder {
    #[error(transparent)]
    TooLong(#[from] HolderTooLong),
    #[error("a holder has 1 to 255 bytes and no control characters")]
    Unreadable,
}

/// A holder stands in lines for people, like a name.
pub(crate) fn parse_holder(text: &str) -> Result<Holder, NotAHolder> {
    let is_readable = !text.is_empty() && !text.chars().any(char::is_control);
    if is_readable { Ok(Holder::new(text)?) } else { Err(NotAHolder::Unreadable) }
}

/// The most slots that a cluster may have: a campaign looks at all of them.
const MAX_SLOTS: u32 = 100_000;

/// A text that is no number of slots.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("write a number from 1 to {MAX_SLOTS}")]
pub(crate) struct NotASlotCount;

pub(crate) fn parse_slots(text: &str) -> Result<NonZeroU32, NotASlotCount> {
    text.parse::<NonZeroU32>().ok().filter(|count| count.get() <= MAX_SLOTS).ok_or(NotASlotCount)
}

/// A text that can't be a name.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("a name has 1 to 255 bytes and no control characters")]
pub(crate) struct NotAName;

/// A name stands in records, in lines for people, and in an environment variable.
pub(crate) fn parse_name(text: &str) -> Result<String, NotAName> {
    let fits = (1..=255).contains(&text.len()) && !text.chars().any(char::is_control);
    if fits { Ok(text.into()) } else { Err(NotAName) }
}

/// A text that is no exit status.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("write a number from 0 to 255")]
pub(crate) struct NotAnExitStatus;

pub(crate) fn parse_exit_status(text: &str) -> Result<u8, NotAnExitStatus> {
    text.parse().map_err(|_| NotAnExitStatus)
}

/// A folder to meet neighbours in, and one that will do.
pub(crate) fn parse_local_dir(text: &str) -> Result<LocalDir, UnfitFolder> {
    let dir = parse_named_dir(text)?;
    dir.check()?;
    Ok(dir)
}

/// The same for those who only tell: where it won't do, nobody is told, and that is all.
pub(crate) fn parse_named_dir(text: &str) -> Result<LocalDir, UnfitFolder> {
    text.parse()
}

/// A text that is no address to listen at.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error(
    "write an address of this machine and a port, like 127.0.0.1:8080, [::1]:8080, or 0.0.0.0:8080 for everybody"
)]
pub(crate) struct NotAnAddress;

pub(crate) fn parse_address(text: &str) -> Result<SocketAddr, NotAnAddress> {
    text.parse().map_err(|_| NotAnAddress)
}
