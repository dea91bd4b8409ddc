//! The options that several commands share: those of candidates, and those by which operators name a leadership. And
//! the functions that parse values of options.

use crate::announce::LogFormat;
use clap::Args;
use ielections::{Holder, Ttl, record::HolderTooLong};
use jiff::{Span, SpanRelativeTo};
use std::{
    error::Error,
    net::{Ipv4Addr, SocketAddr},
    num::NonZeroU32,
    path::PathBuf,
    time::Duration,
};
use vvm_host::{HostSettings, LocalDir, SuccessorSettings, UnfitFolder, operate};
use vvm_orch::AcquireTimeout;

pub(crate) const STAGE_HOST: &str = "stage-host";

pub(crate) const STAGE_RELEASE: &str = "stage-release";

pub(crate) const STAGE_DEMOTE: &str = "stage-demote";

pub(crate) const STAGES: [&str; 3] = [STAGE_HOST, STAGE_RELEASE, STAGE_DEMOTE];

const CAMPAIGN: &str = "Campaign";
const SUCCESSOR: &str = "Successor";
pub(crate) const OUTPUT: &str = "What it shows";

#[derive(Clone, Debug, Args)]
pub(crate) struct CandidateArgs {
    /// Where leadership is recorded, e.g. sqlite:/var/lib/payroll/leader.db
    #[arg(long, value_name = "URL", value_parser = parse_storage)]
    pub(crate) storage: String,
    /// What the candidates compete for: the same name on all of them
    #[arg(long, value_parser = parse_name)]
    pub(crate) name: String,
    /// Number of leaders at a time, each in a slot of its own: the same number on all candidates
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_slots, help_heading = CAMPAIGN)]
    #[arg(allow_hyphen_values = true)]
    pub(crate) slots: NonZeroU32,
    /// Time without renewals after which a standby takes over
    #[arg(long, value_name = "DURATION", default_value = "20s", value_parser = parse_ttl)]
    pub(crate) ttl: Ttl,
    /// How long to wait for leadership, the opening of the storage included; 0 takes a free slot or exits
    #[arg(help_heading = CAMPAIGN)]
    #[arg(
        long, value_name = "forever|0|DURATION", default_value = "forever",
        value_parser = parse_acquire_timeout
    )]
    pub(crate) acquire_timeout: AcquireTimeout,
    /// Exit when a live leader is seen, which can take one TTL, or when the storage has not answered for 1.4 TTL
    #[arg(long = "try", conflicts_with = "acquire_timeout", help_heading = CAMPAIGN)]
    pub(crate) try_once: bool,
    /// Name of this candidate in the record [default: HOSTNAME:PID]
    #[arg(long, value_parser = parse_holder)]
    pub(crate) holder: Option<Holder>,
    /// Folder of sockets by which candidates of this user on this machine wake each other, or none [default:
    /// /tmp/vvm-UID]
    ///
    /// A standby that is woken leads as soon as the leader has released. Without the folder it polls the
    /// storage once a second. Safety does not depend on it.
    #[arg(long, value_name = "DIR|none", value_parser = parse_local_dir, help_heading = CAMPAIGN)]
    pub(crate) local_dir: Option<LocalDir>,
    /// Take part in succession, with datagrams (UDP) at this address, which the machines of the other candidates reach: as a
    /// standby, take over seconds after the loss of the leader's machine, whatever the TTL
    ///
    /// While a successor is named, the leader is lost after 0.65 of --support in which it hears neither from it nor from
    /// the storage. For one slot, and a storage on a server. docs/successor.md has the whole.
    #[arg(long, value_name = "ADDR:PORT", value_parser = parse_address, help_heading = SUCCESSOR)]
    pub(crate) successor: Option<SocketAddr>,
    /// With --successor: how long a successor waits after it heard from the leader last, 2s to 30s, at most a quarter of
    /// the TTL
    #[arg(help_heading = SUCCESSOR)]
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = parse_duration)]
    pub(crate) support: Duration,
    /// With --successor: the address by which the other machines reach this one, if that is another one: behind a
    /// translation of addresses, or with --successor 0.0.0.0:PORT. Port 0 is the port of --successor
    #[arg(long, value_name = "ADDR:PORT", value_parser = parse_address, help_heading = SUCCESSOR)]
    pub(crate) successor_advertise: Option<SocketAddr>,
    /// Keep the storage's secrets in the environment of the command or of hooks, such as AWS_SECRET_ACCESS_KEY
    #[arg(long)]
    pub(crate) keep_credentials: bool,
    /// Serve HTTP at this address, e.g. localhost:8080; port 0 is any free port
    ///
    /// /healthz: the process is alive. /readyz: it leads or could lead; a standby is ready. /leader: 200 only
    /// while it leads with time left. /metrics: OpenMetrics. /status: JSON. /: a page for browsers. All of it
    /// is read-only, but shows names and errors to every client that reaches the address.
    #[arg(long, value_name = "ADDR:PORT", value_parser = parse_address, help_heading = OUTPUT)]
    pub(crate) http: Option<SocketAddr>,
    /// Format of standard error: lines of text, or one JSON object a line
    ///
    /// With json, each change of state is an object with event, name, holder, slot, epoch and more. Other
    /// messages have the event "message", those of libraries "log". VVM_LOG=debug adds renewals and the latter.
    #[arg(long, value_enum, default_value = "text", help_heading = OUTPUT)]
    pub(crate) log_format: LogFormat,
}

