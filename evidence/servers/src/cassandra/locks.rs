//! A cluster that requires a certificate and a password, and the certificates for it.

use crate::certificates::{self, AUTHORITY, ForServer};
use std::{
    fs, io,
    net::Ipv4Addr,
    path::{Path, PathBuf},
};

/// A folder with the files of [`certificates::make`]. A node's certificate is for its address and [`NAME`].
#[derive(Clone, Debug)]
pub(super) struct Locks {
    folder: PathBuf,
}

/// A name that every node's certificate bears.
const NAME: &str = "nodes.vvm.test";

impl Locks {
    /// Makes the certificates.
    pub(super) fn make(folder: &Path, nodes: &[Ipv4Addr]) -> io::Result<Self> {
        let server = |node: &Ipv4Addr| ForServer {
            file: node.to_string(),
            names: vec![NAME.into(), node.to_string()],
        };
        certificates::make(folder, &nodes.iter().map(server).collect::<Vec<_>>())?;
        for node in nodes {
            // As Cassandra reads them: a key, and the certificate after it.
            let read = |suffix: &str| fs::read_to_string(folder.join(format!("{node}.{suffix}")));
            let both = read("key")? + &read("pem")?;
            fs::write(folder.join(format!("{node}.pem")), both)?;
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
