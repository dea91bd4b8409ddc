//! TLS: the options of the URL, and the way out if it does not come about.

use super::OpenError;
use crate::drivers::tls::{Names, Own, authorities, configuration};
use rustls::{CertificateError, ClientConfig};
use std::{path::PathBuf, sync::Arc};

/// How to use TLS.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Tls {
    /// The authorities that sign the nodes' certificates.
    pub(super) authority: PathBuf,
    pub(super) names: Names,
    pub(super) own: Option<Own>,
}

impl Tls {
    /// Reads the files.
    pub(super) fn read(&self) -> Result<Arc<ClientConfig>, OpenError> {
        let configuration = authorities(&self.authority)
            .and_then(|roots| configuration(roots, &self.authority, self.names.clone(), self.own.as_ref()));
        configuration.map(Arc::new).map_err(|file| OpenError::TlsFile { path: file.path, why: file.why })
    }
}

/// Returns what to do about an error of TLS.
pub(super) fn way_out(error: &rustls::Error) -> &'static str {
    use rustls::{AlertDescription as Alert, Error};
    match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            "another authority has signed the node's certificate: correct tls_ca"
        }
        Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => {
            "the node's certificate has another name than its address: give it with tls_name=NAME, or write \
             tls_name=* if the authority signs only nodes"
        }
        Error::InvalidCertificate(
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. },
        ) => "the node's certificate is not valid today: renew it, or correct this machine's clock",
        Error::InvalidCertificate(_) => "the node's certificate is not one for servers: issue another one",
        Error::AlertReceived(Alert::CertificateRequired) => {
            "the node requires a client certificate: add tls_certificate=PATH and tls_key=PATH"
        }
        // Cassandra sends the last one for a certificate of an unknown authority.
        Error::AlertReceived(
            Alert::BadCertificate | Alert::UnknownCA | Alert::CertificateUnknown | Alert::InternalError,
        ) => {
            "the node refuses the client's certificate, or requires one (see its log): give one with \
             tls_certificate=PATH and tls_key=PATH, signed by an authority that the node trusts"
        }
        Error::AlertReceived(Alert::CertificateExpired) => {
            "the client's certificate is not valid today: renew it"
        }
        Error::InvalidMessage(_) => {
            "the node does not use TLS at this port: remove the tls_ options, or name another port"
        }
        _ => "both sides need TLS 1.2 or 1.3 and a common cipher",
    }
}