impl CandidateArgs {
    /// Fails if the host name is longer than a holder may be, which uname(2) rules out.
    pub(crate) fn own_holder(&self) -> Result<Holder, HolderTooLong> {
        operate::or_own_name(self.holder.as_ref())
    }

    /// Variables that the environment of a command or hook must not have: the secrets of the storage.
    pub(crate) fn withheld(&self) -> &'static [&'static str] {
        if self.keep_credentials { &[] } else { vvm_storage::url::credentials(&self.storage) }
    }

    pub(crate) fn host_settings(&self, holder: Holder) -> HostSettings {
        let mut settings = HostSettings::new(self.storage.clone(), self.name.clone());
        (settings.slots, settings.ttl, settings.holder) = (self.slots, self.ttl, Some(holder));
        settings.acquisition =
            if self.try_once { AcquireTimeout::UntilLeaderSeen } else { self.acquire_timeout };
        settings.http = self.http;
        settings.successor = self.successor.map(|listen| {
            let mut successor = SuccessorSettings::new(listen);
            (successor.advertise, successor.period) = (self.successor_advertise, self.support);
            successor
        });
        settings.local_dir = self.local_dir.clone().unwrap_or(LocalDir::Usual);
        // The command or hook is killed by a limit of its own, so the host must not give up before.
        settings.stop_timeout = Duration::MAX;
        settings
    }
}

