//! TLS: the options of the URL, and the way out if it does not come about.

use super::OpenError;
use crate::drivers::tls::{Names, Own, authorities, configuration};
use rustls::{CertificateError, ClientConfig};
use std::{path::PathBuf, sync::Arc};

/// How to speak TLS.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Tls {
    /// The certificates of those who sign the nodes' certificates.
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

/// What to do about a connection that TLS did not let come about.
pub(super) fn way_out(error: &rustls::Error) -> &'static str {
    use rustls::{AlertDescription as Alert, Error};
    match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            "another authority has signed the node's certificate: mend tls_ca"
        }
        Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => {
            "the node's certificate bears another name than its address: say which one with tls_name=NAME, or tls_name=* \
             if the authority signs nothing but nodes"
        }
        Error::InvalidCertificate(
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. },
        ) => "the node's certificate is not valid today: renew it, or mend this machine's clock",
        Error::InvalidCertificate(_) => "the node's certificate is not one for servers: sign it another one",
        Error::AlertReceived(Alert::CertificateRequired) => {
            "the node asks for a certificate: add tls_certificate=PATH and tls_key=PATH"
        }
        // The last is what Cassandra says of a certificate that nobody signed whom it knows.
        Error::AlertReceived(
            Alert::BadCertificate | Alert::UnknownCA | Alert::CertificateUnknown | Alert::InternalError,
        ) => {
            "the node refuses our certificate, or that there is none (its log says why): give one with \
             tls_certificate=PATH and tls_key=PATH that an authority signed which the node trusts"
        }
        Error::AlertReceived(Alert::CertificateExpired) => "our certificate is not valid today: renew it",
        Error::InvalidMessage(_) => {
            "the node does not speak TLS at this port: take out the tls_ options, or name the port at which it does"
        }
        _ => "both sides have to speak TLS 1.2 or 1.3, and have a cipher in common",
    }
}
