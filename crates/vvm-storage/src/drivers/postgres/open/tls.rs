//! TLS: the options of the URL, named as PostgreSQL's own library names them.

use super::OpenError;
use crate::drivers::tls::{Names, Own, authorities, configuration};
use rustls::{AlertDescription as Alert, CertificateError, ClientConfig, RootCertStore};
use std::{
    error::Error,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};
use tokio_postgres::error::{DbError, SqlState};
use tokio_postgres_rustls::MakeRustlsConnect;

/// How to speak TLS.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Tls {
    mode: Mode,
    /// The authorities that sign servers' certificates; those of the system unless given.
    authority: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    Disable,
    /// The certificate is signed by an authority of ours.
    VerifyCa,
    /// And it bears the name of the host.
    VerifyFull,
}

impl Tls {
    pub(super) fn default_for(hosts_are_loopback: bool) -> Self {
        let mode = if hosts_are_loopback { Mode::Disable } else { Mode::VerifyFull };
        Self { mode, authority: None, certificate: None, key: None }
    }

    /// Takes an option; `false` if it is not about TLS.
    pub(super) fn set(&mut self, name: &str, value: &str) -> Result<bool, String> {
        match (name, value) {
            ("sslmode", "disable") => self.mode = Mode::Disable,
            ("sslmode", "verify-ca") => self.mode = Mode::VerifyCa,
            // A server that poses as yours is refused as well, which `require` leaves open.
            ("sslmode", "verify-full" | "require") => self.mode = Mode::VerifyFull,
            ("sslmode", _) => {
                return Err(format!(
                    "`sslmode={value}` encrypts only if the server wants it: write sslmode=verify-full to \
                     encrypt, or sslmode=disable"
                ));
            }
            ("sslrootcert", path) => self.authority = Some(path.into()),
            ("sslcert", path) => self.certificate = Some(path.into()),
            ("sslkey", path) => self.key = Some(path.into()),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Refuses options that don't fit together.
    pub(super) fn check(&self) -> Result<(), String> {
        let files = [&self.authority, &self.certificate, &self.key].map(Option::is_some);
        match files {
            [_, true, false] | [_, false, true] => {
                Err("a certificate has a key: give both, sslcert=PATH and sslkey=PATH".into())
            }
            [false, false, false] => Ok(()),
            _ if !self.is_on() => {
                Err("TLS is off, and a file for it is given: add sslmode=verify-full".into())
            }
            _ => Ok(()),
        }
    }

    pub(super) fn is_on(&self) -> bool {
        self.mode != Mode::Disable
    }

    /// Whether we show a certificate to a server that requests one.
    pub(super) fn shows_certificate(&self) -> bool {
        self.certificate.is_some()
    }

    /// Reads the files.
    pub(super) fn read(&self) -> Result<MakeRustlsConnect, OpenError> {
        let (roots, from) = match (&self.authority, self.mode) {
            (Some(path), _) => (authorities(path), &**path),
            (None, Mode::Disable) => return off(),
            (None, Mode::VerifyCa | Mode::VerifyFull) => {
                let mut roots = RootCertStore::empty();
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
                (Ok(roots), Path::new("the system's certificates"))
            }
        };
        let names = if self.mode == Mode::VerifyFull { Names::Address } else { Names::Any };
        let own = self.certificate.clone().zip(self.key.clone());
        let own = own.map(|(certificate, key)| Own { certificate, key });
        roots
            .and_then(|roots| configuration(roots, from, names, own.as_ref()))
            .map(MakeRustlsConnect::new)
            .map_err(|file| OpenError::TlsFile { path: file.path, why: file.why })
    }
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

/// Recognizes a refusal by a server that requires TLS, or a certificate of the client. Only the English text
/// is known: in other languages, the error is that of any other refused login.
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
        Error::InvalidCertificate(
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. },
        ) => "the server's certificate is not valid today: renew it, or correct this machine's clock",
        Error::InvalidCertificate(_) => "the server's certificate is not one for servers: issue another one",
        Error::AlertReceived(Alert::CertificateExpired) => {
            "the client's certificate is not valid today: renew it"
        }
        Error::AlertReceived(
            Alert::CertificateRequired
            | Alert::BadCertificate
            | Alert::UnknownCA
            | Alert::CertificateUnknown
            | Alert::UnsupportedCertificate,
        ) => {
            "the server refuses our certificate: give one that its ssl_ca_file signed, with sslcert=PATH and \
              sslkey=PATH"
        }
        _ => "both sides need TLS 1.2 or 1.3 and a common cipher",
    }
}

/// A connection without TLS has a type that names it all the same.
fn off() -> Result<MakeRustlsConnect, OpenError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|cause| OpenError::System(io::Error::other(cause)))?;
    Ok(MakeRustlsConnect::new(builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth()))
}
