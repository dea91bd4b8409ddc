//! Opening a cluster that requires a client certificate and a password. `cargo xtask test-drivers` starts one node and
//! runs this with `VVM_TEST_SCYLLA_LOCKED=host:port`, user and password `cassandra`, and `VVM_TEST_SCYLLA_LOCKS`, a
//! folder of certificates. `authority.pem` signed the node's certificate, for its address and `nodes.vvm.test`, and
//! `client.pem` with `client.key`. `stranger.pem` signed `strange-client.pem` with `strange-client.key`.

use crate::{is_refused, refused, says};
use ::scylla::client::{session::Session, session_builder::SessionBuilder};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};
use vvm_storage::{
    OpenError, OpenErrorKind::Refused, Partition, Step, SysVvmStorage, init_storage, scylla::ScyllaStorage,
};

fn address() -> String {
    crate::server("VVM_TEST_SCYLLA_LOCKED", "host:port", "scylla")
}

fn lock(name: &str) -> String {
    Path::new(&crate::server("VVM_TEST_SCYLLA_LOCKS", "folder", "scylla")).join(name).display().to_string()
}

fn url(options: &[&str]) -> String {
    format!("scylla://{}/vvm_test_locked?{}", address(), options.join("&"))
}

struct PasswordFiles(tempfile::TempDir);

impl PasswordFiles {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self, text: &str) -> PathBuf {
        let path = self.0.path().join(format!("{}-{}", text.len(), text.trim().replace('/', "-")));
        fs::write(&path, text).unwrap();
        path
    }

    /// An empty value in `replaced` omits its option.
    fn url_with(&self, replaced: &[(&str, &str)]) -> String {
        let password = self.file("cassandra\n").display().to_string();
        let (authority, certificate, key) = (lock("authority.pem"), lock("client.pem"), lock("client.key"));
        let mut options = vec![
            ("user", "cassandra"),
            ("password_file", &*password),
            ("tls_ca", &*authority),
            ("tls_certificate", &*certificate),
            ("tls_key", &*key),
        ];
        options.retain(|(name, _)| replaced.iter().all(|(other, _)| other != name));
        options.extend(replaced.iter().filter(|(_, value)| !value.is_empty()));
        let options: Vec<_> = options.iter().map(|(name, value)| format!("{name}={value}")).collect();
        url(&options.iter().map(String::as_str).collect::<Vec<_>>())
    }
}