#[derive(Clone, Debug, Args)]
pub(crate) struct WakeArgs {
    /// Folder of sockets that wakes the candidates of this user on this machine, or none [default: /tmp/vvm-UID]
    ///
    /// Candidates that are not woken see the request within a second. Safety does not depend on it.
    // The folder may be unfit: then no candidate is woken.
    #[arg(long, value_name = "DIR|none", value_parser = str::parse::<LocalDir>)]
    pub(crate) local_dir: Option<LocalDir>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct TargetArgs {
    /// The storage of the candidates, as given to vvm run
    #[arg(long, value_name = "URL", value_parser = parse_storage)]
    pub(crate) storage: String,
    /// The name that the candidates compete for, as given to vvm run
    #[arg(long, value_parser = parse_name)]
    pub(crate) name: String,
}

impl TargetArgs {
    pub(crate) fn pair(&self) -> (&str, &str) {
        (&self.storage, &self.name)
    }
}

#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct InvalidValue(pub(crate) &'static str);

type AnyError = Box<dyn Error + Send + Sync>;

pub(crate) fn parse_ttl(text: &str) -> Result<Ttl, AnyError> {
    Ok(Ttl::new(parse_duration(text)?)?)
}

pub(crate) fn parse_interval(text: &str) -> Result<Duration, AnyError> {
    let duration = parse_duration(text)?;
    if duration.is_zero() { Err(InvalidValue("write more than 0, like 10s").into()) } else { Ok(duration) }
}

pub(crate) fn parse_acquire_timeout(text: &str) -> Result<AcquireTimeout, AnyError> {
    match text {
        "forever" => Ok(AcquireTimeout::Forever),
        "never" => Err(InvalidValue("write forever to wait without a limit").into()),
        _ => match parse_duration(text) {
            Ok(duration) => Ok(AcquireTimeout::Within(duration)),
            Err(refusal @ NotADuration::NoUnit(_)) => Err(refusal.into()),
            Err(NotADuration::Malformed) => {
                Err(InvalidValue("write forever, 0, or a duration like 20s").into())
            }
        },
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum NotAStorage {
    #[error(transparent)]
    Url(#[from] vvm_storage::OpenError),
    /// Each process would lead in a storage of its own.
    #[error(
        "one process alone can open mem: or sled:, so that no other can lead in it, or look into it: use sqlite:PATH"
    )]
    NotShared,
}

pub(crate) fn parse_storage(url: &str) -> Result<String, NotAStorage> {
    let is_shared = vvm_storage::url::shared_between_processes(url)?;
    if is_shared { Ok(url.into()) } else { Err(NotAStorage::NotShared) }
}

pub(crate) fn parse_any_storage(url: &str) -> Result<String, NotAStorage> {
    vvm_storage::url::shared_between_processes(url)?;
    Ok(url.into())
}

pub(crate) fn parse_holder(text: &str) -> Result<Holder, AnyError> {
    let hint = "a holder has 1 to 255 bytes, no control characters, no blank at an end";
    Ok(Holder::new(parse_line_of_text(text, usize::MAX, hint)?)?)
}

/// The most slots of a name: a campaign reads all of them.
const MAX_SLOTS: u32 = 100_000;

pub(crate) fn parse_slots(text: &str) -> Result<NonZeroU32, InvalidValue> {
    let count = text.parse::<NonZeroU32>().ok().filter(|count| count.get() <= MAX_SLOTS);
    count.ok_or(InvalidValue("write a number from 1 to 100000"))
}

/// A name is shown in lines of text. A blank at an end, which is invisible there, would make two names of one.
pub(crate) fn parse_name(text: &str) -> Result<String, InvalidValue> {
    parse_line_of_text(text, 255, "a name has 1 to 255 bytes, no control characters, no blank at an end")
}

pub(crate) fn parse_text(text: &str) -> Result<String, InvalidValue> {
    parse_line_of_text(text, 255, "write 1 to 255 bytes without control characters, and no blank at an end")
}

pub(crate) fn parse_line_of_text(
    text: &str,
    longest: usize,
    hint: &'static str,
) -> Result<String, InvalidValue> {
    let fits = (1..=longest).contains(&text.len()) && !text.chars().any(char::is_control);
    if fits && text.trim() == text { Ok(text.into()) } else { Err(InvalidValue(hint)) }
}

pub(crate) fn parse_failures(text: &str) -> Result<NonZeroU32, InvalidValue> {
    text.parse().map_err(|_| InvalidValue("write a number from 1 on"))
}

pub(crate) fn parse_line(text: &str) -> Result<String, InvalidValue> {
    let is_empty = text.trim().is_empty();
    if is_empty { Err(InvalidValue("write a line for sh -c, like './drain --now'")) } else { Ok(text.into()) }
}

pub(crate) fn parse_check(text: &str) -> Result<String, AnyError> {
    if ["http://", "https://"].iter().any(|scheme| text.starts_with(scheme)) {
        return Err(format!("sh -c runs this: write \"curl -fsSo /dev/null {text}\"").into());
    }
    Ok(parse_line(text)?)
}

pub(crate) fn parse_local_dir(text: &str) -> Result<LocalDir, UnfitFolder> {
    let dir = text.parse::<LocalDir>()?;
    dir.check()?;
    Ok(dir)
}

pub(crate) fn parse_file(text: &str) -> Result<PathBuf, InvalidValue> {
    let names_a_file = !text.is_empty() && !text.ends_with('/');
    if names_a_file { Ok(text.into()) } else { Err(InvalidValue("name a file, like timeline.svg")) }
}

/// Parses an address to listen at. No name is looked up except `localhost`.
pub(crate) fn parse_address(text: &str) -> Result<SocketAddr, InvalidValue> {
    let local = text.strip_prefix("localhost:").and_then(|port| port.parse().ok());
    let local = local.map(|port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    local.or_else(|| text.parse().ok()).ok_or(InvalidValue(
        "write an address of this machine and a port, like 127.0.0.1:8080, [::1]:8080, localhost:8080, or \
         0.0.0.0:8080 for all networks",
    ))
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum NotADuration {
    #[error("{0} of what? Write {0}s for seconds, {0}ms, {0}m or {0}h")]
    NoUnit(String),
    #[error("write a duration like 20s, 500ms, 1.5s or 1h30m, at most 100 years (units: ms, s, m, h, d)")]
    Malformed,
}

/// 100 years. Larger ones could overflow an `Instant`.
const MAX: Duration = Duration::from_hours(100 * 365 * 24);

pub(crate) fn parse_duration(text: &str) -> Result<Duration, NotADuration> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return Err(NotADuration::NoUnit(text.into()));
    }
    text.parse::<Span>()
        .and_then(|span| span.to_duration(SpanRelativeTo::days_are_24_hours()))
        .and_then(Duration::try_from)
        .ok()
        .filter(|duration| *duration <= MAX)
        .ok_or(NotADuration::Malformed)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Parses options of a command as clap does, without the checks of the whole line.
    pub(crate) fn parsed<A: Args>(words: &[&str]) -> A {
        let described = A::augment_args(clap::Command::new("vvm"));
        A::from_arg_matches(&described.get_matches_from([&["vvm"], words].concat())).unwrap()
    }

    #[test]
    fn units_fractions_and_sums_are_parsed() {
        let texts = ["0", "500ms", "1.5s", "20s", "2m", "1m30s", "1h30m", "1d2h3m4s5ms", "36500d"];
        let millis = texts.map(|text| parse_duration(text).unwrap().as_millis());
        let expected = [0, 500, 1_500, 20_000, 120_000, 90_000, 5_400_000, 93_784_005, 36_500 * 86_400_000];
        assert_eq!(millis, expected);
    }

    #[test]
    fn malformed_and_too_long_durations_are_refused() {
        let malformed = ["", "s", "-1s", "1s ago", "1s1s", "1s1m", "1m30", "s20", "1M", "1mo", "1y", "nan"];
        let long = ["99999999999999999999s", "18446744073709551615d", "36501d", "876000h1ms"];
        for text in malformed.into_iter().chain(long) {
            assert_eq!(parse_duration(text), Err(NotADuration::Malformed), "{text:?}");
        }
    }
}
