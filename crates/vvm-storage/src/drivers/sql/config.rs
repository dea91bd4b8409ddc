//! [`Address`]: `scheme://user:password@host1,host2:port/database?option=value`, as far as the drivers share it.

use crate::{
    drivers::{
        config::{
            Host, Password, REQUEST_TIMEOUT, connections, decoded, max_ttl, parse_hosts, password,
            request_timeout,
        },
        tls::Tls,
    },
    opening::OpenError,
};
use ielections::Ttl;
use std::{fmt, path::PathBuf, time::Duration};

#[derive(Clone, Debug)]
pub(crate) struct Address {
    pub(crate) scheme: &'static str,
    pub(crate) hosts: Vec<Host>,
    pub(crate) user: String,
    pub(crate) password: Option<Password>,
    pub(crate) password_file: Option<PathBuf>,
    pub(crate) database: String,
    pub(crate) max_ttl: Option<Ttl>,
    pub(crate) request_timeout: Duration,
    pub(crate) connections: u16,
    pub(in crate::drivers) tls: Option<Tls>,
}

/// Servers have 100 connections for all programs, or more, unless they are configured otherwise.
pub(in crate::drivers) const CONNECTIONS: u16 = 8;

impl Address {
    /// The first of the schemes is shown. Returns the options as well.
    pub(crate) fn parse<'url>(
        url: &'url str,
        schemes: [&'static str; 2],
        port: u16,
    ) -> Result<(Self, &'url str), String> {
        let scheme = schemes[0];
        let rest = schemes.iter().find_map(|scheme| url.strip_prefix(scheme)?.strip_prefix("://"));
        let rest = rest.ok_or_else(|| format!("write {scheme}://user@host1,host2:{port}/database"))?;
        let missing = |what| format!("the {what} is missing: write {scheme}://user@host/database");
        let (place, options) = rest.split_once('?').unwrap_or((rest, ""));
        let (login, place) = place.rsplit_once('@').ok_or_else(|| match options.contains('@') {
            true => missing("user") + ". A `?` in a user or password is written %3F",
            false => missing("user"),
        })?;
        let (user, password) = match login.split_once(':') {
            Some((user, password)) => (user, Some(Password(decoded(password)?))),
            None => (login, None),
        };
        let (hosts, database) = place.split_once('/').ok_or_else(|| missing("database"))?;
        let (user, database) = (decoded(user)?, decoded(database)?);
        let is_wrong = |name: &str| name.is_empty() || name.contains('\0');
        if is_wrong(&user) || is_wrong(&database) || database.contains('/') {
            return Err("user and database have names, the database one without a `/`".into());
        }
        let hosts = parse_hosts(hosts, port)?;
        Ok((Self { password, ..Self::new(scheme, hosts, user, database) }, options))
    }

    pub(crate) fn new(scheme: &'static str, hosts: Vec<Host>, user: String, database: String) -> Self {
        Self {
            scheme,
            hosts,
            user,
            password: None,
            password_file: None,
            database,
            max_ttl: None,
            request_timeout: REQUEST_TIMEOUT,
            connections: CONNECTIONS,
            tls: None,
        }
    }

    pub(crate) fn set(&mut self, name: &str, value: &str) -> Result<bool, String> {
        match name {
            "password_file" => self.password_file = Some(value.into()),
            "max_ttl" => self.max_ttl = Some(max_ttl(value)?),
            "request_timeout" => self.request_timeout = request_timeout(value)?,
            "connections" => self.connections = connections(value)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    pub(crate) fn is_loopback(&self) -> bool {
        self.hosts.iter().all(Host::is_loopback)
    }

    pub(crate) fn password(&self) -> Result<Option<String>, OpenError> {
        let of_url = self.password.as_ref().map(|password| &*password.0);
        password(self.password_file.as_deref(), of_url)
    }
}

impl fmt::Display for Address {
    /// Without options, and so without a secret.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts: Vec<String> = self.hosts.iter().map(Host::to_string).collect();
        write!(out, "{}://{}/{}", self.scheme, hosts.join(","), self.database)
    }
}

pub(crate) fn no_option(name: &str, names: &str) -> String {
    format!(
        "there is no option `{name}`; there are connections, password_file, max_ttl, request_timeout, {names}"
    )
}
