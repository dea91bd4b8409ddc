//! TLS by rustls, for drivers: trusted authorities, names of certificates, and the client's certificate.
#![allow(dead_code, reason = "each driver needs some of it")]

use crate::opening::OpenError;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_cert_signed_by_trust_anchor,
    },
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
    server::ParsedCertificate,
};
use std::{borrow::Cow, fmt, fs, path::PathBuf, sync::Arc};

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Tls {
    /// The authorities that sign servers' certificates. `None` stands for those of the system.
    pub(super) authority: Option<Pem>,
    pub(super) names: ExpectedName,
    /// The client's certificate and its key, for servers that request one.
    pub(super) own: Option<(Pem, Pem)>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Pem {
    File(PathBuf),
    /// The content, and the field of the kubeconfig that has it.
    #[cfg(feature = "kubernetes")]
    Data(Vec<u8>, String),
}

#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(dead_code, reason = "each driver offers some of them")]
pub(super) enum ExpectedName {
    OfAddress,
    Given(ServerName<'static>),
    /// Any name, for an authority that signs only these servers.
    Any,
}

impl Tls {
    /// Reads the files, anew for each connection, so that they can be replaced. The error names the file at fault.
    pub(super) fn read(&self) -> Result<ClientConfig, OpenError> {
        let of_system = || Pem::File("the system's certificates".into());
        let authority = self.authority.clone().unwrap_or_else(of_system);
        let mut roots = RootCertStore::empty();
        match &self.authority {
            Some(authority) => {
                for certificate in authority.certificates()? {
                    roots.add(certificate).map_err(|cause| authority.unusable(&cause))?;
                }
            }
            #[cfg(any(feature = "kubernetes", feature = "mysql", feature = "postgres"))]
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
            #[cfg(not(any(feature = "kubernetes", feature = "mysql", feature = "postgres")))]
            None => {}
        }
        // The default of the process is not used: another part of the program may have changed it.
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier = Verifier::new(Arc::new(roots), self.names.clone(), &provider)
            .map_err(|cause| authority.unusable(&cause))?;
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|cause| authority.unusable(&cause))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        match &self.own {
            None => Ok(builder.with_no_client_auth()),
            Some((certificate, file)) => {
                let key =
                    PrivateKeyDer::from_pem_slice(&file.read()?).map_err(|cause| file.unusable(&cause))?;
                let certificates = certificate.certificates()?;
                builder.with_client_auth_cert(certificates, key).map_err(|cause| file.unusable(&cause))
            }
        }
    }
}

impl Pem {
    pub(super) fn read(&self) -> Result<Cow<'_, [u8]>, OpenError> {
        match self {
            Self::File(path) => fs::read(path)
                .map(Cow::Owned)
                .map_err(|cause| OpenError::refused(format!("{} can't be read: {cause}", path.display()))),
            #[cfg(feature = "kubernetes")]
            Self::Data(data, _) => Ok(Cow::Borrowed(data)),
        }
    }

    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, OpenError> {
        let read = CertificateDer::pem_slice_iter(&self.read()?).collect::<Result<Vec<_>, _>>();
        match read.map_err(|cause| self.unusable(&cause))? {
            certificates if certificates.is_empty() => Err(self.unusable(&"the file has no certificate")),
            certificates => Ok(certificates),
        }
    }

    fn unusable(&self, why: &dyn fmt::Display) -> OpenError {
        let place = match self {
            Self::File(path) => path.display().to_string(),
            #[cfg(feature = "kubernetes")]
            Self::Data(_, field) => format!("the kubeconfig: {field}"),
        };
        OpenError::refused(format!("{place}: {why}. It has to be PEM, and a key must have no passphrase"))
    }
}

/// Verifies as rustls does, but chooses the name to expect: the client library of ScyllaDB passes addresses alone.
#[derive(Debug)]
struct Verifier {
    names: ExpectedName,
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
    strict: Arc<WebPkiServerVerifier>,
}

impl Verifier {
    fn new(
        roots: Arc<RootCertStore>,
        names: ExpectedName,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, rustls::client::VerifierBuilderError> {
        let strict =
            WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(provider)).build()?;
        Ok(Self { names, roots, provider: Arc::clone(provider), strict })
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        address: &ServerName<'_>,
        status: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let name = match &self.names {
            ExpectedName::OfAddress => address,
            ExpectedName::Given(name) => name,
            ExpectedName::Any => {
                let certificate = ParsedCertificate::try_from(certificate)?;
                let algorithms = self.provider.signature_verification_algorithms.all;
                verify_server_cert_signed_by_trust_anchor(
                    &certificate,
                    &self.roots,
                    intermediates,
                    now,
                    algorithms,
                )?;
                return Ok(ServerCertVerified::assertion());
            }
        };
        self.strict.verify_server_cert(certificate, intermediates, name, status, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.strict.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.strict.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.strict.supported_verify_schemes()
    }
}

#[derive(Default)]
pub(super) struct TlsFiles {
    authority: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    names: Option<ExpectedName>,
}

impl TlsFiles {
    /// Takes an option. Returns `false` if it is not about TLS.
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
                let names = self.names.unwrap_or(ExpectedName::OfAddress);
                Ok(Some(Tls { authority: Some(Pem::File(authority)), names, own }))
            }
            None if own.is_some() || self.names.is_some() => {
                Err("TLS needs the authority that signed the nodes' certificates: add tls_ca=PATH".into())
            }
            None => Ok(None),
        }
    }
}

fn names(value: &str) -> Result<ExpectedName, String> {
    if value == "*" {
        return Ok(ExpectedName::Any);
    }
    ServerName::try_from(value.to_owned()).map(ExpectedName::Given).map_err(|_| {
        format!("`{value}` is not the name of a server: write tls_name=NAME, or tls_name=* for any")
    })
}

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
        // Cassandra sends `InternalError` for a certificate of an unknown authority.
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
