//! URL and options.

use crate::{
    drivers::{
        config::{Host, REQUEST_TIMEOUT, options, parse_hosts, request_timeout},
        tls::{Tls, TlsFiles},
    },
    opening::OpenError,
};
use std::{fmt, path::PathBuf, time::Duration};

#[derive(Clone, Debug)]
pub(super) struct Address {
    pub(super) hosts: Vec<Host>,
    /// Without the slash that ends it in keys.
    pub(super) prefix: String,
    pub(super) user: Option<String>,
    pub(super) password_file: Option<PathBuf>,
    pub(super) tls: Option<Tls>,
    pub(super) request_timeout: Duration,
}

const SCHEME: &str = "etcd://";

const PORT: u16 = 2379;

/// Keys have it in front, and a batch of documents has many keys.
const LONGEST_PREFIX: usize = 128;

impl Address {
    pub(super) fn parse(url: &str) -> Result<Self, OpenError> {
        parse(url).map_err(|why| OpenError::of_url(url, why))
    }

    pub(super) fn unencrypted(&self) -> Option<&'static str> {
        let is_exposed = self.tls.is_none() && !self.hosts.iter().all(Host::is_loopback);
        is_exposed.then_some(
            "no TLS: machines between here and etcd can read the login and forge answers. Name the \
             authority of the servers' certificates with tls_ca=PATH",
        )
    }
}

impl fmt::Display for Address {
    /// Without options, and so without a secret.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts: Vec<String> = self.hosts.iter().map(Host::to_string).collect();
        write!(out, "{SCHEME}{}/{}", hosts.join(","), self.prefix)
    }
}

fn parse(url: &str) -> Result<Address, String> {
    let rest = url.strip_prefix(SCHEME).ok_or("write etcd://host1,host2,host3:2379/prefix")?;
    let (place, text) = rest.split_once('?').unwrap_or((rest, ""));
    let password = "put the password into the environment (VVM_STORAGE_PASSWORD) or a file \
                    (password_file=PATH)";
    if place.contains('@') {
        return Err(format!("a user can't precede the hosts: write ?user=NAME, and {password}"));
    }
    let (hosts, prefix) = place.split_once('/').ok_or("the prefix is missing: write etcd://host/prefix")?;
    let is_name = !prefix.is_empty()
        && prefix.len() <= LONGEST_PREFIX
        && prefix.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'%')
        && !prefix.ends_with('/');
    if !is_name {
        return Err(format!(
            "`{prefix}` is not a prefix: it has ASCII letters, digits and signs as they are, at most \
             {LONGEST_PREFIX}, no `%`, and no `/` at its end"
        ));
    }
    let mut address = Address {
        hosts: parse_hosts(hosts, PORT)?,
        prefix: prefix.to_owned(),
        user: None,
        password_file: None,
        tls: None,
        request_timeout: REQUEST_TIMEOUT,
    };
    let mut files = TlsFiles::default();
    for option in options(text) {
        let (name, value) = option?;
        match name {
            "user" => address.user = Some(value.to_owned()),
            "password_file" => address.password_file = Some(value.into()),
            "password" => return Err(format!("this URL has no password: {password}")),
            "request_timeout" => address.request_timeout = request_timeout(value)?,
            _ if files.set(name, value)? => {}
            _ => {
                return Err(format!(
                    "there is no option `{name}`; there are user, password_file, tls_ca, tls_certificate, \
                     tls_key, tls_name, request_timeout"
                ));
            }
        }
    }
    if address.user.is_none() && address.password_file.is_some() {
        return Err("a password needs its user: add user=NAME".into());
    }
    address.tls = files.together()?;
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_has_hosts_prefix_and_options() {
        let url = "etcd://a,[::1]:2380,b:1/infra/vvm?user=me&password_file=/run/x&tls_ca=a.pem\
               &tls_name=etcd&request_timeout=500ms";
        let address = parse(url).unwrap();
        assert_eq!(address.to_string(), "etcd://a:2379,[::1]:2380,b:1/infra/vvm");
        assert_eq!((address.user.as_deref(), &*address.prefix), (Some("me"), "infra/vvm"));
        assert_eq!(address.request_timeout, Duration::from_millis(500));
        assert!(address.tls.is_some() && address.password_file.is_some());
    }

    #[test]
    fn connection_without_tls_off_loopback_is_warned_of() {
        let warning = |url| parse(url).unwrap().unencrypted();
        assert!(warning("etcd://127.0.0.1,db1/vvm").unwrap().contains("tls_ca="));
        assert_eq!(warning("etcd://127.0.0.1,[::1],localhost/vvm"), None);
        assert_eq!(warning("etcd://db1/vvm?tls_ca=a.pem"), None);
    }

    #[test]
    fn wrong_url_is_refused_with_the_way_out() {
        let table = [
            ("etcd:host/vvm", "write etcd://"),
            ("etcd://host", "the prefix is missing"),
            ("etcd://host/", "is not a prefix"),
            ("etcd://host/a/", "no `/` at its end"),
            ("etcd://host/a%20b", "no `%`"),
            ("etcd:///vvm", "no host"),
            ("etcd://a,,b/vvm", "no host"),
            ("etcd://a:0/vvm", "write host:2379"),
            ("etcd://me:secret@a/vvm", "VVM_STORAGE_PASSWORD"),
            ("etcd://a/vvm?password=secret", "VVM_STORAGE_PASSWORD"),
            ("etcd://a/vvm?password_file=x", "add user=NAME"),
            ("etcd://a/vvm?tls_key=x", "give both"),
            ("etcd://a/vvm?tls_name=x", "add tls_ca=PATH"),
            ("etcd://a/vvm?request_timeout=5m", "request_timeout=5s"),
            ("etcd://a/vvm?lease=5", "no option `lease`"),
        ];
        for (url, part) in table {
            let error = Address::parse(url).unwrap_err().to_string();
            assert!(error.contains(part) && !error.contains("secret"), "{url}: {error}");
        }
    }
}
