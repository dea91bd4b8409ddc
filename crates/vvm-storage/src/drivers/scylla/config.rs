//! URL and options.

use super::statements::Levels;
use crate::{
    drivers::{
        config::{Host, REQUEST_TIMEOUT, checked_request_timeout, options, parse_hosts, request_timeout},
        tls::{Tls, TlsFiles},
    },
    opening::OpenError,
};
use ::scylla::client::session::Session;
use std::{fmt, path::PathBuf, time::Duration};

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Address {
    pub(super) contact_points: Vec<String>,
    pub(super) keyspace: String,
    pub(super) datacenter: Option<String>,
    pub(super) levels: Levels,
    pub(super) user: Option<String>,
    pub(super) password_file: Option<PathBuf>,
    pub(super) tls: Option<Tls>,
    /// The copies in each data centre of a keyspace that is created.
    pub(super) replication: Option<u32>,
    pub(super) request_timeout: Duration,
}

/// What a [`ScyllaStorage`](super::ScyllaStorage) needs beside the caller's own [`Session`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenOptions {
    /// The levels with which the table was created: [`Levels::Global`] unless given.
    pub levels: Levels,
    /// The time limit of a request: 2 s unless given, from 100 ms to 60 s.
    pub request_timeout: Duration,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self { levels: Levels::Global, request_timeout: REQUEST_TIMEOUT }
    }
}

const SCHEME: &str = "scylla://";

const PORT: u16 = 9042;

const LONGEST_NAME: usize = 48;

impl Address {
    pub(super) fn parse(url: &str) -> Result<Self, OpenError> {
        parse(url).map_err(|why| OpenError::of_url(url, why))
    }

    pub(super) fn of_session(
        session: &Session,
        keyspace: &str,
        options: OpenOptions,
    ) -> Result<Self, OpenError> {
        let OpenOptions { levels, request_timeout } = options;
        let state = session.get_cluster_state();
        let nodes = state.get_nodes_info().iter().map(|node| node.address.to_string());
        let datacenter = match &levels {
            Levels::Global => None,
            Levels::Local(datacenter) => Some(datacenter.clone()),
        };
        let request_timeout = checked_request_timeout(request_timeout)?;
        let of_options = Self::new(nodes.collect(), keyspace).map_err(OpenError::misuse)?;
        Ok(Self { datacenter, levels, request_timeout, ..of_options })
    }

    fn new(contact_points: Vec<String>, keyspace: &str) -> Result<Self, String> {
        Ok(Self {
            contact_points,
            keyspace: checked_keyspace(keyspace)?,
            datacenter: None,
            levels: Levels::Global,
            user: None,
            password_file: None,
            tls: None,
            replication: None,
            request_timeout: REQUEST_TIMEOUT,
        })
    }

    pub(super) fn unencrypted_password(&self) -> Option<String> {
        let user = self.user.as_ref().filter(|_| self.tls.is_none())?;
        Some(format!("the password of user `{user}` goes over the network unencrypted: add tls_ca=PATH"))
    }
}

impl fmt::Display for Address {
    /// Without options, and so without a secret.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{SCHEME}{}/{}", self.contact_points.join(","), self.keyspace)
    }
}

fn parse(url: &str) -> Result<Address, String> {
    let rest = url.strip_prefix(SCHEME).ok_or("write scylla://host1,host2:9042/keyspace")?;
    let (place, text) = rest.split_once('?').unwrap_or((rest, ""));
    if place.contains('@') {
        return Err(
            "a user and a password can't precede the hosts: write ?user=NAME, and put the password into the \
                    environment (VVM_STORAGE_PASSWORD) or a file (password_file=PATH)"
                .into(),
        );
    }
    let (hosts, keyspace) =
        place.split_once('/').ok_or("the keyspace is missing: write scylla://host/keyspace")?;
    let contact_points = parse_hosts(hosts, PORT)?.iter().map(Host::to_string).collect();
    let mut address = Address::new(contact_points, keyspace)?;
    let mut is_local = false;
    let mut files = TlsFiles::default();
    for option in options(text) {
        let (name, value) = option?;
        match (name, value) {
            ("datacenter", _) => address.datacenter = Some(value.to_owned()),
            ("serial", "local") => is_local = true,
            ("serial", "global") => is_local = false,
            ("serial", _) => return Err("serial is `local` or `global`".into()),
            ("user", _) => address.user = Some(value.to_owned()),
            ("password_file", _) => address.password_file = Some(value.into()),
            ("password", _) => {
                return Err("this URL has no password: put it into the environment \
                            (VVM_STORAGE_PASSWORD) or a file (password_file=PATH)"
                    .into());
            }
            ("request_timeout", _) => address.request_timeout = request_timeout(value)?,
            ("replication", _) => address.replication = Some(replication(value)?),
            _ if files.set(name, value)? => {}
            _ => {
                return Err(format!(
                    "there is no option `{name}`; there are datacenter, serial, user, password_file, tls_ca, \
                     tls_certificate, tls_key, tls_name, replication, request_timeout"
                ));
            }
        }
    }
    address.tls = files.together()?;
    if is_local {
        let datacenter = address.datacenter.clone().ok_or(
            "serial=local needs a data centre, the same for all candidates: two would have two leaders. \
             Add datacenter=NAME",
        )?;
        address.levels = Levels::Local(datacenter);
    }
    Ok(address)
}

