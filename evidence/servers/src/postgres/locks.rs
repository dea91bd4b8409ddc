//! A server that offers TLS, and requires it or a client's certificate of some users.

use crate::certificates::{self, AUTHORITY, ForServer};
use std::{
    fs, io,
    os::unix::fs::{PermissionsExt, chown},
    path::Path,
};

/// Who gets in, and how. `cert` compares the common name of the certificate with the user.
const ADMISSION: &str = "hostssl all client,certified all cert\n\
    hostssl all encrypted all trust\n\
    host all client,certified,encrypted all reject\n\
    host all all all trust\n";

/// The group `nogroup`, which the server runs as if this is root.
const NO_GROUP: u32 = 65534;

/// Makes the certificates, and returns the server's settings.
pub(super) fn make(folder: &Path) -> io::Result<Vec<String>> {
    let server = ForServer { file: "server".into(), names: vec!["localhost".into()] };
    certificates::make(folder, &[server])?;
    let key = folder.join("server.key");
    // PostgreSQL takes a key that only its user, or only root and its group can read.
    let mode = if rustix::process::geteuid().is_root() {
        chown(&key, None, Some(NO_GROUP))?;
        0o640
    } else {
        0o600
    };
    fs::set_permissions(&key, fs::Permissions::from_mode(mode))?;
    let admission = folder.join("pg_hba.conf");
    fs::write(&admission, ADMISSION)?;
    let file = |setting: &str, path: &Path| format!("{setting}={}", path.display());
    Ok(vec![
        "ssl=on".into(),
        file("ssl_cert_file", &folder.join("server.pem")),
        file("ssl_key_file", &key),
        file("ssl_ca_file", &folder.join(AUTHORITY)),
        file("hba_file", &admission),
    ])
}
