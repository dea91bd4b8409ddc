//! A cluster that lets in only who has a certificate and a password, and the certificates for it.

use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use std::{
    fs, io,
    net::Ipv4Addr,
    path::{Path, PathBuf},
};

const AUTHORITY: &str = "authority.pem";

/// Files with certificates and keys, all in one folder:
///
/// - `authority.pem`: who signed the nodes' certificates and `client.pem` (its key is `client.key`).
/// - `stranger.pem`: another authority, and `strange-client.pem` that it signed (`strange-client.key`).
/// - one for each node, that bears its address and [`NAME`].
#[derive(Clone, Debug)]
pub(super) struct Locks {
    folder: PathBuf,
}

/// A name that every node's certificate bears.
const NAME: &str = "nodes.vvm.test";

fn authority(name: &str) -> Result<(String, Issuer<'static, KeyPair>), rcgen::Error> {
    let mut parameters = CertificateParams::default();
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    parameters.distinguished_name.push(DnType::CommonName, name);
    let key = KeyPair::generate()?;
    let certificate = parameters.self_signed(&key)?;
    Ok((certificate.pem(), Issuer::new(parameters, key)))
}

/// A certificate and its key.
fn signed(
    names: Vec<String>,
    purpose: ExtendedKeyUsagePurpose,
    by: &Issuer<'static, KeyPair>,
) -> Result<(String, String), rcgen::Error> {
    let mut parameters = CertificateParams::new(names)?;
    parameters.extended_key_usages = vec![purpose];
    let key = KeyPair::generate()?;
    Ok((parameters.signed_by(&key, by)?.pem(), key.serialize_pem()))
}

impl Locks {
    /// Makes the certificates.
    pub(super) fn make(folder: &Path, nodes: &[Ipv4Addr]) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let write = |name: &str, text: &str| fs::write(folder.join(name), text);
        let (ours, issuer) = authority("vvm test authority").map_err(io::Error::other)?;
        let (strange, stranger) = authority("vvm test stranger").map_err(io::Error::other)?;
        write(AUTHORITY, &ours)?;
        write("stranger.pem", &strange)?;
        for (name, by) in [("client", &issuer), ("strange-client", &stranger)] {
            let (certificate, key) = signed(vec![name.into()], ExtendedKeyUsagePurpose::ClientAuth, by)
                .map_err(io::Error::other)?;
            write(&format!("{name}.pem"), &certificate)?;
            write(&format!("{name}.key"), &key)?;
        }
        for node in nodes {
            let (certificate, key) =
                signed(vec![NAME.into(), node.to_string()], ExtendedKeyUsagePurpose::ServerAuth, &issuer)
                    .map_err(io::Error::other)?;
            // As Cassandra reads them: a key, and the certificate after it.
            write(&format!("{node}.pem"), &format!("{key}{certificate}"))?;
        }
        Ok(Self { folder: folder.to_owned() })
    }

    /// The lines of a node's configuration.
    pub(super) fn configuration(&self, node: Ipv4Addr) -> String {
        let own = self.folder.join(format!("{node}.pem"));
        let authority = self.folder.join(AUTHORITY);
        format!(
            "authenticator: PasswordAuthenticator\n\
             authorizer: CassandraAuthorizer\n\
             client_encryption_options:\n\
             \x20 enabled: true\n\
             \x20 optional: false\n\
             \x20 require_client_auth: true\n\
             \x20 ssl_context_factory:\n\
             \x20   class_name: org.apache.cassandra.security.PEMBasedSslContextFactory\n\
             \x20 keystore: {}\n\
             \x20 truststore: {}\n",
            own.display(),
            authority.display(),
        )
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }
}
