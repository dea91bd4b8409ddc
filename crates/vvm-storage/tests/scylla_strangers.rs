//! What listens where a cluster was expected, and is none that we can speak to: each is told apart, with what
//! to do.
#![cfg(feature = "scylla")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "clippy knows tests, but not their helpers"
)]

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use vvm_storage::scylla::{OpenError, ScyllaStorage};

/// Where a server listens that answers the first words of everybody so, and hangs up.
async fn stranger(answer: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut guest, _)) = listener.accept().await {
            let mut words = [0; 512];
            if guest.read(&mut words).await.is_ok() {
                // A guest that has gone is as good.
                let _gone = guest.write_all(answer).await;
            }
        }
    });
    address
}

async fn refused(address: &str, options: &str) -> OpenError {
    let url = format!("scylla://{address}/elections?{options}");
    let error = ScyllaStorage::open(&url).await.expect_err("opened");
    println!("{error}");
    assert!(error.to_string().contains(address), "where: {error}");
    error
}

#[tokio::test]
async fn nobody_listens() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let error = refused(&address, "").await;
    assert!(matches!(error, OpenError::Unreachable { .. }), "{error:?}");
    assert!(error.to_string().contains("start one, or mend the addresses"), "{error}");
}

#[tokio::test]
async fn a_name_that_nobody_has() {
    let error = refused("nodes.invalid:9042", "").await;
    assert!(matches!(error, OpenError::Unreachable { .. }), "{error:?}");
}

#[tokio::test]
async fn another_protocol() {
    for answer in ["HTTP/1.1 400 Bad Request\r\n\r\n", "SSH-2.0-OpenSSH_9.2\r\n"] {
        let error = refused(&stranger(answer.as_bytes()).await, "").await;
        assert!(matches!(error, OpenError::NoCql { .. }), "{answer:?}: {error:?}");
        assert!(error.to_string().contains("name the port of CQL (9042)"), "{error}");
        assert!(!vvm_storage::OpenError::from(error).is_passing());
    }
}

/// How somebody hangs up who was called.
#[derive(Clone, Copy, Debug)]
enum HangUp {
    /// Before we have said a word; the connection ends as it should.
    AtOnce,
    /// The same, but the connection is reset: as of a process that is killed, or a proxy with nobody behind
    /// it.
    Reset,
    /// After our first words.
    Heard,
    /// After our first words, by a reset.
    HeardAndReset,
    /// In the middle of an answer.
    InAnAnswer,
}

async fn hangs_up(how: HangUp) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut guest, _)) = listener.accept().await {
            if matches!(how, HangUp::Reset | HangUp::HeardAndReset) {
                guest.set_zero_linger().unwrap();
            }
            if matches!(how, HangUp::Heard | HangUp::HeardAndReset | HangUp::InAnAnswer) {
                let _gone = guest.read(&mut [0; 512]).await;
            }
            if matches!(how, HangUp::InAnAnswer) {
                // Of the options that it has, which are longer than nothing.
                let _gone = guest.write_all(&[0x84, 0, 0, 0, 6, 0, 0, 0, 60, 0]).await;
            }
        }
    });
    address
}

/// It may be a node that is starting: whoever waits for the storage goes on waiting.
#[tokio::test]
async fn one_that_hangs_up_may_be_back_in_a_moment() {
    for how in [HangUp::AtOnce, HangUp::Reset, HangUp::Heard, HangUp::HeardAndReset, HangUp::InAnAnswer] {
        let error = refused(&hangs_up(how).await, "").await;
        assert!(matches!(error, OpenError::HungUp { .. }), "{how:?}: {error:?}");
        assert!(error.to_string().contains("starts or goes down"), "{error}");
        assert!(error.to_string().contains("name the port of CQL (9042)"), "{error}");
        assert!(vvm_storage::OpenError::from(error).is_passing(), "{how:?}");
    }
}

/// The same of one that we speak TLS to.
#[tokio::test]
async fn one_that_hangs_up_at_tls_may_be_back_in_a_moment() {
    let folder = tempfile::tempdir().unwrap();
    let authority = folder.path().join("authority.pem");
    std::fs::write(&authority, AUTHORITY).unwrap();
    for how in [HangUp::AtOnce, HangUp::Reset, HangUp::Heard, HangUp::HeardAndReset] {
        let error = refused(&hangs_up(how).await, &format!("tls_ca={}", authority.display())).await;
        assert!(matches!(error, OpenError::HungUp { .. }), "{how:?}: {error:?}");
        assert!(error.to_string().contains("tls_certificate=PATH"), "{error}");
        assert!(vvm_storage::OpenError::from(error).is_passing(), "{how:?}");
    }
}

/// It takes connections, and never says a word.
#[tokio::test]
async fn silence() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let error = refused(&listener.local_addr().unwrap().to_string(), "").await;
    assert!(matches!(error, OpenError::Unreachable { .. }), "{error:?}");
}

/// The answer of a server whose newest version is 3 to words in version 4: an error in version 3.
#[tokio::test]
async fn a_version_of_the_protocol_that_is_too_old() {
    const WORDS: &[u8; 61] = b"Invalid or unsupported protocol version: 4; the highest is 3.";
    let answer = [&[0x83, 0, 0, 0, 0, 0, 0, 0, 67, 0, 0, 0, 10, 0, 61], &WORDS[..]].concat();
    let error = refused(&stranger(answer.leak()).await, "").await;
    assert!(matches!(error, OpenError::Protocol { .. }), "{error:?}");
    assert!(error.to_string().contains("from 3.0 on"), "{error}");
}

/// A server that speaks no TLS takes our first words for nonsense, and says so in its own language.
#[tokio::test]
async fn tls_to_a_port_of_plain_words() {
    let folder = tempfile::tempdir().unwrap();
    let authority = folder.path().join("authority.pem");
    std::fs::write(&authority, AUTHORITY).unwrap();
    let words = b"\x84\0\0\0\0\0\0\0\x06\0\0\0\x0a\0\0";
    let error = refused(&stranger(words).await, &format!("tls_ca={}", authority.display())).await;
    assert!(matches!(error, OpenError::Tls { .. }), "{error:?}");
    assert!(error.to_string().contains("take out the tls_ options"), "{error}");
}

/// Of nobody who ever signed anything.
const AUTHORITY: &str = "\
-----BEGIN CERTIFICATE-----
MIIBeDCCAR+gAwIBAgIUZYSLRCL1doLDHvXYDOv5jxBaHn0wCgYIKoZIzj0EAwIw
ETEPMA0GA1UEAwwGbm9ib2R5MCAXDTI2MTEyMTEwMjUxNloYDzIxMjYxMDI4MTAy
NTE2WjARMQ8wDQYDVQQDDAZub2JvZHkwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNC
AAS3xw0EQHy3vj+JUzQKFt9rQP6zNzTu8wAN48/L0+feF0LsFIkJORhg+rbghkRb
1jt4o19G/hNQxPOAgBgheNzbo1MwUTAdBgNVHQ4EFgQUa975XKIzDCjXxqAdke0F
XpdcS14wHwYDVR0jBBgwFoAUa975XKIzDCjXxqAdke0FXpdcS14wDwYDVR0TAQH/
BAUwAwEB/zAKBggqhkjOPQQDAgNHADBEAiA9pjcpXflPoXGpl9oKn7W4pyIxiB5P
i0nTZQmW/8J3EgIgOvrTdzHGD8rdDxeWcfK1cTZqNT5BjP4/aVNyO98u7z8=
-----END CERTIFICATE-----
";
