//! [`Credential`]: what a kubeconfig and a plug-in have in common.

use crate::drivers::tls::Pem;
use data_encoding::BASE64;
use std::path::Path;
use yaml_rust2::Yaml;

/// What a request shows, and the connection that sends it.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Credential {
    pub(super) token: Option<String>,
    /// A certificate and its key, in the place of those of the kubeconfig.
    pub(super) own: Option<(Pem, Pem)>,
}

/// A file, or the data of one, which counts if both are there.
pub(super) fn pem(of: &Yaml, folder: &Path, name: &str) -> Result<Option<Pem>, String> {
    let data = format!("{name}-data");
    match (of[&*data].as_str(), of[name].as_str()) {
        (Some(encoded), _) => {
            let decoded = BASE64.decode(encoded.trim().as_bytes());
            decoded
                .map(|pem| Some(Pem::Data(pem, data.clone())))
                .map_err(|_| format!("its {data} is not base64"))
        }
        (None, Some(path)) => Ok(Some(Pem::File(folder.join(path)))),
        (None, None) => Ok(None),
    }
}
