use super::failures::program;
use crate::{
    driver::{TTL, led, renewed},
    is_refused, refused, says,
};
use ielections::WriteError;
use servers::etcd::Cluster;
use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
};
use vvm_storage::{OpenErrorKind::Refused, StepOutcome, etcd::EtcdStorage, init_storage};

/// Its certificate bears the name `localhost`, and no address.
struct Encrypted(Cluster);

impl Encrypted {
    fn start() -> Self {
        Self(Cluster::start_with_tls(&program()).unwrap())
    }

    fn url(&mut self, host: &str, options: &[String]) -> String {
        format!("etcd://{host}:{}/vvm?{}", self.0.members()[0].address().port(), options.join("&"))
    }

    fn files(&self, options: &[(&str, &str)]) -> Vec<String> {
        options.iter().map(|(option, name)| format!("{option}={}", self.0.file(name).display())).collect()
    }

    fn certified(&self) -> Vec<String> {
        let options =
            [("tls_ca", "authority.pem"), ("tls_certificate", "client.pem"), ("tls_key", "client.key")];
        self.files(&options)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn members_with_a_certificate_of_our_authority_are_accepted_by_name() {
    let mut cluster = Encrypted::start();
    let certified = cluster.certified();
    init_storage(&cluster.url("localhost", &certified)).await.unwrap();
    for name in ["localhost", "*"] {
        let options = [&certified[..], &[format!("tls_name={name}")]].concat();
        EtcdStorage::open(&cluster.url("127.0.0.1", &options)).await.unwrap();
    }
    is_refused(&cluster.url("127.0.0.1", &certified), Refused, &["no TLS with", "tls_name="]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refusal_by_tls_says_what_to_do() {
    let mut cluster = Encrypted::start();
    let own = |certificate: &'static str, key: &'static str| {
        [("tls_ca", "authority.pem"), ("tls_certificate", certificate), ("tls_key", key)]
    };
    let stranger = cluster.files(&[("tls_ca", "stranger.pem")]);
    is_refused(&cluster.url("localhost", &stranger), Refused, &["no TLS with", "correct tls_ca"]).await;
    let uncertified = cluster.files(&[("tls_ca", "authority.pem")]);
    asks_for_a_certificate(&cluster.url("localhost", &uncertified)).await;
    let strange = cluster.files(&own("strange-client.pem", "strange-client.key"));
    asks_for_a_certificate(&cluster.url("localhost", &strange)).await;
    asks_for_tls(&cluster.url("localhost", &[])).await;
    let missing = cluster.files(&own("missing.pem", "client.key"));
    is_refused(&cluster.url("localhost", &missing), Refused, &["can't be read"]).await;
}

/// In TLS 1.3 a server refuses a certificate after the handshake. The end of the connection may be noticed before the
/// alert is read, and names the certificate as a possible reason. An attempt that reads the alert says what to do.
async fn asks_for_a_certificate(url: &str) {
    for _ in 0..100 {
        let error = refused(url).await;
        says(&error, &["tls_certificate=PATH"]);
        if !error.is_passing() {
            return says(&error, &["no TLS with"]);
        }
    }
    panic!("no attempt of a hundred has read the alert");
}

/// A busy machine may see the end of the connection after the time limit.
async fn asks_for_tls(url: &str) {
    for _ in 0..100 {
        let error = refused(url).await;
        if !error.to_string().contains("no answer within") {
            return says(&error, &["add tls_ca=PATH"]);
        }
    }
    panic!("no attempt of a hundred has seen the end of its connection");
}

#[tokio::test(flavor = "multi_thread")]
async fn user_needs_a_password_and_a_role_and_logs_in_again_without_repeating_a_write() {
    let mut cluster = Cluster::start(&program(), 1).unwrap();
    let address = cluster.members()[0].address();
    // Of "vvm/" to "vvm0", as the gateway writes bytes.
    let permission =
        r#"{"name":"vvm","perm":{"permType":"READWRITE","key":"dnZtLw==","range_end":"dnZtMA=="}}"#;
    for (path, body) in [
        ("user/add", r#"{"name":"root","password":"r"}"#),
        ("user/grant", r#"{"user":"root","role":"root"}"#),
        ("role/add", r#"{"name":"vvm"}"#),
        ("role/grant", permission),
        ("user/add", r#"{"name":"leader","password":"secret"}"#),
        ("user/grant", r#"{"user":"leader","role":"vvm"}"#),
        ("role/add", r#"{"name":"readers"}"#),
        ("role/grant", &permission.replace(r#""vvm""#, r#""readers""#).replace("READWRITE", "READ")),
        ("user/add", r#"{"name":"reader","password":"secret"}"#),
        ("user/grant", r#"{"user":"reader","role":"readers"}"#),
        ("user/add", r#"{"name":"other","password":"secret"}"#),
        ("enable", "{}"),
    ] {
        post(address, path, "", body);
    }
    let password = cluster.file("password");
    std::fs::write(&password, "secret\n").unwrap();
    let url = |user: &str| format!("etcd://{address}/vvm?user={user}&password_file={}", password.display());
    init_storage(&url("leader")).await.unwrap();
    let storage = EtcdStorage::open(&url("leader")).await.unwrap();
    let (at, held) = led(&storage, TTL).await;

    is_refused(&format!("etcd://{address}/vvm"), Refused, &["add user=NAME"]).await;
    is_refused(&url("other"), Refused, &["needs a role"]).await;
    // It may look, and is told before it is to lead that it can't.
    drop(EtcdStorage::open(&url("reader")).await.unwrap());
    let read_only = init_storage(&url("reader")).await.unwrap_err();
    assert!(!read_only.is_passing(), "{read_only}");
    says(&read_only, &["permission denied", "etcdctl role grant-permission ROLE --prefix=true readwrite"]);
    is_refused(&url("nobody"), Refused, &["refuses the login of `nobody`"]).await;
    assert!(!refused(&url("nobody")).await.to_string().contains("secret"));

    // Another password ends the user's tokens.
    let root = post(address, "authenticate", "", r#"{"name":"root","password":"r"}"#);
    let (_, root) = root.split_once(r#""token":""#).unwrap();
    let token = format!("Authorization: {}\r\n", root.split('"').next().unwrap());
    post(address, "user/changepw", &token, r#"{"name":"leader","password":"changed"}"#);
    std::fs::write(&password, "changed\n").unwrap();
    let renewal = renewed(&storage, &at, &held, 2).await;
    assert!(matches!(&renewal, Err(WriteError::NotApplied(_))), "{renewal:?}");
    assert_eq!(renewed(&storage, &at, &held, 2).await.unwrap(), StepOutcome::Applied);
}

fn post(address: SocketAddr, path: &str, header: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    let request = format!("POST /v3/auth/{path} HTTP/1.0\r\n{header}Content-Length: {length}\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains(" 200 "), "{path}: {answer}");
    answer
}
