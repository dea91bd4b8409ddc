//! URL, options, and what becomes of the caller's own `Config`.

use crate::{
    drivers::{
        config::{
            Host, MOST_CONNECTIONS, Password, REQUEST_TIMEOUT, checked_request_timeout, decoded, options,
        },
        sql::config::{Address, CONNECTIONS, no_option},
        tls::{self, ExpectedName, Pem, Tls},
    },
    opening::OpenError,
};
use ielections::Ttl;
use rustls::{AlertDescription as Alert, CertificateError, ClientConfig};
use std::{error::Error, io, time::Duration};
use tokio_postgres::{
    Config,
    config::{self, ChannelBinding, SslMode, TargetSessionAttrs},
    error::{DbError, SqlState},
};

#[derive(Debug)]
pub struct Postgres {
    pub(super) address: Address,
    /// What all connections have in common: neither hosts nor TLS, and a password only if the caller gave it.
    pub(super) common: Config,
    /// Of a caller that brought its own `Config`. The outer `None` is a URL, the inner one a connection without TLS.
    pub(super) own_tls: Option<Option<ClientConfig>>,
}

/// What a [`PostgresStorage`](super::PostgresStorage) needs beside the caller's own [`Config`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenOptions {
    /// The least wait after a fail-over, if it is larger than that of the schema.
    pub max_ttl: Option<Ttl>,
    /// The time limit of a request: 2 s unless given, from 100 ms to 60 s. Connecting may take half of it.
    pub request_timeout: Duration,
    /// The most connections at once: 8 unless given, up to 1,000.
    pub connections: u16,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self { max_ttl: None, request_timeout: REQUEST_TIMEOUT, connections: CONNECTIONS }
    }
}

impl Postgres {
    /// Refuses what would have another meaning here.
    pub(super) fn of_config(
        config: &Config,
        tls: Option<ClientConfig>,
        options: OpenOptions,
    ) -> Result<Self, OpenError> {
        let named = |what: Option<&str>, name: &str| match what {
            Some(text) if !text.is_empty() => Ok(text.to_owned()),
            _ => Err(OpenError::misuse(format!("the configuration of the client names no {name}"))),
        };
        let (user, database) = (named(config.get_user(), "user")?, named(config.get_dbname(), "dbname")?);
        let (given, ports) = (config.get_hosts(), config.get_ports());
        let has_sockets = given.iter().any(|host| matches!(host, config::Host::Unix(_)));
        let refusal = if given.is_empty() {
            "names no host: add host"
        } else if !config.get_hostaddrs().is_empty() {
            "has hostaddr: name each server with host alone"
        } else if ports.len() > 1 && ports.len() != given.len() {
            "has neither one port nor one for each host"
        } else if config.get_target_session_attrs() == TargetSessionAttrs::ReadOnly {
            "wants a read-only session: leave target_session_attrs out, since a leader writes"
        } else if tls.is_none() && config.get_ssl_mode() == SslMode::Require {
            "requires TLS: pass a rustls::ClientConfig"
        } else if tls.is_some() && config.get_ssl_mode() == SslMode::Disable {
            "turns TLS off: pass no rustls::ClientConfig, or leave ssl_mode out"
        } else if tls.is_some() && has_sockets {
            "has a Unix socket, which takes no TLS: pass no rustls::ClientConfig"
        } else if !(1..=MOST_CONNECTIONS).contains(&options.connections) {
            "comes with no valid number of connections: 1 to 1,000"
        } else {
            ""
        };
        if !refusal.is_empty() {
            return Err(OpenError::misuse(format!("the configuration of the client {refusal}")));
        }
        let hosts = given.iter().enumerate().map(|(at, host)| Host {
            name: match host {
                config::Host::Tcp(name) => name.clone(),
                config::Host::Unix(path) => path.display().to_string(),
            },
            port: ports.get(at).or(ports.first()).copied().unwrap_or(PORT),
        });
        let address = Address {
            max_ttl: options.max_ttl,
            request_timeout: checked_request_timeout(options.request_timeout)?,
            connections: options.connections,
            tls: tls.is_some().then_some(SYSTEM_TLS),
            ..Address::new("postgres", hosts.collect(), user, database)
        };
        let mut common = common(config.get_application_name().unwrap_or("vvm"), config.get_channel_binding());
        common.ssl_negotiation(config.get_ssl_negotiation());
        config.get_password().map(|password| common.password(password));
        config.get_options().map(|options| common.options(options));
        Ok(Self { address, common, own_tls: Some(tls) })
    }

