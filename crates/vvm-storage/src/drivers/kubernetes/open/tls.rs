//! TLS with an API server: the authority and our certificate, from files or from a kubeconfig itself.

use super::OpenError;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use std::{fs, path::PathBuf, sync::Arc};

/// Certificates or a key, as PEM.
#[derive(Debug)]
pub(super) enum Pem {
    File(PathBuf),
    /// With the name of the field that has it.
    Data(Vec<u8>, String),
}

impl Pem {
    fn unusable(&self, why: &dyn ToString) -> OpenError {
        let (path, why) = match self {
            Self::File(path) => (path.clone(), why.to_string()),
            Self::Data(_, field) => ("the kubeconfig".into(), format!("{field}: {}", why.to_string())),
        };
        OpenError::File { path, why }
    }

    fn read(&self) -> Result<Vec<u8>, OpenError> {
        match self {
            Self::File(path) => fs::read(path).map_err(|cause| self.unusable(&cause)),
            Self::Data(data, _) => Ok(data.clone()),
        }
    }

    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, OpenError> {
        let pem = self.read()?;
        let read = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
        match read.map_err(|cause| self.unusable(&cause))? {
            certificates if certificates.is_empty() => Err(self.unusable(&"there is no certificate in it")),
            certificates => Ok(certificates),
        }
    }
}

/// Trusts `authority`, or those of the system. Shows our certificate and signs with its key, if there is one.
pub(super) fn configuration(
    authority: Option<&Pem>,
    own: Option<(&Pem, &Pem)>,
) -> Result<Arc<ClientConfig>, OpenError> {
    let mut roots = RootCertStore::empty();
    match authority {
        Some(authority) => {
            for certificate in authority.certificates()? {
                roots.add(certificate).map_err(|cause| authority.unusable(&cause))?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    // The default of the process is not used: another part of the program may have changed it.
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|cause| OpenError::System(std::io::Error::other(cause)))?
        .with_root_certificates(roots);
    let configuration = match own {
        None => builder.with_no_client_auth(),
        Some((certificate, file)) => {
            let key = PrivateKeyDer::from_pem_slice(&file.read()?).map_err(|cause| file.unusable(&cause))?;
            let certificates = certificate.certificates()?;
            builder.with_client_auth_cert(certificates, key).map_err(|cause| file.unusable(&cause))?
        }
    };
    Ok(Arc::new(configuration))
}
