//! TLS by rustls, for drivers: trusted authorities, names of certificates, and the client's certificate.

use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
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

/// The name that a server's certificate must have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Names {
    /// The address of the server.
    Address,
    /// This name, for all servers.
    #[cfg_attr(
        not(any(feature = "etcd", feature = "scylla")),
        allow(dead_code, reason = "PostgreSQL has no such option")
    )]
    Is(ServerName<'static>),
    /// Any name, for an authority that signs only these servers.
    Any,
}

/// The client's certificate and key, for servers that request them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Own {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
}

/// A file that can't be used.
#[derive(Debug)]
pub(super) struct Unusable {
    pub(super) path: PathBuf,
    pub(super) why: String,
}

impl Unusable {
    fn of(path: &Path, cause: &dyn ToString) -> Self {
        Self { path: path.to_owned(), why: cause.to_string() }
    }
}

/// Reads the authorities in a file.
pub(super) fn authorities(file: &Path) -> Result<RootCertStore, Unusable> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file)? {
        roots.add(certificate).map_err(|cause| Unusable::of(file, &cause))?;
    }
    Ok(roots)
}

/// Configures TLS with servers whose certificates `roots` signed. Messages name `roots_file`.
pub(super) fn configuration(
    roots: RootCertStore,
    roots_file: &Path,
    names: Names,
    own: Option<&Own>,
) -> Result<ClientConfig, Unusable> {
    // The default of the process is not used: another part of the program may have changed it.
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier =
        Verifier::new(Arc::new(roots), names, &provider).map_err(|cause| Unusable::of(roots_file, &cause))?;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|cause| Unusable::of(roots_file, &cause))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    match own {
        None => Ok(builder.with_no_client_auth()),
        Some(Own { certificate, key: file }) => {
            let key = PrivateKeyDer::from_pem_file(file).map_err(|cause| Unusable::of(file, &cause))?;
            let certificates = certificates(certificate)?;
            builder.with_client_auth_cert(certificates, key).map_err(|cause| Unusable::of(file, &cause))
        }
    }
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, Unusable> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(certificates) if certificates.is_empty() => {
            Err(Unusable::of(file, &"the file has no certificate"))
        }
        Ok(certificates) => Ok(certificates),
        Err(cause) => Err(Unusable::of(file, &cause)),
    }
}

/// Verifies certificates as rustls does, but chooses the name that they must have: the client library of
/// ScyllaDB passes only the addresses of nodes.
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
