//! The value of `--check`: a shell line or an http URL.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    str::FromStr,
};

/// How to check the health of the command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Check {
    /// This line for `sh -c` must exit with 0.
    Command(String),
    /// This page must answer 2xx.
    Http(Page),
}

/// A page of a server on this machine or at an IP address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Page {
    /// To be tried in this order.
    pub(crate) addresses: Vec<SocketAddr>,
    /// As given, for the `Host` header.
    pub(crate) authority: String,
    /// Begins with a slash.
    pub(crate) path: String,
}

/// A text that is no check.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum NotACheck {
    #[error("there is no TLS here: write \"curl -fsS {0}\", which sh -c runs")]
    Tls(String),
    #[error("the host of an http URL must be localhost or an IP address; for names write \"curl -fsS {0}\"")]
    Named(String),
    #[error("a URL has no spaces and no control characters")]
    Unreadable,
    #[error("write a command or an http URL")]
    Empty,
}

const HTTP: u16 = 80;

impl FromStr for Check {
    type Err = NotACheck;

    fn from_str(text: &str) -> Result<Self, NotACheck> {
        if text.trim().is_empty() {
            return Err(NotACheck::Empty);
        }
        if text.starts_with("https://") {
            return Err(NotACheck::Tls(text.into()));
        }
        let Some(rest) = text.strip_prefix("http://") else { return Ok(Self::Command(text.into())) };
        if rest.contains(|one: char| one.is_whitespace() || one.is_control()) {
            return Err(NotACheck::Unreadable);
        }
        // A fragment is for browsers.
        let rest = rest.split('#').next().unwrap_or_default();
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let addresses = addresses(authority).ok_or_else(|| NotACheck::Named(text.into()))?;
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        Ok(Self::Http(Page { addresses, authority: authority.into(), path }))
    }
}

fn addresses(authority: &str) -> Option<Vec<SocketAddr>> {
    if let Ok(address) = authority.parse() {
        return Some(vec![address]);
    }
    let bare = authority.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(authority);
    if let Ok(address) = bare.parse::<IpAddr>() {
        return Some(vec![SocketAddr::new(address, HTTP)]);
    }
    let (host, port) = authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port)));
    let port = port.map_or(Some(HTTP), |port| port.parse().ok())?;
    let here = [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)];
    (host == "localhost").then(|| here.map(|address| SocketAddr::new(address, port)).into())
}

impl fmt::Display for Check {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command(line) => out.write_str(line),
            Self::Http(Page { authority, path, .. }) => write!(out, "http://{authority}{path}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_with_localhost_or_an_ip_address_are_parsed() {
        let table = [
            ("http://localhost:8080/ready?deep=1", "127.0.0.1:8080", "/ready?deep=1"),
            ("http://127.0.0.1", "127.0.0.1:80", "/"),
            ("http://[::1]:90#top", "[::1]:90", "/"),
            ("http://[::1]/x", "[::1]:80", "/x"),
            ("http://10.0.0.7:1?x", "10.0.0.7:1", "/?x"),
        ];
        for (text, address, path) in table {
            let Ok(Check::Http(page)) = text.parse() else { panic!("{text}") };
            assert_eq!((page.addresses[0], page.path.as_str()), (address.parse().unwrap(), path), "{text}");
        }
    }

    #[test]
    fn refusals_say_what_to_write() {
        let table = [
            ("https://localhost/", "no TLS here: write \"curl -fsS https://localhost/\""),
            ("http://example.org/", "write \"curl -fsS http://example.org/\""),
            ("http://localhost:port/", "localhost or an IP"),
            ("http://me@localhost/", "localhost or an IP"),
            ("http:///", "localhost or an IP"),
            ("http://localhost/a b", "no spaces"),
            (" ", "write a command"),
        ];
        for (text, way_out) in table {
            let refusal = text.parse::<Check>().unwrap_err().to_string();
            assert!(refusal.contains(way_out), "{text}: {refusal}");
        }
    }
}
