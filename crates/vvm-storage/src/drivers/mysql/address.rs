//! `mysql://…`, taken apart.

use crate::{
    drivers::{
        address::options,
        sql::address::{Address, no_option},
        tls::{self, Names, TlsFiles},
    },
    opening::OpenError,
};
use std::sync::Arc;
use tokio_rustls::TlsConnector;

/// Where a database is, and how to log in.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) address: Address,
    tls: Option<tls::Tls>,
}

impl Place {
    /// Returns the place that `url` names.
    pub(super) fn parse(url: &str) -> Result<Self, OpenError> {
        parse(url).map_err(|why| OpenError::of_url(url, why))
    }

    /// Returns a warning if logins and answers would cross a network without TLS.
    pub(super) fn unencrypted(&self) -> Option<&'static str> {
        let is_exposed = self.tls.is_none() && !self.address.is_loopback();
        is_exposed.then_some(
            "tls=off: machines between here and the server can read the login and forge answers. Remove it, \
             and name the servers' authority with tls_ca=PATH",
        )
    }

    /// Reads the files of TLS. `None` without TLS.
    pub(super) fn connector(&self) -> Result<Option<TlsConnector>, OpenError> {
        let tls = self.tls.as_ref().map(tls::Tls::read).transpose()?;
        Ok(tls.map(|tls| TlsConnector::from(Arc::new(tls))))
    }
}

/// Whether the URL has a password. An empty one (`user:@host`) is none, and says so whatever the environment has.
pub(crate) fn has_password(url: &str) -> bool {
    let password = Place::parse(url).ok().and_then(|place| place.address.password);
    password.is_some_and(|password| !password.0.is_empty())
}

fn parse(url: &str) -> Result<Place, String> {
    let (mut address, text) = Address::parse(url, ["mysql", "mariadb"], 3306)?;
    let (mut files, mut is_off) = (TlsFiles::default(), false);
    for option in options(text) {
        match option? {
            (name, value) if address.set(name, value)? || files.set(name, value)? => {}
            ("tls", "off") => is_off = true,
            ("tls", _) => {
                return Err(
                    "TLS is on unless all hosts are loopback, or with tls_ca=PATH: write tls=off, or \
                            leave it out"
                        .into(),
                );
            }
            (name, _) => return Err(no_option(name, "tls, tls_ca, tls_certificate, tls_key, tls_name")),
        }
    }
    let tls = match files.together()? {
        Some(_) if is_off => return Err("TLS is off, and a file for it is given: remove tls=off".into()),
        Some(tls) => Some(tls),
        None if is_off || address.is_loopback() => None,
        // The authorities of the system.
        None => Some(tls::Tls { authority: None, names: Names::Address, own: None }),
    };
    Ok(Place { address, tls })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn address_has_hosts_user_database_and_options() {
        let url =
            "mysql://pay%40roll:s%2Fcret@a,[::1]:3307/elec?max_ttl=60s&connections=64&request_timeout=500ms";
        let place = parse(url).unwrap();
        let address = &place.address;
        assert_eq!(address.to_string(), "mysql://a:3306,[::1]:3307/elec");
        assert_eq!((&*address.user, &*address.password().unwrap().unwrap()), ("pay@roll", "s/cret"));
        assert_eq!((address.connections, address.request_timeout), (64, Duration::from_millis(500)));
        assert!(place.tls.is_some() && address.max_ttl.is_some() && !format!("{place:?}").contains("cret"));
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
            let error = Place::parse(url).unwrap_err().to_string();
            assert!(error.contains(part) && !error.contains("secret"), "{url}: {error}");
        }
    }
}
