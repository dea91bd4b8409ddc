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
use tokio_postgres::config::ChannelBinding;

/// Where a database is, and how to log in.
#[derive(Clone, Debug)]
pub(in super::super) struct Address {
    pub(super) hosts: Vec<Host>,
    pub(super) user: String,
    /// Of the URL.
    pub(super) password: Option<Password>,
    pub(super) database: String,
    pub(super) password_file: Option<PathBuf>,
    pub(super) tls: Tls,
    pub(in super::super) max_ttl: Option<Ttl>,
    pub(in super::super) request_timeout: Duration,
    /// How many requests may be under way at once; further ones wait.
    pub(super) connections: u16,
    /// How long connecting to one host may take, if the URL says it.
    pub(super) connect_timeout: Option<Duration>,
    /// As servers show it.
    pub(super) application_name: String,
    pub(super) channel_binding: ChannelBinding,
}

/// A password that is not shown.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Password(pub(super) String);

impl fmt::Debug for Password {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("…")
    }
}

/// PostgreSQL has 100 connections for all programs unless it is configured otherwise.
const CONNECTIONS: u16 = 8;

const SCHEMES: [&str; 2] = ["postgres://", "postgresql://"];

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
        write!(out, "postgres://{}/{}", hosts.join(","), self.database)
    }
}

fn parse(url: &str) -> Result<Address, String> {
    let rest = SCHEMES.iter().find_map(|scheme| url.strip_prefix(scheme));
    let rest = rest.ok_or("write postgres://user@host1,host2:5432/database")?;
    let (place, text) = rest.split_once('?').unwrap_or((rest, ""));
    let (login, place) =
        place.rsplit_once('@').ok_or("the user is missing: write postgres://user@host/database")?;
    let (user, password) = match login.split_once(':') {
        Some((user, password)) => (user, Some(decoded(password)?)),
        None => (login, None),
    };
    let (hosts, database) =
        place.split_once('/').ok_or("the database is missing: write postgres://user@host/database")?;
    let (user, database) = (decoded(user)?, decoded(database)?);
    if user.is_empty() || database.is_empty() || database.contains('/') {
        return Err("user and database have names; a `/` in one is written %2F".into());
    }
    let hosts = hosts::parse(hosts, PORT)?;
    let mut address = Address {
        tls: Tls::default_for(hosts.iter().all(Host::is_loopback)),
        hosts,
        user,
        password: password.map(Password),
        database,
        password_file: None,
        max_ttl: None,
        request_timeout: REQUEST_TIMEOUT,
        connections: CONNECTIONS,
        connect_timeout: None,
        application_name: "vvm".into(),
        channel_binding: ChannelBinding::Prefer,
    };
    for option in options(text) {
        let (name, value) = option?;
        match name {
            "password_file" => address.password_file = Some(value.into()),
            "max_ttl" => address.max_ttl = Some(max_ttl(value)?),
            "request_timeout" => address.request_timeout = request_timeout(value)?,
            "connections" => address.connections = connections(value)?,
            _ if address.tls.set(name, value)? => {}
            _ if address.set_as_libpq(name, value)? => {}
            _ => {
                return Err(format!(
                    "there is no option `{name}`; there are connections, password_file, max_ttl, \
                     request_timeout, sslmode, sslrootcert, sslcert, sslkey, connect_timeout, \
                     application_name, channel_binding, target_session_attrs"
                ));
            }
        }
    }
    address.tls.check()?;
    Ok(address)
}

