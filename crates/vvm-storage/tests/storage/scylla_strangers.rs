use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use vvm_storage::{OpenError, scylla::ScyllaStorage};

#[derive(Clone, Copy, Debug)]
struct Stranger {
    waits_for_a_request: bool,
    answer: &'static [u8],
    /// It closes by a reset: as a killed process does, or a proxy without a server.
    resets: bool,
}

impl Stranger {
    fn answering(answer: &'static [u8]) -> Self {
        Self { waits_for_a_request: true, answer, resets: false }
    }

    async fn start(self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                if self.resets {
                    client.set_zero_linger().unwrap();
                }
                if self.waits_for_a_request {
                    let _gone = client.read(&mut [0; 512]).await;
                }
                let _gone = client.write_all(self.answer).await;
            }
        });
        address
    }
}

async fn refused(address: &str, options: &str, parts: &[&str]) -> OpenError {
    let url = format!("scylla://{address}/elections?{options}");
    let error = ScyllaStorage::open(&url).await.expect_err("opened");
    println!("{error}");
    for part in [&[address][..], parts].concat() {
        assert!(error.to_string().contains(part), "`{part}` is not in: {error}");
    }
    error
}

/// Options of TLS with an authority that has signed no server's certificate.
fn tls() -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let authority = folder.path().join("authority.pem");
    std::fs::write(&authority, AUTHORITY).unwrap();
    let options = format!("tls_ca={}", authority.display());
    (folder, options)
}

#[tokio::test]
async fn address_at_which_nothing_answers_is_unreachable() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string();
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    for address in [closed, "nodes.invalid:9042".into(), silent.local_addr().unwrap().to_string()] {
        let error = refused(&address, "", &["start one, or correct the addresses"]).await;
        assert!(error.is_passing(), "{error:?}");
    }
}

#[tokio::test]
async fn answer_of_another_protocol_is_not_cql() {
    for answer in ["HTTP/1.1 400 Bad Request\r\n\r\n", "SSH-2.0-OpenSSH_9.2\r\n"] {
        let address = Stranger::answering(answer.as_bytes()).start().await;
        let says = ["does not answer in CQL: name the port of CQL (9042)"];
        assert!(!refused(&address, "", &says).await.is_passing(), "{answer:?}");
    }
}

/// It may be a node that is starting, so a waiting candidate tries again.
#[tokio::test]
async fn closed_connection_may_pass() {
    let closing = [(false, false), (false, true), (true, false), (true, true)]
        .map(|(waits_for_a_request, resets)| Stranger { waits_for_a_request, answer: b"", resets });
    // The first bytes of an answer to OPTIONS, which a client sends first.
    let within = [Stranger::answering(&[0x84, 0, 0, 0, 6, 0, 0, 0, 60, 0])];
    let (_folder, tls) = tls();
    // A node that requires TLS does so, too.
    let plain = "name the port of CQL (9042); if the nodes use TLS there, add tls_ca=PATH";
    for (strangers, options, way_out) in
        [(&closing[..], "", plain), (&within[..], "", plain), (&closing[..], &*tls, "tls_certificate=PATH")]
    {
        for stranger in strangers {
            let error = refused(&stranger.start().await, options, &["starts or stops", way_out]).await;
            assert!(error.is_passing(), "{stranger:?}: {error}");
        }
    }
}

/// A server whose newest version is 3 answers a request in version 4 with an error in version 3.
#[tokio::test]
async fn too_old_version_of_the_protocol_is_refused() {
    const MESSAGE: &[u8; 61] = b"Invalid or unsupported protocol version: 4; the highest is 3.";
    let answer = [&[0x83, 0, 0, 0, 0, 0, 0, 0, 67, 0, 0, 0, 10, 0, 61], &MESSAGE[..]].concat();
    refused(&Stranger::answering(answer.leak()).start().await, "", &["from 3.0 on"]).await;
}

/// A server without TLS answers the handshake with an error in CQL.
#[tokio::test]
async fn tls_to_a_port_without_tls_is_refused() {
    let (_folder, tls) = tls();
    let server = Stranger::answering(b"\x84\0\0\0\0\0\0\0\x06\0\0\0\x0a\0\0").start().await;
    refused(&server, &tls, &["no TLS with the nodes", "remove the tls_ options"]).await;
}

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
