//! TLS: whose certificates are trusted, which names they have to bear, and who we are.

use super::OpenError;
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
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

/// How to speak TLS.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Tls {
    /// The certificates of those who sign the nodes' certificates.
    pub(super) authority: PathBuf,
    pub(super) names: Names,
    pub(super) own: Option<Own>,
}

/// Which name a node's certificate has to bear.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Names {
    /// The address at which the node was reached.
    Address,
    /// This one, the same for all nodes.
    Is(ServerName<'static>),
    /// Whichever: for an authority that signs nothing but nodes.
    Any,
}

/// What we show to a node that asks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Own {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
}

impl Tls {
    /// Reads the files.
    pub(super) fn read(&self) -> Result<Arc<ClientConfig>, OpenError> {
        // Named, and not taken from the process: whoever else speaks TLS in it may have chosen another.
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&self.authority)? {
            roots.add(certificate).map_err(|cause| unusable(&self.authority, &cause))?;
        }
        let verifier = Verifier::new(Arc::new(roots), self.names.clone(), &provider)
            .map_err(|cause| unusable(&self.authority, &cause))?;
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|cause| unusable(&self.authority, &cause))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let configuration = match &self.own {
            None => builder.with_no_client_auth(),
            Some(Own { certificate, key: file }) => {
                let key = PrivateKeyDer::from_pem_file(file).map_err(|cause| unusable(file, &cause))?;
                builder
                    .with_client_auth_cert(certificates(certificate)?, key)
                    .map_err(|cause| unusable(file, &cause))?
            }
        };
        Ok(Arc::new(configuration))
    }
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, OpenError> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(certificates) if certificates.is_empty() => Err(unusable(file, &"there is no certificate in it")),
        Ok(certificates) => Ok(certificates),
        Err(cause) => Err(unusable(file, &cause)),
    }
}

fn unusable(file: &Path, cause: &dyn ToString) -> OpenError {
    OpenError::TlsFile { path: file.to_owned(), why: cause.to_string() }
}

/// What the library's own verifier does, but for the name: the client library knows nodes by their addresses
/// alone.
#[derive(Debug)]
struct Verifier {
    names: Names,
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
    strict: Arc<WebPkiServerVerifier>,
}

impl Verifier {
    fn new(
        roots: Arc<RootCertStore>,
        names: Names,
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
            Names::Address => address,
            Names::Is(name) => name,
            Names::Any => {
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
