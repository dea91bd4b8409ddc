use super::client_at;
use crate::{
    driver::{TTL, VACANT, entry, slot_of},
    is_refused, refused, says,
};
use ielections::ReadError;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, pem::PemObject as _},
};
use servers::postgres::Postgres;
use std::{path::Path, sync::Arc};
use vvm_storage::{
    OpenErrorKind::Refused,
    Step, StepOutcome, SysVvmStorage, init_storage,
    postgres::{OpenOptions, PostgresStorage},
};

struct Encrypted(Postgres);

impl Encrypted {
    async fn start() -> Self {
        let server = Postgres::start_with_tls(Path::new("../../target")).unwrap();
        init_storage(&server.url("postgres")).await.unwrap();
        let users = "CREATE ROLE client LOGIN; CREATE ROLE certified LOGIN; CREATE ROLE encrypted LOGIN; \
            GRANT pg_read_all_data, pg_write_all_data TO client, certified, encrypted";
        client_at(&server.url("postgres")).await.batch_execute(users).await.unwrap();
        Self(server)
    }

    fn url(&self, user: &str, host: &str, options: &[String]) -> String {
        format!("postgres://{user}@{host}:{}/postgres?{}", self.0.address().port(), options.join("&"))
    }

    fn file(&self, option: &str, name: &str) -> String {
        format!("{option}={}", self.0.certificate(name).display())
    }

    fn verifying(&self, mode: &str) -> Vec<String> {
        vec![format!("sslmode={mode}"), self.file("sslrootcert", "authority.pem")]
    }

    fn certified(&self, name: &str) -> Vec<String> {
        let own = [("sslcert", "pem"), ("sslkey", "key")];
        let own = own.map(|(option, suffix)| self.file(option, &format!("{name}.{suffix}")));
        [self.verifying("verify-full"), own.into()].concat()
    }

    /// How the server sees the connections of drivers: with TLS or not, and whose certificate.
    async fn sees(&self) -> Vec<(bool, Option<String>)> {
        let client = client_at(&self.0.url("postgres")).await;
        let connections = "SELECT ssl, client_dn FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
            WHERE application_name = 'vvm'";
        let rows = client.query(connections, &[]).await.unwrap();
        rows.iter().map(|row| (row.get(0), row.get(1))).collect()
    }
}