fn checked_keyspace(keyspace: &str) -> Result<String, String> {
    let is_name = (1..=LONGEST_NAME).contains(&keyspace.len())
        && keyspace.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if is_name {
        return Ok(keyspace.to_owned());
    }
    Err(format!("`{keyspace}` is not a keyspace: it has letters, digits and `_`, at most {LONGEST_NAME}"))
}

fn replication(value: &str) -> Result<u32, String> {
    let copies = value.parse::<u32>().ok().filter(|copies| *copies > 0);
    copies.ok_or_else(|| "replication is a number, `3`: of copies in each data centre".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drivers::tls::{ExpectedName, Pem};
    use rustls::pki_types::ServerName;

    #[test]
    fn hosts_keyspace_and_options_are_parsed() {
        let address = parse(
            "scylla://a,b:9043,[::1]:9044,[::2]/elections?datacenter=dc1&serial=local&user=vvm\
         &password_file=/run/x=y&replication=3&request_timeout=500ms",
        )
        .unwrap();
        assert_eq!(address.contact_points, ["a:9042", "b:9043", "[::1]:9044", "[::2]:9042"]);
        assert_eq!(address.keyspace, "elections");
        assert_eq!(address.levels, Levels::Local("dc1".into()));
        assert_eq!(address.request_timeout, Duration::from_millis(500));
        assert_eq!(address.user.as_deref(), Some("vvm"));
        assert_eq!(address.password_file, Some("/run/x=y".into()));
        assert_eq!(address.replication, Some(3));
        let plain = parse("scylla://a/b").unwrap();
        assert_eq!(plain.request_timeout, REQUEST_TIMEOUT);
        assert_eq!((plain.levels, plain.replication, plain.tls), (Levels::Global, None, None));
    }

    #[test]
    fn authority_turns_tls_on() {
        let tls = |options: &str| parse(&format!("scylla://a/b?{options}")).unwrap().tls.unwrap();
        let pem = |path: &str| Pem::File(path.into());
        let plain = Tls { authority: Some(pem("ca")), names: ExpectedName::OfAddress, own: None };
        assert_eq!(tls("tls_ca=ca"), plain);
        let own = (pem("c"), pem("k"));
        let whole = tls("tls_key=k&tls_ca=ca&tls_certificate=c&tls_name=nodes.example");
        let name = ServerName::try_from("nodes.example").unwrap();
        assert_eq!(whole, Tls { names: ExpectedName::Given(name), own: Some(own), ..plain.clone() });
        assert_eq!(tls("tls_ca=ca&tls_name=*"), Tls { names: ExpectedName::Any, ..plain });
    }

    #[test]
    fn password_without_tls_is_warned_of() {
        let warning = |url| parse(url).unwrap().unencrypted_password();
        let text = warning("scylla://a/b?user=vvm").unwrap();
        assert!(text.contains("user `vvm`") && text.contains("add tls_ca=PATH"), "{text}");
        assert_eq!(warning("scylla://a/b?user=vvm&tls_ca=ca"), None);
        assert_eq!(warning("scylla://a/b"), None);
    }

    #[test]
    fn refusal_names_the_mistake_and_the_way_out() {
        let table = [
            ("scylla:host/keyspace", "write scylla://"),
            ("scylla://host", "the keyspace is missing"),
            ("scylla://host/", "not a keyspace"),
            ("scylla://host/a-b", "not a keyspace"),
            ("scylla:///keyspace", "is no host"),
            ("scylla://a,,b/keyspace", "is no host"),
            ("scylla://::1/keyspace", "[address]:9042"),
            ("scylla://a:0/keyspace", "write host:9042"),
            ("scylla://vvm:secret@a/keyspace", "VVM_STORAGE_PASSWORD"),
            ("scylla://a/keyspace?user=vvm&password=secret", "VVM_STORAGE_PASSWORD"),
            ("scylla://a/keyspace?serial=local", "Add datacenter=NAME"),
            ("scylla://a/keyspace?serial=quorum", "`local` or `global`"),
            ("scylla://a/keyspace?user", "write user=VALUE"),
            ("scylla://a/keyspace?tls_certificate=c&tls_ca=ca", "give both"),
            ("scylla://a/keyspace?tls_key=k&tls_ca=ca", "give both"),
            ("scylla://a/keyspace?tls_certificate=c&tls_key=k", "add tls_ca=PATH"),
            ("scylla://a/keyspace?tls_name=a", "add tls_ca=PATH"),
            ("scylla://a/keyspace?tls_ca=ca&tls_name=a b", "not the name of a server"),
            ("scylla://a/keyspace?request_timeout=5m", "request_timeout=5s"),
            ("scylla://a/keyspace?replicas=3", "no option `replicas`"),
            ("scylla://a/keyspace?replication=0", "a number, `3`"),
            ("scylla://a/keyspace?replication=dc1:3", "a number, `3`"),
        ];
        for (url, part) in table {
            let error = Address::parse(url).unwrap_err().to_string();
            assert!(error.contains(part) && !error.contains("secret"), "{url}: {error}");
        }
    }
}
