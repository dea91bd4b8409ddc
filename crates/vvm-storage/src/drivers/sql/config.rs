//! [`Address`]: `scheme://user:password@host1,host2:port/database?option=value`, as far as the drivers share it. What opening
//! checks, and `vvm init-storage` creates.

use super::{
    connection::{ConnectionPool, Server},
    errors::{DecodeError, DriverError},
    history::{Lineage, ServerHistory},
    rows::StatementResults,
    statements::{Statements, raise_max_ttl},
};
use crate::{
    drivers::{
        config::{
            Host, Password, REQUEST_TIMEOUT, connections, decoded, max_ttl, parse_hosts, password,
            request_timeout,
        },
        tls::Tls,
    },
    opening::OpenError,
    sysvvm::Description,
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

    /// With the defaults of all options.
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

/// `names` are the options that only the driver has.
pub(crate) fn no_option(name: &str, names: &str) -> String {
    format!(
        "there is no option `{name}`; there are connections, password_file, max_ttl, request_timeout, {names}"
    )
}

/// The comment by which tables are known. A change that an older version would misread raises the number.
pub(crate) const FORMAT: &str = "vvm elections, format 1";

const PROGRAM: &str = "vvm elections, format ";

pub(crate) trait Opening: Server + Statements {
    const CREATED: (&str, &str);

    const DESCRIBE: &str;

    /// Whether all that [`creation`](Statements::creation) creates is there. Fails if it is not ours.
    fn is_there(
        connections: &ConnectionPool<Self, Self::Session>,
    ) -> impl Future<Output = Result<bool, OpenError>> + Send;

    /// The statements by which an administrator gives the right to create, and those of candidates.
    fn grants(address: &Address) -> [String; 2];

    fn description(answer: &StatementResults) -> Result<Description, DecodeError>;
}

/// Fails unless `comment`, which `what` has, is ours.
pub(crate) fn is_ours(what: &str, comment: &str) -> Result<(), OpenError> {
    match comment {
        FORMAT => Ok(()),
        comment if comment.starts_with(PROGRAM) => Err(OpenError::refused(format!(
            "{what} has the comment `{comment}`: a later version of vvm made it. Use that version"
        ))),
        _ => Err(OpenError::refused(format!(
            "{what} of this database belongs to another program: use another database"
        ))),
    }
}

pub(super) async fn open<S: Opening>(
    server: S,
) -> Result<(ConnectionPool<S, S::Session>, ServerHistory), OpenError> {
    if let Some(warning) = server.unencrypted() {
        tracing::warn!(storage = %server.address(), "{warning}");
    }
    let connections = ConnectionPool::new(server)?;
    if !S::is_there(&connections).await? {
        let (what, creates) = S::CREATED;
        return Err(OpenError::missing(format!(
            "database {} has no {what}: `vvm init-storage --storage URL` {creates}",
            connections.address().database
        )));
    }
    let answer = connections.ask(&S::history()).await.map_err(|error| lacks(&connections, error, USE))?;
    let shown =
        Lineage::shown(answer.row(0)).map_err(|damaged| DriverError::from(damaged).into_open_error())?;
    Ok((connections, shown))
}

const CREATE: usize = 0;

const USE: usize = 1;

/// Says how the login gets the right that it lacks, if that is the cause.
fn lacks<S: Opening>(
    connections: &ConnectionPool<S, S::Session>,
    error: DriverError,
    place: usize,
) -> OpenError {
    match error {
        DriverError::Denied(why) => OpenError::refused(format!(
            "this login lacks a right: {why}. As an administrator of the database: {}",
            S::grants(connections.address())[place]
        )),
        error => error.into_open_error(),
    }
}

pub(super) async fn create<S: Opening>(connections: &ConnectionPool<S, S::Session>) -> Result<(), OpenError> {
    let max_ttl = connections.address().max_ttl;
    if !S::is_there(connections).await? {
        let text = S::creation(max_ttl.unwrap_or(Ttl::DEFAULT)).map_err(DriverError::into_open_error)?;
        let created = connections.ask(&text).await;
        // Another creator may have been faster: what stands now decides.
        if let (Err(error), false) = (created, S::is_there(connections).await?) {
            return Err(lacks(connections, error, CREATE));
        }
    }
    connections.ask(&writes_of_nothing::<S>()).await.map_err(|error| lacks(connections, error, USE))?;
    if let Some(max_ttl) = max_ttl {
        let raised = connections.ask(&raise_max_ttl::<S>(max_ttl)).await;
        raised.map_err(|error| lacks(connections, error, USE))?;
    }
    Ok(())
}

/// Statements that need each right of candidates, and find no row. Servers check rights before they look for rows.
fn writes_of_nothing<S: Statements>() -> String {
    let prefix = S::PREFIX;
    let rows = ["leader", "setting", "document"].map(|table| {
        format!(
            "INSERT INTO {prefix}{table} SELECT * FROM {prefix}{table} WHERE 1 = 0; \
             UPDATE {prefix}{table} SET pk = pk WHERE 1 = 0; "
        )
    });
    format!(
        "{}DELETE FROM {prefix}document WHERE 1 = 0; UPDATE {prefix}history SET adopted = adopted WHERE 1 = 0",
        rows.concat()
    )
}

pub(super) async fn describe<S: Opening>(
    connections: &ConnectionPool<S, S::Session>,
) -> Result<Description, DriverError> {
    let answer = connections.ask(S::DESCRIBE).await?;
    let description = S::description(&answer)?;
    Ok(connections.server().unencrypted().into_iter().fold(description, Description::concerned))
}
