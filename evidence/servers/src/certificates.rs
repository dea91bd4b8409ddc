//! Certificates for servers and clients of tests, and two authorities that sign them.

use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use std::{fs, io, path::Path};

pub(crate) const AUTHORITY: &str = "authority.pem";

#[derive(Clone, Debug)]
pub(crate) struct ForServer {
    pub(crate) file: String,
    pub(crate) names: Vec<String>,
}

/// Makes certificates and keys in a folder:
///
/// - `authority.pem`: an authority, and `client.pem` that it signed (`client.key`).
/// - `stranger.pem`: another authority, and `strange-client.pem` that it signed (`strange-client.key`).
/// - one for each server, signed by `authority.pem`.
pub(crate) fn make(folder: &Path, servers: &[ForServer]) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let write = |name: String, text: &str| fs::write(folder.join(name), text);
    let write_both = |name: &str, (certificate, key): (String, String)| {
        write(format!("{name}.pem"), &certificate)?;
        write(format!("{name}.key"), &key)
    };
    let (ours, issuer) = authority("vvm test authority").map_err(io::Error::other)?;
    let (strange, stranger) = authority("vvm test stranger").map_err(io::Error::other)?;
    write(AUTHORITY.into(), &ours)?;
    write("stranger.pem".into(), &strange)?;
    for (name, by) in [("client", &issuer), ("strange-client", &stranger)] {
        let made = signed(vec![name.into()], ExtendedKeyUsagePurpose::ClientAuth, by);
        write_both(name, made.map_err(io::Error::other)?)?;
    }
    for ForServer { file, names } in servers {
        let made = signed(names.clone(), ExtendedKeyUsagePurpose::ServerAuth, &issuer);
        write_both(file, made.map_err(io::Error::other)?)?;
    }
    Ok(())
}

fn authority(name: &str) -> Result<(String, Issuer<'static, KeyPair>), rcgen::Error> {
    let mut parameters = CertificateParams::default();
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    parameters.distinguished_name.push(DnType::CommonName, name);
    let key = KeyPair::generate()?;
    let certificate = parameters.self_signed(&key)?;
    Ok((certificate.pem(), Issuer::new(parameters, key)))
}

/// A certificate and its key. The first name is its common name as well, by which PostgreSQL knows a client.
fn signed(
    names: Vec<String>,
    purpose: ExtendedKeyUsagePurpose,
    by: &Issuer<'static, KeyPair>,
) -> Result<(String, String), rcgen::Error> {
    let common = names.first().cloned().unwrap_or_default();
    let mut parameters = CertificateParams::new(names)?;
    parameters.distinguished_name.push(DnType::CommonName, common);
    parameters.extended_key_usages = vec![purpose];
    let key = KeyPair::generate()?;
    Ok((parameters.signed_by(&key, by)?.pem(), key.serialize_pem()))
}
