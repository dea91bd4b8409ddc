//! `mysql://…`, taken apart.

use crate::{
    drivers::{
        address::{
            Host, Password, REQUEST_TIMEOUT, connections, decoded, max_ttl, options, parse_hosts, password,
            request_timeout,
        },
        tls::{Names, Tls, TlsFiles},
    },
    opening::OpenError,
};
use ielections::Ttl;
use std::{fmt, path::PathBuf, time::Duration};

/// Where a database is, and how to log in.
#[derive(Clone, Debug)]
pub(super) struct Address {
    pub(super) hosts: Vec<Host>,
    pub(super) user: String,
    /// Of the URL.
    password: Option<Password>,
    password_file: Option<PathBuf>,
    pub(super) database: String,
    pub(super) tls: Option<Tls>,
    pub(super) max_ttl: Option<Ttl>,
    pub(super) request_timeout: Duration,
    /// How many requests may be under way at once; further ones wait.
    pub(super) connections: u16,
}

const SCHEMES: [&str; 2] = ["mysql://", "mariadb://"];

const PORT: u16 = 3306;

/// MariaDB and MySQL have 151 connections for all programs unless they are configured otherwise.
const CONNECTIONS: u16 = 8;

impl Address {
    /// Returns the address that `url` names.
    pub(super) fn parse(url: &str) -> Result<Self, OpenError> {
        parse(url).map_err(|why| OpenError::of_url(url, why))
    }

    /// Returns a warning if logins and answers would cross a network without TLS.
    pub(super) fn unencrypted(&self) -> Option<&'static str> {
        let is_exposed = self.tls.is_none() && !self.hosts.iter().all(Host::is_loopback);
        is_exposed.then_some(
            "tls=off: machines between here and the server can read the login and forge answers. Remove it, \
             and name the servers' authority with tls_ca=PATH",
        )
    }

    /// The password. Read anew for each connection, so that it can be changed.
    pub(super) fn password(&self) -> Result<String, OpenError> {
        let of_url = self.password.as_ref().map(|password| &*password.0);
        Ok(password(self.password_file.as_deref(), of_url)?.unwrap_or_default())
    }
}

impl fmt::Display for Address {
    /// Hosts and database alone: no option, and so no secret.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts: Vec<String> = self.hosts.iter().map(Host::to_string).collect();
        write!(out, "mysql://{}/{}", hosts.join(","), self.database)
    }
}

/// Whether the URL has a password. An empty one (`user:@host`) is none, and says so whatever the environment has.
pub(crate) fn has_password(url: &str) -> bool {
    Address::parse(url).is_ok_and(|address| address.password.is_some_and(|password| !password.0.is_empty()))
}

fn parse(url: &str) -> Result<Address, String> {
    let rest = SCHEMES.iter().find_map(|scheme| url.strip_prefix(scheme));
    let rest = rest.ok_or("write mysql://user@host1,host2:3306/database")?;
    let (place, text) = rest.split_once('?').unwrap_or((rest, ""));
    let (login, place) =
        place.rsplit_once('@').ok_or("the user is missing: write mysql://user@host/database")?;
    let (user, password) = match login.split_once(':') {
        Some((user, password)) => (user, Some(Password(decoded(password)?))),
        None => (login, None),
    };
    let (hosts, database) =
        place.split_once('/').ok_or("the database is missing: write mysql://user@host/database")?;
    let (user, database) = (decoded(user)?, decoded(database)?);
    if user.is_empty()
        || database.is_empty()
        || [&user, &database].iter().any(|name| name.contains(['\0', '/']))
    {
        return Err("user and database have names, without a `/`".into());
    }
    let hosts = parse_hosts(hosts, PORT)?;
    let mut address = Address {
        hosts,
        user,
        password,
        password_file: None,
        database,
        tls: None,
        max_ttl: None,
        request_timeout: REQUEST_TIMEOUT,
        connections: CONNECTIONS,
    };
    let (mut files, mut is_off) = (TlsFiles::default(), false);
    for option in options(text) {
        let (name, value) = option?;
        match name {
            "password_file" => address.password_file = Some(value.into()),
            "max_ttl" => address.max_ttl = Some(max_ttl(value)?),
            "request_timeout" => address.request_timeout = request_timeout(value)?,
            "connections" => address.connections = connections(value)?,
            "tls" if value == "off" => is_off = true,
            "tls" => return Err("TLS is on unless all hosts are loopback, or with tls_ca=PATH: write tls=off, or leave it out".into()),
            _ if files.set(name, value)? => {}
            _ => {
                return Err(format!(
                    "there is no option `{name}`; there are connections, password_file, max_ttl, \
                     request_timeout, tls, tls_ca, tls_certificate, tls_key, tls_name"
                ));
            }
        }
    }
    address.tls = match files.together()? {
        Some(_) if is_off => return Err("TLS is off, and a file for it is given: remove tls=off".into()),
        Some(tls) => Some(tls),
        None if is_off || address.hosts.iter().all(Host::is_loopback) => None,
        // The authorities of the system.
        None => Some(Tls { authority: None, names: Names::Address, own: None }),
    };
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_has_hosts_user_database_and_options() {
        let url =
            "mysql://pay%40roll:s%2Fcret@a,[::1]:3307/elec?max_ttl=60s&connections=64&request_timeout=500ms";
        let address = parse(url).unwrap();
        assert_eq!(address.to_string(), "mysql://a:3306,[::1]:3307/elec");
        assert_eq!((&*address.user, &*address.password().unwrap()), ("pay@roll", "s/cret"));
        assert_eq!((address.connections, address.request_timeout), (64, Duration::from_millis(500)));
        assert!(
            address.tls.is_some() && address.max_ttl.is_some() && !format!("{address:?}").contains("cret")
        );
        assert!(has_password(url) && !has_password("mariadb://me@a/b"));
    }

    #[test]
    fn connection_without_tls_off_loopback_is_asked_for_and_warned_of() {
        let warning = |url| parse(url).unwrap().unencrypted();
        assert!(warning("mysql://me@127.0.0.1,db1/vvm?tls=off").unwrap().contains("tls_ca="));
        assert_eq!(warning("mysql://me@127.0.0.1,[::1],localhost/vvm"), None);
        assert_eq!(warning("mysql://me@db1/vvm"), None);
    }

    #[test]
    fn wrong_url_is_refused_with_the_way_out() {
        let table = [
            ("mysql:host/vvm", "write mysql://"),
            ("mysql://host/vvm", "user is missing"),
            ("mysql://me@host", "database is missing"),
            ("mysql://me@host/", "have names"),
            ("mysql://me@host/a/b", "without a `/`"),
            ("mysql://me@a:0/vvm", "write host:3306"),
            ("mysql://me@a/vvm?max_ttl=1x", "max_ttl=60s"),
            ("mysql://me@a/vvm?tls=on", "tls=off"),
            ("mysql://me@a/vvm?tls=off&tls_ca=x", "remove tls=off"),
            ("mysql://me@a/vvm?tls_key=x", "give both"),
            ("mysql://me:secret@a/vvm?ssl-mode=REQUIRED", "no option `ssl-mode`"),
        ];
        for (url, part) in table {
            let error = Address::parse(url).unwrap_err().to_string();
            assert!(error.contains(part) && !error.contains("secret"), "{url}: {error}");
        }
    }
}