async fn session() -> Session {
    let read = |name: &str| {
        CertificateDer::pem_file_iter(lock(name)).unwrap().collect::<Result<Vec<_>, _>>().unwrap()
    };
    let mut roots = rustls::RootCertStore::empty();
    read("authority.pem").into_iter().for_each(|certificate| roots.add(certificate).unwrap());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(read("client.pem"), PrivateKeyDer::from_pem_file(lock("client.key")).unwrap());
    SessionBuilder::new()
        .known_node(address())
        .user("cassandra", "cassandra")
        .tls_context(Some(Arc::new(tls.unwrap())))
        .build()
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn certificate_and_password_open_the_cluster() {
    let files = PasswordFiles::new();
    for names in [("tls_name", ""), ("tls_name", "nodes.vvm.test"), ("tls_name", "*")] {
        let url = files.url_with(&[names, ("replication", "1")]);
        init_storage(&url).await.unwrap();
        let storage = ScyllaStorage::open(&url).await.unwrap();
        let at = Partition::from_bytes(*b"setting");
        storage.commit(at.clone(), Step::settle(b"value")).await.unwrap();
        assert_eq!(storage.setting(at).await.unwrap().as_deref(), Some(&b"value"[..]));
        storage.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_or_missing_password_is_reported() {
    let files = PasswordFiles::new();
    let [wrong, empty] = ["wrong", "\n"].map(|text| files.file(text).display().to_string());
    type Row<'row> = (&'row [(&'row str, &'row str)], &'row [&'row str]);
    let table: [Row<'_>; 5] = [
        (&[("password_file", &wrong)], &["does not accept user `cassandra`", "correct the user"]),
        (&[("user", "nobody")], &["does not accept user `nobody`"]),
        (&[("user", ""), ("password_file", "")], &["requires a login", "user=NAME", "VVM_STORAGE_PASSWORD"]),
        (&[("password_file", &empty)], &["there is no password", "password_file=PATH"]),
        (&[("password_file", "/nowhere/password")], &["can't be read from /nowhere/password"]),
    ];
    for (replaced, parts) in table {
        is_refused(&files.url_with(replaced), Refused, parts).await;
    }
}

fn grants(error: &OpenError) -> String {
    println!("{error}");
    assert_eq!(error.kind(), Refused);
    error.to_string().split_once("As an administrator of the cluster: ").unwrap().1.to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn user_without_rights_may_not_init_until_the_printed_grants_are_given() {
    let (files, session) = (PasswordFiles::new(), session().await);
    let give = async |grants: &str| {
        for grant in grants.split("; ") {
            session.query_unpaged(grant, ()).await.unwrap();
        }
    };
    let fresh = fastrand::u32(..);
    let keyspace = |number: u8| format!("Vvm_test_{fresh}_{number}");
    let of = |url: String, number: u8| url.replace("/vvm_test_locked?", &format!("/{}?", keyspace(number)));
    let as_user = |user: &str, number: u8| {
        let password = files.file(user).display().to_string();
        let replaced = [("user", user), ("password_file", &*password), ("replication", "1")];
        of(files.url_with(&replaced), number)
    };
    let [creator, member] = ["creator", "member"].map(|name| format!("{name}{fresh}"));
    for user in [&creator, &member] {
        give(&format!("CREATE ROLE \"{user}\" WITH PASSWORD = '{user}' AND LOGIN = true")).await;
    }
    // No keyspace; a keyspace without the table. A creator has all rights on what it has created.
    for (number, place) in [(1, "ALL KEYSPACES".to_owned()), (2, format!("KEYSPACE \"{}\"", keyspace(2)))] {
        if number == 2 {
            let replication = "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}";
            give(&format!("CREATE KEYSPACE \"{}\" WITH replication = {replication}", keyspace(2))).await;
            give(&format!("REVOKE CREATE ON ALL KEYSPACES FROM \"{creator}\"")).await;
        }
        let url = as_user(&creator, number);
        let missing = grants(&init_storage(&url).await.unwrap_err());
        assert_eq!(missing, format!("GRANT CREATE ON {place} TO \"{creator}\""));
        give(&missing).await;
        init_storage(&url).await.unwrap();
    }
    // What the administrator created: it may be read, and written.
    let url = as_user(&member, 3);
    init_storage(&of(files.url_with(&[("replication", "1")]), 3)).await.unwrap();
    is_refused(&url, Refused, &["no SELECT permission", "As an administrator"]).await;
    let missing = grants(&init_storage(&url).await.unwrap_err());
    let (select, modify) = missing.split_once("; ").unwrap();
    give(select).await;
    ScyllaStorage::open(&url).await.unwrap().close().await;
    let without_modify = init_storage(&url).await.unwrap_err();
    says(&without_modify, &["no MODIFY permission"]);
    assert_eq!(grants(&without_modify), missing);
    give(modify).await;
    init_storage(&url).await.unwrap();
    for number in 1..=3 {
        give(&format!("DROP KEYSPACE \"{}\"", keyspace(number))).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_or_missing_certificate_is_reported() {
    let files = PasswordFiles::new();
    for (option, value, cause, way_out) in [
        ("tls_ca", &*lock("stranger.pem"), "another authority", "correct tls_ca"),
        ("tls_name", "other.vvm.test", "has another name", "tls_name=NAME"),
    ] {
        is_refused(&files.url_with(&[(option, value)]), Refused, &["no TLS with", cause, way_out]).await;
    }
    // In TLS 1.3 a node refuses a client's certificate after the handshake, and may reset before its alert is read.
    let error = refused(&files.url_with(&[("tls_certificate", ""), ("tls_key", "")])).await;
    says(&error, &["tls_certificate=PATH"]);
    let (certificate, key) = (lock("strange-client.pem"), lock("strange-client.key"));
    let error = refused(&files.url_with(&[("tls_certificate", &certificate), ("tls_key", &key)])).await;
    says(&error, &["certificate", "that the node trusts"]);
}
