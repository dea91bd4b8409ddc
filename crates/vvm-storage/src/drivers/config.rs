//! What the addresses of drivers share: options (`?name=value&name=value`), hosts, time limits and passwords.
#![allow(dead_code, reason = "each driver has some of them")]

use crate::opening::OpenError;
use ielections::Ttl;
use std::{env, fmt, fs, net::IpAddr, path::Path, time::Duration};

pub(crate) fn unreachable(software: &str, host: &dyn fmt::Display, why: &dyn fmt::Display) -> OpenError {
    OpenError::passing(format!("no {software} answers at {host}: start it, or correct the address ({why})"))
}

/// Passing: sooner or later another program closes a connection.
pub(crate) fn exhausted(host: &dyn fmt::Display, why: &dyn fmt::Display, settings: &str) -> OpenError {
    OpenError::passing(format!(
        "{host} has no connection left for this login ({why}): close those that no program needs, or raise {settings}"
    ))
}

pub(crate) fn options(text: &str) -> impl Iterator<Item = Result<(&str, &str), String>> {
    text.split('&').filter(|option| !option.is_empty()).map(|option| {
        option
            .split_once('=')
            .filter(|(_, value)| !value.is_empty())
            .ok_or_else(|| format!("option `{option}` has no value: write {option}=VALUE, or leave it out"))
    })
}

/// The default time limit of a request. It equals the time of an attempt at the default TTL of 20 s, and
/// exceeds the time that nodes of Cassandra wait for each other (1.8 s for a contended transaction).
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);

/// With a shorter limit, a normal network would never answer in time.
const SHORTEST: Duration = Duration::from_millis(100);

/// With a longer limit, a program would seem to hang.
const LONGEST: Duration = Duration::from_secs(60);

/// Of an embedder's options.
pub(crate) fn checked_request_timeout(timeout: Duration) -> Result<Duration, OpenError> {
    let is_valid = (SHORTEST..=LONGEST).contains(&timeout);
    is_valid.then_some(timeout).ok_or_else(|| {
        OpenError::misuse(format!("request_timeout is {timeout:?}: set it to 100 ms or more, up to 60 s"))
    })
}

pub(crate) fn request_timeout(value: &str) -> Result<Duration, String> {
    duration(value).filter(|duration| (SHORTEST..=LONGEST).contains(duration)).ok_or_else(|| {
        format!("`{value}` is not a valid request timeout: write request_timeout=5s, from 100ms to 60s")
    })
}

pub(crate) fn duration(value: &str) -> Option<Duration> {
    let (number, unit) = value.split_at(value.find(|character: char| !character.is_ascii_digit())?);
    let unit = match unit {
        "ms" => Duration::from_millis(1),
        "s" => Duration::from_secs(1),
        "m" => Duration::from_mins(1),
        "h" => Duration::from_hours(1),
        _ => return None,
    };
    unit.checked_mul(number.parse().ok()?)
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Host {
    /// A name or an address without brackets.
    pub(crate) name: String,
    pub(crate) port: u16,
}

impl fmt::Display for Host {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, port } = self;
        if name.contains(':') { write!(out, "[{name}]:{port}") } else { write!(out, "{name}:{port}") }
    }
}

impl Host {
    /// A path is a Unix socket.
    pub(super) fn is_loopback(&self) -> bool {
        self.name.starts_with('/') || is_loopback(&self.name)
    }
}

/// Whether a host is this machine: `localhost`, or an address, which may be in brackets.
pub(super) fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// Whether the host of `host:port/path`, which may begin with `http://` or `https://`, is this machine.
pub(super) fn is_on_loopback(place: &str) -> bool {
    let place = ["http://", "https://"].iter().find_map(|scheme| place.strip_prefix(scheme)).unwrap_or(place);
    let authority = place.split(['/', '?']).next().unwrap_or_default();
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => is_loopback(host),
        _ => is_loopback(authority),
    }
}

/// Parses hosts with commas between them; `default` is the port of those without one.
pub(super) fn parse_hosts(text: &str, default: u16) -> Result<Vec<Host>, String> {
    text.split(',').map(|text| host(text, default)).collect()
}

fn host(text: &str, default: u16) -> Result<Host, String> {
    let (name, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((name, "")) => (name, None),
        Some((name, port)) => (name, Some(port.strip_prefix(':').unwrap_or_default())),
        None => text.split_once(':').map_or((text, None), |(name, port)| (name, Some(port))),
    };
    if name.is_empty() {
        return Err(format!("`{text}` is no host: write host, host:{default} or [address]:{default}"));
    }
    let port = port.map_or(Some(default), |port| port.parse().ok().filter(|port| *port > 0));
    let port =
        port.ok_or_else(|| format!("`{text}` has no port: write host:{default} or [address]:{default}"))?;
    Ok(Host { name: name.to_owned(), port })
}

pub(super) const PASSWORD: &str = "VVM_STORAGE_PASSWORD";