impl Address {
    /// Takes an option of PostgreSQL's own library that means here what it means there. Refuses those that
    /// can't, with what to write instead; `false` for any other.
    fn set_as_libpq(&mut self, name: &str, value: &str) -> Result<bool, String> {
        let instead = |way_out: &str| Err(format!("`{name}={value}` can't be had here: {way_out}"));
        match (name, value) {
            ("password", _) => self.password = Some(Password(decoded(value)?)),
            ("application_name", _) => self.application_name = decoded(value)?,
            ("connect_timeout", _) => self.connect_timeout = connect_timeout(value)?,
            ("channel_binding", "disable") => self.channel_binding = ChannelBinding::Disable,
            ("channel_binding", "prefer") => self.channel_binding = ChannelBinding::Prefer,
            ("channel_binding", "require") => self.channel_binding = ChannelBinding::Require,
            ("target_session_attrs", "read-write" | "primary") | ("gssencmode", "disable" | "prefer") => {}
            ("target_session_attrs", _) => {
                return instead("only a server that accepts writes is used. Leave it out");
            }
            ("host" | "hostaddr" | "port" | "user" | "dbname", _) => {
                return instead("it stands before the `?`: postgres://user@host:5432/database");
            }
            ("options", _) => {
                return instead("set it for the login: ALTER ROLE name SET parameter = value");
            }
            ("keepalives" | "keepalives_idle" | "keepalives_interval" | "tcp_user_timeout", _) => {
                return instead("request_timeout=5s ends a connection that is silent");
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Returns the text that `%XX` stand for.
fn decoded(text: &str) -> Result<String, String> {
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

/// Seconds; 0 and less are no limit, as there.
fn connect_timeout(value: &str) -> Result<Option<Duration>, String> {
    let seconds: i32 =
        value.parse().map_err(|_| format!("`{value}` is no number: write connect_timeout=5"))?;
    Ok(u64::try_from(seconds).ok().filter(|seconds| *seconds > 0).map(Duration::from_secs))
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
    fn database_url_of_other_programs_is_accepted() {
        let url = "postgresql://a%40b:p%25%3Aw@db1/my%2Dapp?sslmode=require&connect_timeout=10\
                   &application_name=payroll%20web&channel_binding=require&target_session_attrs=read-write";
        let address = parse(url).unwrap();
        assert_eq!((&*address.user, &*address.database), ("a@b", "my-app"));
        assert_eq!(address.password, Some(Password("p%:w".into())));
        assert_eq!(address.connect_timeout, Some(Duration::from_secs(10)));
        assert_eq!(address.application_name, "payroll web");
        assert_eq!(address.channel_binding, ChannelBinding::Require);
        assert_eq!(address.tls, parse("postgres://me@db1/db?sslmode=verify-full").unwrap().tls);
        assert_eq!(parse("postgres://me@h/db?connect_timeout=0").unwrap().connect_timeout, None);
    }

    #[test]
    fn password_is_not_shown() {
        for url in ["postgres://vvm:sec@ret@host/db", "postgres://vvm@host/db?password=sec%40ret&max_ttl=1s"]
        {
            let address = Address::parse(url).unwrap();
            assert_eq!(address.password, Some(Password("sec@ret".into())));
            for shown in [format!("{address:?}"), address.to_string()] {
                assert!(
                    shown.contains("host") && !shown.contains("sec") && !shown.contains("ret@"),
                    "{shown}"
                );
            }
            let error = Address::parse(&url.replace("host/", "host/a/")).unwrap_err().to_string();
            assert!(!error.contains("sec") && !error.contains("ret@"), "{error}");
        }
    }

    #[test]
    fn wrong_url_is_refused_with_the_way_out() {
        let table = [
            ("postgres:host/db", "write postgres://"),
            ("postgres://host/db", "the user is missing"),
            ("postgres://@host/db", "user and database have names"),
            ("postgres://me@host", "the database is missing"),
            ("postgres://me@host/", "user and database have names"),
            ("postgres://me@host/a/b", "written %2F"),
            ("postgres://me:100%@host/db", "written %25"),
            ("postgres://me@/db", "no host"),
            ("postgres://me@a,,b/db", "no host"),
            ("postgres://me@a:0/db", "has no port"),
            ("postgres://me@[::1]5432/db", "has no port"),
            ("postgres://me@127.0.0.1/db?max_ttl=1d", "write max_ttl=60s"),
            ("postgres://me@127.0.0.1/db?max_ttl=48h", "write max_ttl=60s"),
            ("postgres://me@127.0.0.1/db?request_timeout=5m", "request_timeout=5s"),
            ("postgres://me@127.0.0.1/db?schema=public", "no option `schema`"),
            ("postgres://me@127.0.0.1/db?options=-c", "ALTER ROLE"),
            ("postgres://me@127.0.0.1/db?port=5433", "before the `?`"),
            ("postgres://me@127.0.0.1/db?target_session_attrs=standby", "accepts writes"),
            ("postgres://me@127.0.0.1/db?keepalives_idle=5", "request_timeout=5s"),
            ("postgres://me@127.0.0.1/db?connect_timeout=5s", "connect_timeout=5"),
            ("postgres://me@db1/db?sslmode=prefer", "sslmode=disable"),
            ("postgres://me@db1/db?sslcert=a", "give both"),
            ("postgres://me@127.0.0.1/db?sslrootcert=a", "TLS is off"),
        ];
        for (url, part) in table {
            let why = parse(url).unwrap_err();
            assert!(why.contains(part), "{url}: {why}");
        }
    }
}
