//! `postgres://…`, taken apart.

use super::OpenError;
use crate::drivers::{
    hosts::{self, Host},
    options::options,
    postgres::open::tls::Tls,
    request_timeout::{REQUEST_TIMEOUT, duration, request_timeout},
};
use ielections::Ttl;
use std::{fmt, path::PathBuf, time::Duration};

/// Where a database is, and how to log in.
#[derive(Clone, Debug)]
pub(in super::super) struct Address {
    pub(super) hosts: Vec<Host>,
    pub(super) user: String,
    pub(super) database: String,
    pub(super) password_file: Option<PathBuf>,
    pub(super) tls: Tls,
    pub(in super::super) max_ttl: Option<Ttl>,
    pub(in super::super) request_timeout: Duration,
    /// How many requests may be under way at once; further ones wait.
    pub(super) connections: u16,
}

/// PostgreSQL has 100 connections for all programs unless it is configured otherwise.
const CONNECTIONS: u16 = 8;

const SCHEME: &str = "postgres://";

const PORT: u16 = 5432;

impl Address {
    /// Returns the address that `url` names.
    pub(in super::super) fn parse(url: &str) -> Result<Self, OpenError> {
        parse(url).map_err(|why| OpenError::Url { url: url.into(), why })
    }

    /// Returns a warning if logins and answers would cross a network without TLS.
    pub(in super::super) fn unencrypted(&self) -> Option<&'static str> {
        let is_exposed = !self.tls.is_on() && !self.hosts.iter().all(Host::is_loopback);
        is_exposed.then_some(
            "sslmode=disable: machines between here and the server can read the login and forge answers. \
             Remove it, and name the servers' authority with sslrootcert=PATH",
        )
    }
}

impl fmt::Display for Address {
    /// Hosts and database alone: no option, and so no secret.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts: Vec<String> = self.hosts.iter().map(Host::to_string).collect();
        write!(out, "{SCHEME}{}/{}", hosts.join(","), self.database)
    }
}

fn parse(url: &str) -> Result<Address, String> {
    let rest = url.strip_prefix(SCHEME).ok_or("write postgres://user@host1,host2:5432/database")?;
    let (place, text) = rest.split_once('?').unwrap_or((rest, ""));
    let (user, place) =
        place.rsplit_once('@').ok_or("the user is missing: write postgres://user@host/database")?;
    if user.contains(':') || text.contains("password=") {
        return Err("others can read a command line: put the password into the environment \
                    (VVM_STORAGE_PASSWORD), a file (password_file=PATH) or ~/.pgpass"
            .into());
    }
    let (hosts, database) =
        place.split_once('/').ok_or("the database is missing: write postgres://user@host/database")?;
    if user.is_empty() || database.is_empty() || [user, database].iter().any(|name| name.contains(['%', '/']))
    {
        return Err("user and database are names as they are, without `/` and `%`".into());
    }
    let hosts = hosts::parse(hosts, PORT)?;
    let mut address = Address {
        tls: Tls::default_for(hosts.iter().all(Host::is_loopback)),
        hosts,
        user: user.to_owned(),
        database: database.to_owned(),
        password_file: None,
        max_ttl: None,
        request_timeout: REQUEST_TIMEOUT,
        connections: CONNECTIONS,
    };
    for option in options(text) {
        let (name, value) = option?;
        match name {
            "password_file" => address.password_file = Some(value.into()),
            "max_ttl" => address.max_ttl = Some(max_ttl(value)?),
            "request_timeout" => address.request_timeout = request_timeout(value)?,
            "connections" => address.connections = connections(value)?,
            _ if address.tls.set(name, value)? => {}
            _ => {
                return Err(format!(
                    "there is no option `{name}`; there are connections, password_file, max_ttl, \
                     request_timeout, sslmode, sslrootcert, sslcert, sslkey"
                ));
            }
        }
    }
    address.tls.check()?;
    Ok(address)
}