/// The first line of `file`, else that of the URL, else the environment variable; `None` if it is empty or
/// missing. Read anew for each login, so that it can be changed.
pub(super) fn password(file: Option<&Path>, of_url: Option<&str>) -> Result<Option<String>, OpenError> {
    let password = match (file, of_url) {
        (Some(path), _) => first_line(path)?,
        (None, Some(password)) => Some(password.to_owned()),
        (None, None) => env::var(PASSWORD).ok(),
    };
    Ok(password.filter(|password| !password.is_empty()))
}

fn first_line(path: &Path) -> Result<Option<String>, OpenError> {
    let text = fs::read_to_string(path).map_err(|cause| {
        OpenError::refused(format!("the password can't be read from {}: {cause}", path.display()))
    })?;
    Ok(text.lines().next().map(str::to_owned))
}

pub(super) fn missing_password() -> OpenError {
    OpenError::refused(format!(
        "there is no password: put it into the environment ({PASSWORD}) or a file (password_file=PATH)"
    ))
}

#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Password(pub(crate) String);

impl fmt::Debug for Password {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("…")
    }
}

pub(super) fn decoded(text: &str) -> Result<String, String> {
    let wrong = || "a `%` in a name or password is written %25".to_owned();
    let mut bytes = Vec::with_capacity(text.len());
    let mut parts = text.split('%');
    bytes.extend(parts.next().unwrap_or_default().bytes());
    for part in parts {
        let digits = part.get(..2).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        bytes.push(digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).ok_or_else(wrong)?);
        bytes.extend(part.bytes().skip(2));
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

pub(super) fn max_ttl(value: &str) -> Result<Ttl, String> {
    let ttl = duration(value).and_then(|span| Ttl::new(span).ok());
    ttl.ok_or_else(|| format!("`{value}` is no TTL: write max_ttl=60s, up to 24 h"))
}

/// Of one handle.
pub(super) const MOST_CONNECTIONS: u16 = 1_000;

pub(super) fn connections(value: &str) -> Result<u16, String> {
    let number = value.parse().ok().filter(|number| (1..=MOST_CONNECTIONS).contains(number));
    let wrong = || format!("`{value}` is no number of connections: write connections=8, up to 1000");
    number.ok_or_else(wrong)
}

/// Runs these tests of `module` again, in an environment with a proxy that no program answers for.
#[cfg(test)]
pub(super) fn behind_a_closed_proxy(module: &str, tests: &[&str]) {
    let mut again = std::process::Command::new(env::current_exe().expect("a test program"));
    again.arg("--exact").args(tests.iter().map(|test| format!("{module}::{test}")));
    for name in ["http_proxy", "HTTPS_PROXY", "ALL_PROXY"] {
        again.env(name, "http://127.0.0.1:1");
    }
    let ran = again.output().expect("it starts");
    let text = String::from_utf8_lossy(&ran.stdout);
    let all = format!("test result: ok. {} passed", tests.len());
    assert!(text.contains(&all), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_have_a_name_and_a_value() {
        assert_eq!(options("a=1&&b=2=3").collect::<Result<Vec<_>, _>>(), Ok(vec![("a", "1"), ("b", "2=3")]));
        assert_eq!(options("").count(), 0);
        for empty in ["a", "a=", "b=1&a"] {
            let refusal = options(empty).collect::<Result<Vec<_>, _>>().unwrap_err();
            assert!(refusal.contains("=VALUE"), "{refusal}");
        }
    }

    #[test]
    fn loopback_is_told_from_names_that_begin_like_it() {
        let here =
            ["http://127.0.0.1:8000", "https://[::1]:9/a:b", "localhost", "http://localhost?a=b", "[::1]"];
        here.iter().for_each(|place| assert!(is_on_loopback(place), "{place}"));
        let there =
            ["http://127.0.0.1.example.com", "localhost.example.com:80", "http://10.0.0.1/127.0.0.1", ""];
        there.iter().for_each(|place| assert!(!is_on_loopback(place), "{place}"));
    }

    #[test]
    fn max_ttl_may_be_in_minutes_and_hours() {
        for (text, seconds) in [("60s", 60), ("5m", 300), ("24h", 86_400)] {
            assert_eq!(max_ttl(text).unwrap().get(), Duration::from_secs(seconds));
        }
        for text in ["5", "25h", "1d", "m", "18446744073709551615h"] {
            assert!(max_ttl(text).unwrap_err().contains("write max_ttl=60s"), "{text}");
        }
    }

    #[test]
    fn request_timeout_needs_a_unit_and_has_bounds() {
        for (text, millis) in [("5s", 5_000), ("100ms", 100), ("60s", 60_000), ("1m", 60_000)] {
            assert_eq!(request_timeout(text), Ok(Duration::from_millis(millis)));
        }
        for text in ["", "5", "s", "ms", "0s", "99ms", "61s", "-1s", "1.5s", "2m", "1m1s", "99999999999s"] {
            assert!(request_timeout(text).unwrap_err().contains("request_timeout=5s"), "{text}");
        }
    }
}
