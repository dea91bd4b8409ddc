//! A cluster that lets in only who has a certificate and a password: who gets in, and what those are told who
//! don't.
//!
//! `cargo xtask test-drivers` starts one node of it and runs this with `VVM_TEST_SCYLLA_LOCKED=host:port`,
//! user and password `cassandra`, and `VVM_TEST_SCYLLA_LOCKS`, a folder with `authority.pem` (which signed
//! the node's certificate for its address and `nodes.vvm.test`, and `client.pem` with `client.key`) and
//! `stranger.pem` (which signed `strange-client.pem` with `strange-client.key`).
#![cfg(feature = "scylla")]
#![allow(clippy::unwrap_used, reason = "clippy knows tests, but not their helpers")]

use ::scylla::client::{session::Session, session_builder::SessionBuilder};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};
use vvm_storage::{
    OpenError, Partition, SysVvmStorage, init_storage,
    scylla::{OpenError as Refusal, ScyllaStorage},
};

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!("{name} is not set: `cargo xtask test-drivers --only scylla` starts a cluster")
    })
}

/// A file of the cluster's certificates.
fn lock(name: &str) -> String {
    Path::new(&variable("VVM_TEST_SCYLLA_LOCKS")).join(name).display().to_string()
}

fn url(options: &[&str]) -> String {
    format!("scylla://{}/vvm_test_locked?{}", variable("VVM_TEST_SCYLLA_LOCKED"), options.join("&"))
}

/// Its own folder, since passwords come from files.
struct Desk(tempfile::TempDir);

impl Desk {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self, text: &str) -> PathBuf {
        let path = self.0.path().join(format!("{}-{}", text.len(), text.trim().replace('/', "-")));
        fs::write(&path, text).unwrap();
        path
    }

    /// Everything as it should be, but for what is replaced; an option without a value is left out.
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

/// As the administrator, over TLS.
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
        .known_node(variable("VVM_TEST_SCYLLA_LOCKED"))
        .user("cassandra", "cassandra")
        .tls_context(Some(Arc::new(tls.unwrap())))
        .build()
        .await
        .unwrap()
}

async fn refused(url: &str) -> Refusal {
    ScyllaStorage::open(url).await.expect_err("opened")
}

