//! Opening an address where no usable cluster answers: each refusal names the cause and what to do.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use vvm_storage::{OpenError, scylla::ScyllaStorage};

/// Starts a server that sends `answer` to the first request of each connection and closes it. Returns its
/// address.
async fn stranger(answer: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut request = [0; 512];
            if client.read(&mut request).await.is_ok() {
                let _gone = client.write_all(answer).await;
            }
        }
    });
    address
}

async fn refused(address: &str, options: &str) -> OpenError {
    let url = format!("scylla://{address}/elections?{options}");
    let error = ScyllaStorage::open(&url).await.expect_err("opened");
    println!("{error}");
    assert!(error.to_string().contains(address), "without the address: {error}");
    error
}

#[track_caller]
fn is_unreachable(error: &OpenError) {
    assert!(error.to_string().contains("start one, or correct the addresses"), "{error}");
    assert!(error.is_passing(), "{error:?}");
}

#[tokio::test]
async fn refused_connection_is_unreachable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let error = refused(&address, "").await;
    is_unreachable(&error);
}

#[tokio::test]
async fn unknown_host_name_is_unreachable() {
    let error = refused("nodes.invalid:9042", "").await;
    is_unreachable(&error);
}

#[tokio::test]
async fn answer_of_another_protocol_is_not_cql() {
    for answer in ["HTTP/1.1 400 Bad Request\r\n\r\n", "SSH-2.0-OpenSSH_9.2\r\n"] {
        let error = refused(&stranger(answer.as_bytes()).await, "").await;
        assert!(error.to_string().contains("does not answer in CQL: name the port of CQL (9042)"), "{error}");
        assert!(!error.is_passing(), "{answer:?}: {error}");
    }
}

/// How the server closes a connection.
#[derive(Clone, Copy, Debug)]
enum HangUp {
    /// Before the first request, in order.
    AtOnce,
    /// Before the first request, by a reset: as a killed process does, or a proxy without a server.
    ResetAtOnce,
    /// After the first request.
    AfterRequest,
    /// After the first request, by a reset.
    ResetAfterRequest,
    /// Within an answer.
    InAnAnswer,
}

async fn hangs_up(how: HangUp) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            if matches!(how, HangUp::ResetAtOnce | HangUp::ResetAfterRequest) {
                client.set_zero_linger().unwrap();
            }
            if matches!(how, HangUp::AfterRequest | HangUp::ResetAfterRequest | HangUp::InAnAnswer) {
                let _gone = client.read(&mut [0; 512]).await;
            }
            if matches!(how, HangUp::InAnAnswer) {
                // The first bytes of an answer to OPTIONS, which a client sends first.
                let _gone = client.write_all(&[0x84, 0, 0, 0, 6, 0, 0, 0, 60, 0]).await;
            }
        }
    });
    address
}

/// It may be a node that is starting, so a waiting candidate tries again.
#[tokio::test]
async fn closed_connection_may_pass() {
    for how in [
        HangUp::AtOnce,
        HangUp::ResetAtOnce,
        HangUp::AfterRequest,
        HangUp::ResetAfterRequest,
        HangUp::InAnAnswer,
    ] {
        let error = refused(&hangs_up(how).await, "").await;
        assert!(error.to_string().contains("starts or stops"), "{error}");
        // A node that requires TLS does so, too.
        let way_out = "name the port of CQL (9042); if the nodes use TLS there, add tls_ca=PATH";
        assert!(error.to_string().contains(way_out), "{error}");
        assert!(error.is_passing(), "{how:?}: {error}");
    }
}

#[tokio::test]
async fn closed_connection_with_tls_may_pass() {
    let folder = tempfile::tempdir().unwrap();
    let authority = folder.path().join("authority.pem");
    std::fs::write(&authority, AUTHORITY).unwrap();
    for how in [HangUp::AtOnce, HangUp::ResetAtOnce, HangUp::AfterRequest, HangUp::ResetAfterRequest] {
        let error = refused(&hangs_up(how).await, &format!("tls_ca={}", authority.display())).await;
        assert!(error.to_string().contains("starts or stops"), "{error}");
        assert!(error.to_string().contains("tls_certificate=PATH"), "{error}");
        assert!(error.is_passing(), "{how:?}: {error}");
    }
}

/// The server accepts connections and never answers.
#[tokio::test]
async fn silent_server_is_unreachable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let error = refused(&listener.local_addr().unwrap().to_string(), "").await;
    is_unreachable(&error);
}

/// A server whose newest version is 3 answers a request in version 4 with an error in version 3.
#[tokio::test]
async fn too_old_version_of_the_protocol_is_refused() {
    const MESSAGE: &[u8; 61] = b"Invalid or unsupported protocol version: 4; the highest is 3.";
    let answer = [&[0x83, 0, 0, 0, 0, 0, 0, 0, 67, 0, 0, 0, 10, 0, 61], &MESSAGE[..]].concat();
    let error = refused(&stranger(answer.leak()).await, "").await;
    assert!(error.to_string().contains("from 3.0 on"), "{error}");
}

/// A server without TLS answers the handshake with an error in CQL.
#[tokio::test]
async fn tls_to_a_port_without_tls_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let authority = folder.path().join("authority.pem");
    std::fs::write(&authority, AUTHORITY).unwrap();
    let answer = b"\x84\0\0\0\0\0\0\0\x06\0\0\0\x0a\0\0";
    let error = refused(&stranger(answer).await, &format!("tls_ca={}", authority.display())).await;
    assert!(error.to_string().starts_with("no TLS with the nodes"), "{error}");
    assert!(error.to_string().contains("remove the tls_ options"), "{error}");
}

/// The certificate of an authority that has signed no server's certificate.
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
