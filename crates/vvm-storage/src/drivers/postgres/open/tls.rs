//! TLS: the options of the URL, named as PostgreSQL's own library names them.

use super::OpenError;
use crate::drivers::tls::{Names, Own, authorities, configuration};
use rustls::{ClientConfig, RootCertStore};
use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};
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
            ("sslmode", "verify-full") => self.mode = Mode::VerifyFull,
            ("sslmode", _) => {
                return Err("sslmode is verify-full, verify-ca or disable: the others don't protect the \
                            password from a server that poses as yours"
                    .into());
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

/// A connection without TLS has a type that names it all the same.
fn off() -> Result<MakeRustlsConnect, OpenError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|cause| OpenError::System(io::Error::other(cause)))?;
    Ok(MakeRustlsConnect::new(builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth()))
}