/// That the right refusal came, and that it says what to do.
#[track_caller]
fn says(error: &Refusal, right: bool, parts: &[&str]) {
    let text = error.to_string();
    println!("{text}");
    assert!(right, "{error:?}");
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_certificate_and_password_gets_in() {
    let desk = Desk::new();
    for names in [("tls_name", ""), ("tls_name", "nodes.vvm.test"), ("tls_name", "*")] {
        let url = desk.url_with(&[names, ("replication", "1")]);
        init_storage(&url).await.unwrap();
        let storage = ScyllaStorage::open(&url).await.unwrap();
        let stands = storage.settle(Partition::from_bytes(*b"setting"), b"value").await.unwrap();
        assert_eq!(stands, b"value");
        storage.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_or_none_is_told_so() {
    let desk = Desk::new();
    let wrong = desk.file("wrong").display().to_string();
    let error = refused(&desk.url_with(&[("password_file", &wrong)])).await;
    says(
        &error,
        matches!(&error, Refusal::Credentials { user } if user == "cassandra"),
        &["`cassandra`", "correct the user"],
    );
    let error = refused(&desk.url_with(&[("user", "nobody")])).await;
    says(&error, matches!(&error, Refusal::Credentials { user } if user == "nobody"), &["`nobody`"]);
    let error = refused(&desk.url_with(&[("user", ""), ("password_file", "")])).await;
    says(&error, matches!(error, Refusal::UserWanted), &["user=NAME", "VVM_STORAGE_PASSWORD"]);
    let empty = desk.file("\n").display().to_string();
    let error = refused(&desk.url_with(&[("password_file", &empty)])).await;
    says(&error, matches!(error, Refusal::NoPassword), &["password_file=PATH"]);
    let error = refused(&desk.url_with(&[("password_file", "/nowhere/password")])).await;
    says(&error, matches!(error, Refusal::PasswordFile { .. }), &["/nowhere/password"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_create_or_read_is_told_so() {
    let desk = Desk::new();
    let url = desk.url_with(&[("replication", "1")]);
    init_storage(&url).await.unwrap();
    let session = session().await;
    for statement in [
        "CREATE ROLE IF NOT EXISTS guest WITH PASSWORD = 'guest' AND LOGIN = true",
        "CREATE ROLE IF NOT EXISTS member WITH PASSWORD = 'member' AND LOGIN = true",
        "GRANT SELECT ON KEYSPACE vvm_test_locked TO member",
        "GRANT MODIFY ON KEYSPACE vvm_test_locked TO member",
    ] {
        session.query_unpaged(statement, ()).await.unwrap();
    }
    let as_user = |user: &str, more: &[(&str, &str)]| {
        let password = desk.file(user).display().to_string();
        desk.url_with(&[&[("user", user), ("password_file", &*password)], more].concat())
    };
    let error = refused(&as_user("guest", &[])).await;
    says(&error, matches!(error, Refusal::Unauthorized(_)), &["GRANT", "SELECT"]);
    let elsewhere =
        as_user("guest", &[("replication", "1")]).replace("vvm_test_locked?", "vvm_test_elsewhere?");
    match init_storage(&elsewhere).await {
        Err(OpenError::Scylla(error)) => says(&error, matches!(error, Refusal::Unauthorized(_)), &["CREATE"]),
        other => panic!("{other:?}"),
    }
    // What an administrator has created is enough for who may read and write it.
    let member = as_user("member", &[]);
    init_storage(&member).await.unwrap();
    ScyllaStorage::open(&member).await.unwrap().close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_that_do_not_fit_are_told_so() {
    let desk = Desk::new();
    let is_tls = |error: &Refusal| matches!(error, Refusal::Tls { .. });
    let error = refused(&desk.url_with(&[("tls_ca", &lock("stranger.pem"))])).await;
    says(&error, is_tls(&error), &["another authority", "correct tls_ca"]);
    let error = refused(&desk.url_with(&[("tls_name", "other.vvm.test")])).await;
    says(&error, is_tls(&error), &["has another name", "tls_name=NAME"]);
    // In TLS 1.3 a node refuses a client's certificate after the handshake, and may reset the connection
    // before its alert is read.
    let is_tls = |error: &Refusal| is_tls(error) || matches!(error, Refusal::HungUp { .. });
    let error = refused(&desk.url_with(&[("tls_certificate", ""), ("tls_key", "")])).await;
    says(&error, is_tls(&error), &["tls_certificate=PATH"]);
    let (certificate, key) = (lock("strange-client.pem"), lock("strange-client.key"));
    let error = refused(&desk.url_with(&[("tls_certificate", &certificate), ("tls_key", &key)])).await;
    says(&error, is_tls(&error), &["certificate", "that the node trusts"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_can_not_be_used_are_named() {
    let desk = Desk::new();
    let (nonsense, certificate) = (desk.file("nonsense").display().to_string(), lock("client.pem"));
    for (option, path) in [
        ("tls_ca", "/nowhere/authority.pem"),
        ("tls_ca", &*nonsense),
        ("tls_certificate", &*nonsense),
        ("tls_key", &*certificate),
        ("tls_key", &*lock("strange-client.key")),
    ] {
        let error = refused(&desk.url_with(&[(option, path)])).await;
        says(&error, matches!(error, Refusal::TlsFile { .. }), &[path]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_words_to_a_port_of_tls_are_told_so() {
    let desk = Desk::new();
    let plain = desk.url_with(&[("tls_ca", ""), ("tls_certificate", ""), ("tls_key", "")]);
    let error = refused(&plain).await;
    // It says nothing, as one that is starting.
    says(&error, matches!(error, Refusal::HungUp { .. }), &["add tls_ca=PATH"]);
}