fn max_ttl(value: &str) -> Result<Ttl, String> {
    let ttl = duration(value).and_then(|span| Ttl::new(span).ok());
    ttl.ok_or_else(|| format!("`{value}` is no TTL: write max_ttl=60s, up to 24 h"))
}

fn connections(value: &str) -> Result<u16, String> {
    let number = value.parse().ok().filter(|number| (1..=1_000).contains(number));
    let wrong = || format!("`{value}` is no number of connections: write connections=8, up to 1000");
    number.ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_has_hosts_user_database_and_options() {
        let address = parse(
            "postgres://vvm@127.0.0.1,[::1]:5433,localhost:5434/elections?max_ttl=60s&request_timeout=500ms\
             &connections=64",
        )
        .unwrap();
        let hosts: Vec<String> = address.hosts.iter().map(Host::to_string).collect();
        assert_eq!(hosts, ["127.0.0.1:5432", "[::1]:5433", "localhost:5434"]);
        assert_eq!((&*address.user, &*address.database), ("vvm", "elections"));
        assert_eq!(address.max_ttl.unwrap().get(), Duration::from_secs(60));
        assert_eq!(address.request_timeout, Duration::from_millis(500));
        assert_eq!(address.connections, 64);
        assert!(!address.tls.is_on());
    }

    #[test]
    fn tls_is_on_unless_every_host_is_loopback() {
        for (hosts, is_on) in
            [("127.0.0.2,[::1],localhost", false), ("127.0.0.1,db1", true), ("10.0.0.1", true)]
        {
            assert_eq!(parse(&format!("postgres://me@{hosts}/db")).unwrap().tls.is_on(), is_on, "{hosts}");
        }
    }

    #[test]
    fn connection_without_tls_off_loopback_is_warned_of() {
        let warning = |url| parse(url).unwrap().unencrypted();
        assert!(warning("postgres://me@127.0.0.1,db1/db?sslmode=disable").unwrap().contains("sslrootcert="));
        assert_eq!(warning("postgres://me@127.0.0.1/db?sslmode=disable"), None);
        assert_eq!(warning("postgres://me@db1/db"), None);
    }

    #[test]
    fn password_is_not_shown() {
        for url in ["postgres://vvm:sec@ret@host/db", "postgres://vvm@host/db?password=secret&max_ttl=1s"] {
            let error = Address::parse(url).unwrap_err().to_string();
            assert!(error.contains("VVM_STORAGE_PASSWORD") && error.contains("host/db"), "{error}");
            assert!(!error.contains("sec") && !error.contains("ret@"), "{error}");
        }
    }

    #[test]
    fn wrong_url_is_refused_with_the_way_out() {
        let table = [
            ("postgres:host/db", "write postgres://"),
            ("postgres://host/db", "the user is missing"),
            ("postgres://@host/db", "user and database are names"),
            ("postgres://me@host", "the database is missing"),
            ("postgres://me@host/", "user and database are names"),
            ("postgres://me@host/a%20b", "without `/` and `%`"),
            ("postgres://me@/db", "no host"),
            ("postgres://me@a,,b/db", "no host"),
            ("postgres://me@a:0/db", "has no port"),
            ("postgres://me@[::1]5432/db", "has no port"),
            ("postgres://me:secret@a/db", "VVM_STORAGE_PASSWORD"),
            ("postgres://me@127.0.0.1/db?max_ttl=1d", "write max_ttl=60s"),
            ("postgres://me@127.0.0.1/db?max_ttl=48h", "write max_ttl=60s"),
            ("postgres://me@127.0.0.1/db?request_timeout=5m", "request_timeout=5s"),
            ("postgres://me@127.0.0.1/db?options=-c", "no option `options`"),
            ("postgres://me@db1/db?sslmode=require", "don't protect the password"),
            ("postgres://me@db1/db?sslcert=a", "give both"),
            ("postgres://me@127.0.0.1/db?sslrootcert=a", "TLS is off"),
        ];
        for (url, part) in table {
            let why = parse(url).unwrap_err();
            assert!(why.contains(part), "{url}: {why}");
        }
    }
}
