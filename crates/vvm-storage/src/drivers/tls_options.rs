//! The options of TLS that drivers of clusters share, and the way out if it does not come about.

use super::tls::{Names, Pem, Tls};
use rustls::{CertificateError, pki_types::ServerName};
use std::path::PathBuf;

/// The options of TLS.
#[derive(Default)]
pub(super) struct TlsFiles {
    authority: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    names: Option<Names>,
}

impl TlsFiles {
    /// Takes an option; `false` if it is not about TLS.
    pub(super) fn set(&mut self, name: &str, value: &str) -> Result<bool, String> {
        match name {
            "tls_ca" => self.authority = Some(value.into()),
            "tls_certificate" => self.certificate = Some(value.into()),
            "tls_key" => self.key = Some(value.into()),
            "tls_name" => self.names = Some(names(value)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Returns how to use TLS; `None` if no option is set.
    pub(super) fn together(self) -> Result<Option<Tls>, String> {
        let own = match (self.certificate, self.key) {
            (Some(certificate), Some(key)) => Some((Pem::File(certificate), Pem::File(key))),
            (None, None) => None,
            _ => {
                return Err(
                    "a certificate needs its key: give both, tls_certificate=PATH and tls_key=PATH".into()
                );
            }
        };
        match self.authority {
            Some(authority) => {
                let names = self.names.unwrap_or(Names::Address);
                Ok(Some(Tls { authority: Some(Pem::File(authority)), names, own }))
            }
            None if own.is_some() || self.names.is_some() => {
                Err("TLS needs the authority that signed the nodes' certificates: add tls_ca=PATH".into())
            }
            None => Ok(None),
        }
    }
}

fn names(value: &str) -> Result<Names, String> {
    if value == "*" {
        return Ok(Names::Any);
    }
    ServerName::try_from(value.to_owned()).map(Names::Is).map_err(|_| {
        format!("`{value}` is not the name of a server: write tls_name=NAME, or tls_name=* for any")
    })
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