async fn no_tls(url: &str, parts: &[&str]) {
    is_refused(url, Refused, &[&["no TLS with"][..], parts].concat()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn server_with_a_certificate_for_its_name_is_used() {
    let server = Encrypted::start().await;
    let by_name = server.url("encrypted", "localhost", &server.verifying("verify-full"));
    let by_address = server.url("encrypted", "127.0.0.1", &server.verifying("verify-ca"));
    for (url, slot) in [(by_name, "name"), (by_address, "address")] {
        let storage = PostgresStorage::open(&url).await.unwrap();
        let claim = storage.commit(slot_of(slot), Step::claim(&VACANT, &entry(1, 1, TTL))).await.unwrap();
        assert_eq!(claim, StepOutcome::Applied);
        assert_eq!(server.sees().await, [(true, None)]);
        storage.close().await;
        while !server.sees().await.is_empty() {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_of_the_caller_is_used_and_verified() {
    let server = Encrypted::start().await;
    let tls = |authority: &str| {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(server.0.certificate(authority)).unwrap()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        Some(builder.with_root_certificates(roots).with_no_client_auth())
    };
    // `sslmode` is `prefer`, which would go on without TLS.
    let own = format!("host=localhost port={} user=encrypted dbname=postgres", server.0.address().port());
    let own = own.parse().unwrap();
    let open =
        async |authority| PostgresStorage::open_with(&own, tls(authority), OpenOptions::default()).await;
    let storage = open("authority.pem").await.unwrap();
    assert_eq!(server.sees().await, [(true, None)]);
    storage.close().await;
    says(&open("stranger.pem").await.unwrap_err(), &["another authority"]);
    let plain = PostgresStorage::open_with(&own, None, OpenOptions::default()).await.unwrap_err();
    says(&plain, &["no encryption"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn server_of_another_name_or_authority_is_refused() {
    let server = Encrypted::start().await;
    let other_name = server.url("postgres", "127.0.0.1", &server.verifying("verify-full"));
    no_tls(&other_name, &["127.0.0.1", "for another name", "verify-ca"]).await;
    let strange = server.file("sslrootcert", "stranger.pem");
    // The system's authorities did not sign it either.
    let of_system = "sslrootcert=system".to_owned();
    for (mode, authority) in [
        ("verify-full", &strange),
        ("verify-full", &of_system),
        ("verify-ca", &strange),
        ("require", &strange),
        ("require", &of_system),
    ] {
        let url = server.url("postgres", "localhost", &[format!("sslmode={mode}"), authority.clone()]);
        no_tls(&url, &["another authority", "sslrootcert=PATH"]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn client_is_known_by_its_certificate() {
    let server = Encrypted::start().await;
    let storage =
        PostgresStorage::open(&server.url("client", "localhost", &server.certified("client"))).await;
    let storage = storage.unwrap();
    let name = Some("/CN=client".to_owned());
    assert_eq!(server.sees().await, [(true, name)]);
    storage.close().await;
    let none = server.url("client", "localhost", &server.verifying("verify-full"));
    no_tls(&none, &["sslcert=PATH", "valid client certificate"]).await;
    let of_another = server.url("certified", "localhost", &server.certified("client"));
    no_tls(&of_another, &["common name", "sslcert=PATH"]).await;
    // In TLS 1.3 the server refuses a certificate after the handshake, and may close before its alert is read.
    let error = refused(&server.url("client", "localhost", &server.certified("strange-client"))).await;
    if error.is_passing() {
        says(&error, &["its log tells"]);
    } else {
        says(&error, &["no TLS with", "refuses our certificate", "ssl_ca_file"]);
    }
}

/// Files are replaced one after the other, while processes run.
#[tokio::test(flavor = "multi_thread")]
async fn replaced_certificate_is_used_by_the_next_connection() {
    let server = Encrypted::start().await;
    let folder = tempfile::tempdir().unwrap();
    let replace = |from: &str, suffix: &str| {
        let file = format!("{from}.{suffix}");
        std::fs::copy(server.0.certificate(&file), folder.path().join(format!("own.{suffix}"))).unwrap();
    };
    for suffix in ["pem", "key"] {
        replace("strange-client", suffix);
    }
    let own = ["sslcert", "sslkey"].into_iter().zip(["pem", "key"]);
    let own = own.map(|(option, suffix)| {
        format!("{option}={}", folder.path().join(format!("own.{suffix}")).display())
    });
    let options = [server.verifying("verify-full"), own.collect()].concat();
    let url = server.url("client", "localhost", &options);
    refused(&url).await;
    for suffix in ["pem", "key"] {
        replace("client", suffix);
    }
    let storage = PostgresStorage::open(&url).await.unwrap();
    let read = async || {
        // The server ends the connections that there are. The first read may still have one of them.
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'vvm'";
        client_at(&server.0.url("postgres")).await.batch_execute(end).await.unwrap();
        let _broken = storage.read(slot_of("slot")).await;
        storage.read(slot_of("slot")).await
    };
    read().await.unwrap();
    for (suffix, part) in [("pem", "has to be PEM"), ("key", "certificate")] {
        replace("strange-client", suffix);
        // The handle goes on, and says what to do.
        let failed = read().await;
        assert!(
            matches!(&failed, Err(ReadError::Unavailable(cause)) if cause.to_string().contains(part)),
            "{failed:?}"
        );
    }
    for suffix in ["pem", "key"] {
        replace("client", suffix);
    }
    read().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn side_without_tls_is_told_so() {
    let server = Encrypted::start().await;
    let plain = server.url("encrypted", "127.0.0.1", &["sslmode=disable".into()]);
    no_tls(&plain, &["sslmode=verify-full", "no encryption"]).await;
    let without = Postgres::start(Path::new("../../target"), &[], &[]).unwrap();
    let options = server.verifying("verify-full").join("&");
    no_tls(&format!("{}?{options}", without.url("postgres")), &["TLS turned off", "ssl = on"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_can_not_be_used_are_named() {
    let server = Encrypted::start().await;
    let full = || server.certified("client");
    let missing = "sslrootcert=/nowhere/authority.pem".to_owned();
    for (at, option, said) in [
        (1, missing, "can't be read"),
        (1, server.file("sslrootcert", "client.key"), "has to be PEM"),
        (2, server.file("sslcert", "client.key"), "has to be PEM"),
        (3, server.file("sslkey", "client.pem"), "has to be PEM"),
        (3, server.file("sslkey", "strange-client.key"), "has to be PEM"),
    ] {
        let mut options = full();
        let path = option.split_once('=').unwrap().1.to_owned();
        options[at] = option;
        is_refused(&server.url("client", "localhost", &options), Refused, &[said, &path]).await;
    }
}
