//! URL and options.

use crate::drivers::{
    config::options,
    sql::config::{Address, no_option},
    tls::{ExpectedName, Tls, TlsFiles},
};

/// MariaDB or MySQL.
#[derive(Debug)]
pub struct MySql {
    pub(super) address: Address,
}

pub(super) fn parse(url: &str) -> Result<MySql, String> {
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
    address.tls = match files.together()? {
        Some(_) if is_off => return Err("TLS is off, and a file for it is given: remove tls=off".into()),
        Some(tls) => Some(tls),
        None if is_off || address.is_loopback() => None,
        None => Some(Tls { authority: None, names: ExpectedName::OfAddress, own: None }),
    };
    Ok(MySql { address })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drivers::{mysql::MySqlStorage, sql::connection::Server as _};
    use std::time::Duration;

    #[test]
    fn address_has_hosts_user_database_and_options() {
        let url =
            "mysql://pay%40roll:s%2Fcret@a,[::1]:3307/elec?max_ttl=60s&connections=64&request_timeout=500ms";
        let server = parse(url).unwrap();
        let address = &server.address;
        assert_eq!(address.to_string(), "mysql://a:3306,[::1]:3307/elec");
        assert_eq!((&*address.user, &*address.password().unwrap().unwrap()), ("pay@roll", "s/cret"));
        assert_eq!((address.connections, address.request_timeout), (64, Duration::from_millis(500)));
        assert!(
            address.tls.is_some() && address.max_ttl.is_some() && !format!("{server:?}").contains("cret")
        );
        assert!(MySqlStorage::has_password(url) && !MySqlStorage::has_password("mariadb://me@a/b"));
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
            ("mysql://me@a:0/vvm", "write host:3306"),
            ("mysql://me@a/vvm?tls=on", "tls=off"),
            ("mysql://me@a/vvm?tls=off&tls_ca=x", "remove tls=off"),
            ("mysql://me@a/vvm?tls_key=x", "give both"),
            ("mysql://me:secret@a/vvm?ssl-mode=REQUIRED", "no option `ssl-mode`"),
        ];
        for (url, part) in table {
            let error = MySql::at(url).unwrap_err().to_string();
            assert!(error.contains(part) && !error.contains("secret"), "{url}: {error}");
        }
    }
}