    /// Takes an option of PostgreSQL's own library that means here what it means there. Refuses those that
    /// can't, with what to write instead; `false` for any other.
    fn set_as_libpq(&mut self, name: &str, value: &str) -> Result<bool, String> {
        let instead = |way_out: &str| Err(format!("`{name}={value}` can't be had here: {way_out}"));
        match (name, value) {
            ("password", _) => self.address.password = Some(Password(decoded(value)?)),
            ("application_name", _) => drop(self.common.application_name(decoded(value)?)),
            ("channel_binding", "disable") => drop(self.common.channel_binding(ChannelBinding::Disable)),
            ("channel_binding", "prefer") => drop(self.common.channel_binding(ChannelBinding::Prefer)),
            ("channel_binding", "require") => drop(self.common.channel_binding(ChannelBinding::Require)),
            // Connecting takes half of `request_timeout` at most, whatever this says.
            ("connect_timeout", _)
            | ("target_session_attrs", "read-write" | "primary")
            | ("gssencmode", "disable" | "prefer") => {}
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

const OPTIONS: &str =
    "sslmode, sslrootcert, sslcert, sslkey, application_name, channel_binding, target_session_attrs";

const PORT: u16 = 5432;

const SYSTEM_TLS: Tls = Tls { authority: None, names: ExpectedName::OfAddress, own: None };

fn common(application_name: &str, channel_binding: ChannelBinding) -> Config {
    let mut common = Config::new();
    common.application_name(application_name).channel_binding(channel_binding);
    common
}

pub(super) fn parse(url: &str) -> Result<Postgres, String> {
    let (address, text) = Address::parse(url, ["postgres", "postgresql"], PORT)?;
    let (mut is_on, mut own) = (!address.is_loopback(), [None, None]);
    let mut tls = SYSTEM_TLS;
    let mut server = Postgres { address, common: common("vvm", ChannelBinding::Prefer), own_tls: None };
    let file = |path: &str| Ok::<_, String>(Some(Pem::File(decoded(path)?.into())));
    for option in options(text) {
        match option? {
            (name, value) if server.address.set(name, value)? || server.set_as_libpq(name, value)? => {}
            ("sslmode", "disable") => is_on = false,
            ("sslmode", "verify-ca") => (is_on, tls.names) = (true, ExpectedName::Any),
            // A server that poses as yours is refused as well, which `require` leaves open.
            ("sslmode", "verify-full" | "require") => (is_on, tls.names) = (true, ExpectedName::OfAddress),
            ("sslmode", mode) => {
                return Err(format!(
                    "`sslmode={mode}` encrypts only if the server wants it: write sslmode=verify-full to \
                     encrypt, or sslmode=disable"
                ));
            }
            ("sslrootcert", "system") => tls.authority = None,
            ("sslrootcert", path) => tls.authority = file(path)?,
            ("sslcert", path) => own[0] = file(path)?,
            ("sslkey", path) => own[1] = file(path)?,
            (name, _) => return Err(no_option(name, OPTIONS)),
        }
    }
    tls.own = match own {
        [Some(certificate), Some(key)] => Some((certificate, key)),
        [None, None] => None,
        _ => return Err("a certificate has a key: give both, sslcert=PATH and sslkey=PATH".into()),
    };
    if !is_on && (tls.authority.is_some() || tls.own.is_some()) {
        return Err("TLS is off, and a file for it is given: add sslmode=verify-full".into());
    }
    if is_on && tls.names == ExpectedName::Any && tls.authority.is_none() {
        return Err(
            "`sslmode=verify-ca` accepts every name: name the authority that signs only these servers, with \
             sslrootcert=PATH, or write sslmode=verify-full"
                .into(),
        );
    }
    server.address.tls = is_on.then_some(tls);
    Ok(server)
}

/// What to do about a connection that TLS kept from being made; `None` if the cause is another one.
pub(super) fn way_out(error: &tokio_postgres::Error) -> Option<&'static str> {
    if let Some(refusal) = error.as_db_error() {
        return of_server(refusal);
    }
    let causes: Vec<&(dyn Error + 'static)> =
        std::iter::successors(error.source(), |cause| (**cause).source()).collect();
    // The library's words for a server that answered the request for TLS with no.
    if causes.iter().any(|cause| cause.to_string() == "server does not support TLS") {
        return Some("it has TLS turned off: set ssl = on there, with a certificate for its name");
    }
    let of_rustls = |cause: &(dyn Error + 'static)| {
        let inner = cause.downcast_ref::<io::Error>()?.get_ref()?;
        inner.downcast_ref::<rustls::Error>().map(of_handshake)
    };
    causes.into_iter().find_map(of_rustls)
}

/// Only the English text is known: in other languages, the error is that of any other refused login.
fn of_server(refusal: &DbError) -> Option<&'static str> {
    if *refusal.code() != SqlState::INVALID_AUTHORIZATION_SPECIFICATION {
        return None;
    }
    let says = |part| refusal.message().contains(part);
    if says("valid client certificate") {
        Some("give the certificate of this user: sslcert=PATH and sslkey=PATH")
    } else if says("certificate authentication failed") {
        Some("give the certificate of this user, who is its common name: sslcert=PATH and sslkey=PATH")
    } else if says("no encryption") {
        Some("it may accept this user with TLS alone: add sslmode=verify-full, and sslrootcert=PATH")
    } else {
        None
    }
}

fn of_handshake(error: &rustls::Error) -> &'static str {
    use rustls::Error;
    match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            "another authority has signed the server's certificate: name it with sslrootcert=PATH"
        }
        Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => {
            "the server's certificate is for another name: write that name as the host, or sslmode=verify-ca \
             if the authority signs only these servers"
        }
        Error::AlertReceived(
            Alert::CertificateRequired
            | Alert::BadCertificate
            | Alert::UnknownCA
            | Alert::CertificateUnknown
            | Alert::UnsupportedCertificate
            | Alert::InternalError,
        ) => {
            "the server refuses our certificate: give one that its ssl_ca_file signed, with sslcert=PATH and \
              sslkey=PATH"
        }
        error => tls::way_out(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drivers::sql::connection::Server as _;

    #[test]
    fn address_has_hosts_user_database_and_options() {
        let Postgres { address, .. } = parse(
            "postgres://vvm@127.0.0.1,[::1]:5433,localhost:5434/elections?max_ttl=60s&request_timeout=500ms\
         &connections=64",
        )
        .unwrap();
        assert!(address.tls.is_none());
        let hosts: Vec<String> = address.hosts.iter().map(Host::to_string).collect();
        assert_eq!(hosts, ["127.0.0.1:5432", "[::1]:5433", "localhost:5434"]);
        assert_eq!((&*address.user, &*address.database), ("vvm", "elections"));
        assert_eq!(address.max_ttl.unwrap().get(), Duration::from_secs(60));
        assert_eq!(address.request_timeout, Duration::from_millis(500));
        assert_eq!(address.connections, 64);
    }

    #[test]
    fn tls_is_on_unless_every_host_is_loopback() {
        for (hosts, is_on) in
            [("127.0.0.2,[::1],localhost", false), ("127.0.0.1,db1", true), ("10.0.0.1", true)]
        {
            let tls = parse(&format!("postgres://me@{hosts}/db")).unwrap().address.tls;
            assert_eq!(tls.is_some(), is_on, "{hosts}");
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
        let place = parse(url).unwrap();
        assert_eq!(place.common.get_application_name(), Some("payroll web"));
        assert_eq!(place.common.get_channel_binding(), ChannelBinding::Require);
        let address = place.address;
        assert_eq!((&*address.user, &*address.database), ("a@b", "my-app"));
        assert_eq!(address.password, Some(Password("p%:w".into())));
        assert_eq!(address.tls, parse("postgres://me@db1/db?sslmode=verify-full").unwrap().address.tls);
        let of_system = "postgres://me@db1/db?sslmode=verify-full&sslrootcert=system";
        assert_eq!(address.tls, parse(of_system).unwrap().address.tls);
        let own = parse("postgres://me@db1/db?sslmode=verify-ca&sslrootcert=a%2Fb.pem").unwrap().address.tls;
        assert_eq!(own.unwrap().authority, Some(Pem::File("a/b.pem".into())));
    }

    #[test]
    fn every_name_is_accepted_from_a_named_authority_alone() {
        for authority in ["", "&sslrootcert=system"] {
            let refusal = parse(&format!("postgres://me@db1/db?sslmode=verify-ca{authority}")).unwrap_err();
            assert!(refusal.contains("sslrootcert=PATH"), "{refusal}");
        }
    }

    #[test]
    fn configuration_of_a_caller_is_kept_or_refused_with_the_way_out() {
        let of = |text: &str| {
            Postgres::of_config(
                &text.parse().unwrap(),
                None,
                OpenOptions { connections: 2, ..Default::default() },
            )
        };
        let whole = "host=a,/run/postgresql port=5433,5434 user=u dbname=d password=p options=-cx=y \
        application_name=payroll channel_binding=require keepalives_idle=7";
        let Postgres { address, common, own_tls } = of(whole).unwrap();
        let hosts: Vec<String> = address.hosts.iter().map(Host::to_string).collect();
        assert_eq!(hosts, ["a:5433", "/run/postgresql:5434"]);
        assert_eq!((&*address.user, &*address.database, address.connections), ("u", "d", 2));
        assert!(address.tls.is_none() && matches!(own_tls, Some(None)));
        let expected = "application_name=payroll channel_binding=require password=p options=-cx=y";
        assert_eq!(common, expected.parse().unwrap());
        for (text, part) in [
            ("host=a dbname=d", "no user"),
            ("host=a user=u", "no dbname"),
            ("user=u dbname=d", "no host"),
            ("host=a hostaddr=127.0.0.1 user=u dbname=d", "with host alone"),
            ("host=a,b port=1,2,3 user=u dbname=d", "one for each host"),
            ("host=a user=u dbname=d target_session_attrs=read-only", "a leader writes"),
            ("host=a user=u dbname=d sslmode=require", "pass a rustls::ClientConfig"),
        ] {
            let refusal = of(text).unwrap_err();
            assert!(refusal.is_misuse() && refusal.to_string().contains(part), "{text}: {refusal}");
        }
        let tls = || Some(SYSTEM_TLS.read().unwrap());
        for (text, part) in [("sslmode=disable host=a", "turns TLS off"), ("host=/run/postgresql", "no TLS")]
        {
            let config = format!("{text} user=u dbname=d").parse().unwrap();
            let refusal = Postgres::of_config(&config, tls(), OpenOptions::default()).unwrap_err();
            assert!(refusal.to_string().contains(part), "{text}: {refusal}");
        }
        let short = OpenOptions { request_timeout: Duration::from_millis(1), ..OpenOptions::default() };
        let config = "host=a user=u dbname=d".parse().unwrap();
        assert!(Postgres::of_config(&config, tls(), short).unwrap_err().to_string().contains("100 ms"));
        assert!(Postgres::of_config(&config, tls(), OpenOptions::default()).unwrap().address.tls.is_some());
    }

    #[test]
    fn password_is_not_shown() {
        for url in ["postgres://vvm:sec@ret@host/db", "postgres://vvm@host/db?password=sec%40ret&max_ttl=1s"]
        {
            let place = parse(url).unwrap();
            assert_eq!(place.address.password, Some(Password("sec@ret".into())));
            for shown in [format!("{place:?}"), place.address.to_string()] {
                assert!(
                    shown.contains("host") && !shown.contains("sec") && !shown.contains("ret@"),
                    "{shown}"
                );
            }
            let error = Postgres::at(&url.replace("host/", "host/a/")).unwrap_err().to_string();
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
            ("postgres://me@host/a/b", "without a `/`"),
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
