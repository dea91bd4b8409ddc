//! Waits until the nodes of a new cluster know each other. A client that comes earlier may find a node that
//! knows no other, and that does not have a keyspace created on the others.

use crate::certificates::{self, AUTHORITY, ForServer};
use std::{
    collections::BTreeSet,
    fs,
    io::{self, Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::{Path, PathBuf},
    time::Duration,
};

/// How long one read or write may take.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The schema's version: a UUID.
type Version = Vec<u8>;

/// Whether each node knows all others, and all have the same schema.
pub(super) fn is_complete(nodes: &[SocketAddr]) -> bool {
    let mut versions = BTreeSet::new();
    for node in nodes {
        match known_versions(*node) {
            Ok(known) if known.len() == nodes.len() => versions.extend(known),
            // A node that does not answer yet is asked again.
            Ok(_) | Err(_) => return false,
        }
    }
    versions.len() == 1
}

/// Reads the schema version of a node, and of each other node that it knows.
fn known_versions(node: SocketAddr) -> io::Result<Vec<Version>> {
    let mut connection = TcpStream::connect(node)?;
    connection.set_read_timeout(Some(TIMEOUT))?;
    connection.set_write_timeout(Some(TIMEOUT))?;
    request(&mut connection, STARTUP, b"\x00\x01\x00\x0bCQL_VERSION\x00\x053.0.0")?;
    let mut versions = Vec::new();
    for table in ["local", "peers"] {
        let query = format!("SELECT schema_version FROM system.{table}");
        let mut body = u32::try_from(query.len()).unwrap_or_default().to_be_bytes().to_vec();
        body.extend_from_slice(query.as_bytes());
        body.extend_from_slice(&CONSISTENCY_ONE.to_be_bytes());
        body.push(SKIP_METADATA);
        let result = request(&mut connection, QUERY, &body)?;
        versions.extend(only_column(&result).ok_or(io::ErrorKind::InvalidData)?);
    }
    Ok(versions)
}

/// From the native protocol, version 4.
const STARTUP: u8 = 0x01;
const QUERY: u8 = 0x07;
const CONSISTENCY_ONE: u16 = 1;
const SKIP_METADATA: u8 = 0x02;

/// Sends a request, and returns the body of its response. An error's body has no rows.
fn request(connection: &mut TcpStream, opcode: u8, body: &[u8]) -> io::Result<Vec<u8>> {
    let mut frame = vec![0x04, 0, 0, 0, opcode];
    frame.extend_from_slice(&u32::try_from(body.len()).unwrap_or_default().to_be_bytes());
    frame.extend_from_slice(body);
    connection.write_all(&frame)?;
    let mut header = [0; 9];
    connection.read_exact(&mut header)?;
    let [.., a, b, c, d] = header;
    let mut body = Vec::new();
    connection.take(u32::from_be_bytes([a, b, c, d]).into()).read_to_end(&mut body)?;
    Ok(body)
}

/// The values of a result of one column without metadata: kind, flags, count of columns, count of rows, and
/// for each row a length and as many bytes. `None` for another answer. A row without a value is left out: its
/// node has not joined.
fn only_column(body: &[u8]) -> Option<Vec<Vec<u8>>> {
    const ROWS: i32 = 2;
    let mut rest = body;
    let mut number = || {
        let (number, behind) = rest.split_first_chunk()?;
        rest = behind;
        Some(i32::from_be_bytes(*number))
    };
    let (kind, _flags, columns, rows) = (number()?, number()?, number()?, number()?);
    if (kind, columns) != (ROWS, 1) {
        return None;
    }
    let mut values = Vec::new();
    for _ in 0..rows {
        let (length, behind) = rest.split_first_chunk()?;
        rest = behind;
        if let Ok(length) = usize::try_from(i32::from_be_bytes(*length)) {
            let (value, behind) = rest.split_at_checked(length)?;
            values.push(value.to_vec());
            rest = behind;
        }
    }
    Some(values)
}

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

#[cfg(test)]
mod tests {
    use super::only_column;

    #[test]
    fn values_are_read_and_a_row_without_one_is_left_out() {
        let body = b"\0\0\0\x02\0\0\0\x04\0\0\0\x01\0\0\0\x03\0\0\0\x02ab\xff\xff\xff\xff\0\0\0\x01c";
        assert_eq!(only_column(body), Some(vec![b"ab".to_vec(), b"c".to_vec()]));
        assert_eq!(only_column(&body[..body.len() - 1]), None, "cut off");
        assert_eq!(only_column(b"\0\0\x22\0\0\x03bad"), None, "an error");
    }
}
