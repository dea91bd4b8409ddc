//! A program on loopback plays the server: real ones give these answers rarely.

use super::*;
use crate::{
    cells::{CellCondition, CellWrite},
    drivers::tests::Scripted,
    key::Partition,
};
use bytes::Bytes;
use ielections::{ReadError, WriteError};
use std::{
    collections::VecDeque,
    fs,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};
use tempfile::NamedTempFile;
use vvm_clock::{Clock as _, SystemClock};

/// An answer, silence if it is empty, the end of the connection.
type Reply = Option<String>;

struct Server {
    scripted: Scripted,
    requests: Arc<Mutex<Vec<String>>>,
    reply: Arc<Mutex<Reply>>,
    /// Before the one above.
    next: Arc<Mutex<VecDeque<Reply>>>,
    token: NamedTempFile,
    config: NamedTempFile,
}

const SILENCE: Reply = Some(String::new());

const HANGS_UP: Reply = None;

const UID: &str = "11111111-1111-1111-1111-111111111111";

fn answer(status: u16, body: &str) -> Reply {
    Some(format!("HTTP/1.1 {status} words\r\ncontent-length: {}\r\n\r\n{body}", body.len()))
}

fn lease() -> Reply {
    let metadata = format!(
        r#"{{"name":"payroll","uid":"{UID}","resourceVersion":"77","annotations":{{"vvm/cell":"{{}}"}}}}"#
    );
    answer(200, &format!(r#"{{"kind":"Lease","metadata":{metadata},"spec":{{"holderIdentity":"h"}}}}"#))
}

fn status(code: u16, reason: &str) -> Reply {
    let details = r#"{"kind":"leases"}"#;
    answer(code, &format!(r#"{{"kind":"Status","message":"words","reason":"{reason}","details":{details}}}"#))
}

impl Server {
    async fn start() -> Self {
        Self::logged_in_by(|token| format!("tokenFile: \"{token}\"")).await
    }

    /// `user` is that of the kubeconfig, and gets the path of a file.
    async fn logged_in_by(user: impl Fn(&str) -> String) -> Self {
        let requests = Arc::<Mutex<Vec<String>>>::default();
        let reply = Arc::new(Mutex::new(status(404, "NotFound")));
        let next = Arc::<Mutex<VecDeque<Reply>>>::default();
        let (seen, says, first) = (Arc::clone(&requests), Arc::clone(&reply), Arc::clone(&next));
        let scripted = Scripted::keeping(move |asked| {
            seen.lock().unwrap().push(asked.head.join("\n") + "\n" + &asked.body);
            first.lock().unwrap().pop_front().unwrap_or_else(|| says.lock().unwrap().clone())
        });
        let scripted = scripted.await;
        let (token, config) = (NamedTempFile::new().unwrap(), NamedTempFile::new().unwrap());
        fs::write(token.path(), "t").unwrap();
        let text = format!(
            "current-context: a\nclusters: [{{name: a, cluster: {{server: \"{}\"}}}}]\n\
             contexts: [{{name: a, context: {{cluster: a, user: a}}}}]\n\
             users: [{{name: a, user: {{{}}}}}]",
            scripted.endpoint,
            user(&token.path().display().to_string())
        );
        fs::write(config.path(), text).unwrap();
        Self { scripted, requests, reply, next, token, config }
    }

    async fn open(&self) -> LeaseStorage {
        let url = format!("k8s://default?kubeconfig={}&request_timeout=1s", self.config.path().display());
        let storage = LeaseStorage::open(&url).await.unwrap();
        self.requests();
        storage
    }

    fn will(&self, reply: Reply) {
        *self.reply.lock().unwrap() = reply;
    }

    fn will_in_turn(&self, replies: impl IntoIterator<Item = Reply>) {
        self.next.lock().unwrap().extend(replies);
    }

    fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.requests.lock().unwrap())
    }
}

fn slot() -> Partition {
    Partition::from_bytes(*b"\x01payroll\0\0\0\x01")
}

/// Writes over what is there. The Lease is one of a setting, so that its value is taken as it is.
async fn swap(server: &Server, reply: Reply) -> Result<CellWrite, WriteError> {
    let storage = server.open().await;
    let setting = Partition::from_bytes(*b"\x02payroll");
    server.will(lease());
    let seen = storage.read(&setting).await.unwrap().unwrap();
    server.requests();
    server.will(reply);
    storage.write(&setting, Bytes::from_static(b"{}"), CellCondition::Tag(seen.tag)).await
}

#[tokio::test]
async fn ambiguous_answers_are_unknown_and_no_write_is_sent_twice() {
    let unknown = [
        status(504, "Timeout"),
        status(500, "InternalError"),
        status(503, "ServiceUnavailable"),
        answer(502, "<html>"),
        answer(409, "<html>"),
        answer(404, "<html>"),
        answer(404, r#"{"kind":"Lease","reason":"NotFound"}"#),
        answer(403, "<html>"),
        answer(400, "{}"),
        answer(302, ""),
        answer(200, "<html>"),
        HANGS_UP,
        SILENCE,
    ];
    for reply in unknown {
        let server = Server::start().await;
        let outcome = swap(&server, reply.clone()).await;
        assert!(matches!(outcome, Err(WriteError::Unknown(_))), "{reply:?}: {outcome:?}");
        assert_eq!(server.requests().len(), 1, "{reply:?}");
    }
}

#[tokio::test]
async fn refusals_are_not_applied_and_not_sent_twice() {
    for (code, reason) in
        [(429, "TooManyRequests"), (401, "Unauthorized"), (403, "Forbidden"), (409, "StorageError")]
    {
        let server = Server::start().await;
        let outcome = swap(&server, status(code, reason)).await;
        assert!(matches!(outcome, Err(WriteError::NotApplied(_))), "{code}: {outcome:?}");
        assert_eq!(server.requests().len(), 1, "{code}");
    }
    for (code, reason) in [(422, "Invalid"), (413, "RequestEntityTooLarge")] {
        let server = Server::start().await;
        let outcome = swap(&server, status(code, reason)).await;
        assert!(matches!(outcome, Err(WriteError::Fatal(_))), "{code}: {outcome:?}");
        assert_eq!(server.requests().len(), 1, "{code}");
    }
    let no_namespace = r#"{"kind":"Status","reason":"NotFound","details":{"kind":"namespaces"}}"#;
    let outcome = swap(&Server::start().await, answer(404, no_namespace)).await;
    assert!(matches!(outcome, Err(WriteError::Fatal(_))), "{outcome:?}");
}

/// The certificate of a connection, or the token that was read, may have expired.
#[tokio::test]
async fn request_after_a_refused_login_has_its_own_connection_and_reads_the_token_again() {
    let server = Server::start().await;
    let storage = server.open().await;
    fs::write(server.token.path(), "renewed").unwrap();
    for (code, reason, connections, token) in [
        (403, "Forbidden", 1, "t"),
        (401, "Unauthorized", 1, "t"),
        (401, "Unauthorized", 2, "renewed"),
        (404, "NotFound", 3, "renewed"),
    ] {
        server.will(status(code, reason));
        let _answer = storage.read(&slot()).await;
        assert_eq!(server.scripted.connected(), connections, "{code}");
        let asked = server.requests().remove(0);
        assert!(asked.contains(&format!("authorization: Bearer {token}\n")), "{code}: {asked}");
    }
}

#[tokio::test]
async fn request_after_one_without_an_answer_takes_no_connection_from_before() {
    let server = Server::start().await;
    let (storage, at) = (server.open().await, slot());
    let _open = tokio::join!(storage.read(&at), storage.read(&at), storage.read(&at));
    let before = server.scripted.connected();
    assert_eq!(before, 3);
    server.requests();
    server.will_in_turn([SILENCE]);
    let is_sent = async {
        while server.requests().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        read = storage.read(&at) => panic!("{read:?}"),
        () = is_sent => {}
    }
    storage.read(&at).await.unwrap();
    assert_eq!(server.scripted.connected(), before + 1);
}

/// (I10) Its first credential is valid for two seconds, and then it hangs.
#[tokio::test]
async fn request_waits_for_a_login_plug_in_no_longer_than_for_a_connection() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("login");
    let text = r#"cd "$(dirname "$0")" || exit 1
if [ -e ran ]; then echo $$ > hangs; sleep 1000; fi
touch ran
echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"t",'
echo "\"expirationTimestamp\":\"$(date -u -d '+2 seconds' +%FT%TZ)\"}}"
"#;
    fs::write(&script, text).unwrap();
    let command = script.display();
    let user =
        format!("exec: {{apiVersion: client.authentication.k8s.io/v1, command: sh, args: [\"{command}\"]}}");
    let server = Server::logged_in_by(|_| user.clone()).await;
    let storage = server.open().await;
    storage.read(&slot()).await.unwrap();
    assert!(server.requests()[0].contains("authorization: Bearer t\n"));
    let error = loop {
        if let Err(error) = storage.read(&slot()).await {
            break error;
        }
    };
    let is_plug_in = |why: &str| why.contains("login plug-in sh") && why.contains("within 500ms");
    assert!(matches!(&error, ReadError::Unavailable(why) if is_plug_in(&why.to_string())), "{error:?}");
    server.requests();
    let write = storage.write(&slot(), Bytes::from_static(b"{}"), CellCondition::Absent).await;
    assert!(matches!(write, Err(WriteError::NotApplied(_))), "{write:?}");
    assert!(server.requests().is_empty());
    let process = fs::read_to_string(folder.path().join("hangs")).unwrap();
    storage.close().await;
    assert!(!Path::new("/proc").join(process.trim()).exists(), "it outlives the handle");
}

/// A table has the names and no documents. The Leases that a digest names are read.
#[tokio::test]
async fn slot_counts_are_listed_by_the_names_of_their_leases() {
    let server = Server::start().await;
    let storage = server.open().await;
    let odd = format!("vvm.{}", "a".repeat(64));
    let row = |name: &str| format!(r#"{{"cells":["{name}","","5m"],"object":null}}"#);
    let page = |token: &str, names: &[&str]| {
        let rows = names.iter().map(|name| row(name)).collect::<Vec<_>>().join(",");
        answer(200, &format!(r#"{{"kind":"Table","metadata":{{"continue":"{token}"}},"rows":[{rows}]}}"#))
    };
    server.will_in_turn([
        page("next", &["payroll", "payroll.slots", &odd]),
        answer(200, r#"{"metadata":{"annotations":{"vvm/cell":"{\"vvm_format\":9,\"key\":\"0241\"}\n"}}}"#),
        page("", &["a.slots", "payroll.pause"]),
    ]);
    let listed = storage.settings().await.unwrap().unwrap();
    let expected = [&b"\x02A"[..], b"\x02a", b"\x02payroll"];
    assert_eq!(listed, expected.map(|key| Partition::from_bytes(key.to_vec())));
    let requests = server.requests();
    assert!(
        requests[0].contains("leases?labelSelector=vvm/name&includeObject=None&limit=500 HTTP"),
        "{requests:?}"
    );
    assert!(requests[0].contains("as=Table"), "{requests:?}");
    assert!(requests[1].contains(&format!("/{odd}?resourceVersion=0 HTTP")), "{requests:?}");
    assert!(requests[2].contains("limit=500&continue=next HTTP"), "{requests:?}");
    // The words of no API server are no empty list.
    server.will(answer(200, "{}"));
    storage.settings().await.unwrap_err();
}

#[tokio::test]
async fn clusters_behind_one_proxy_are_told_apart_by_their_paths() {
    let server = Server::start().await;
    let (config, proxy) = (server.config.path().display(), &server.scripted.endpoint);
    let url = format!("k8s://default?kubeconfig={config}&server={proxy}/b/");
    let storage = LeaseStorage::open(&url).await.unwrap();
    assert_eq!(storage.opened().unwrap().location, format!("namespace default of {proxy}/b"));
    let asked = server.requests().remove(0);
    let host = format!("host: {}\n", proxy.trim_start_matches("http://"));
    assert!(asked.starts_with("GET /b/apis/") && asked.contains(&host), "{asked}");
}

#[tokio::test]
async fn held_lease_that_is_gone_is_replaced() {
    let server = Server::start().await;
    let outcome = swap(&server, status(404, "NotFound")).await;
    assert!(matches!(outcome, Err(WriteError::Replaced(_))), "{outcome:?}");
}

#[tokio::test]
async fn swap_names_version_and_object_and_creation_names_none() {
    let server = Server::start().await;
    swap(&server, lease()).await.unwrap();
    let put = server.requests().remove(0);
    assert!(put.starts_with("PUT /apis/coordination.k8s.io/v1/namespaces/default/leases/payroll.slots HTTP"));
    assert!(put.contains("authorization: Bearer t\n"), "{put}");
    for part in [r#""resourceVersion":"77""#, &format!(r#""uid":"{UID}""#)] {
        assert!(put.contains(part), "{part}: {put}");
    }
    let storage = server.open().await;
    server.will(status(409, "AlreadyExists"));
    let created = storage.write(&slot(), Bytes::from_static(b"{}"), CellCondition::Absent).await.unwrap();
    assert_eq!(created, CellWrite::Refused);
    let post = server.requests().remove(0);
    assert!(post.starts_with("POST /apis/coordination.k8s.io/v1/namespaces/default/leases HTTP"), "{post}");
    assert!(!post.contains("resourceVersion") && !post.contains("uid"), "{post}");
}

#[tokio::test]
async fn only_peek_is_answered_from_the_memory_of_the_server() {
    let server = Server::start().await;
    let storage = server.open().await;
    assert_eq!(storage.read(&slot()).await.unwrap(), None);
    assert_eq!(storage.peek(&slot()).await.unwrap(), None);
    let requests = server.requests();
    assert!(
        requests[0].starts_with("GET /apis/coordination.k8s.io/v1/namespaces/default/leases/payroll HTTP")
    );
    assert!(requests[1].contains("/leases/payroll?resourceVersion=0 HTTP"), "{requests:?}");
    assert_eq!(server.scripted.connected(), 1, "a connection for each request");
}

#[tokio::test]
async fn end_of_a_watch_is_a_hint_and_watching_begins_again_a_second_later() {
    let server = Server::start().await;
    let storage = server.open().await;
    let hints = storage.hints().unwrap();
    let topic = Partition::from_bytes(*b"\x02payroll");
    let change =
        r#"{"type":"MODIFIED","object":{"metadata":{"name":"payroll"},"spec":{"holderIdentity":""}}}"#;
    server.will(answer(200, &format!("{change}\n")));
    let began = SystemClock::read();
    // It watches; the release; the end; it watches again.
    for _ in 0..4 {
        hints.hinted(&topic).await;
    }
    assert!(SystemClock::read().since(began) >= Duration::from_secs(1));
    let requests = server.requests();
    assert_eq!(requests.len(), 2);
    assert!(requests[0].contains("/leases?watch=1&labelSelector=vvm/name%3Dpayroll HTTP"), "{requests:?}");
}

#[tokio::test]
async fn watch_that_no_role_allows_is_denied() {
    let server = Server::start().await;
    let storage = server.open().await;
    server.will(answer(403, "{\"kind\":\"Status\",\"reason\":\"Forbidden\"}\n"));
    let topic = Partition::from_bytes(*b"\x02payroll");
    assert_eq!(storage.watch(&topic).await.err(), Some(NotWatched::Denied));
}

/// (I10) The words of the refusal never arrive.
#[tokio::test]
async fn watch_whose_login_is_refused_begins_again_in_time_and_reads_the_token_again() {
    let server = Server::start().await;
    let storage = server.open().await;
    fs::write(server.token.path(), "renewed").unwrap();
    server.will_in_turn([Some("HTTP/1.1 401 words\r\ncontent-length: 9\r\n\r\n".into()), answer(200, "")]);
    let topic = Partition::from_bytes(*b"\x02payroll");
    tokio::select! {
        () = storage.hinted(&topic) => {}
        () = storage.clock().sleep(Duration::from_secs(60)) => panic!("a refusal is waited for without a limit"),
    }
    let requests = server.requests();
    assert!(requests[0].contains("authorization: Bearer t\n"), "{requests:?}");
    assert!(requests[1].contains("authorization: Bearer renewed\n"), "{requests:?}");
}

#[tokio::test]
async fn answer_of_no_api_server_is_no_absence() {
    let server = Server::start().await;
    let storage = server.open().await;
    for body in ["", "<html>", "{}"] {
        server.will(answer(404, body));
        storage.read(&slot()).await.unwrap_err();
        server.will(answer(200, body));
        // An empty object is a Lease without our annotations, and no vacancy of a slot.
        let read = storage.read(&Partition::from_bytes(*b"\x02payroll")).await;
        read.unwrap_err();
    }
}

fn response(status: u16, body: &str) -> Response {
    Response { status, body: body.to_owned().into() }
}

fn status_response(code: u16, reason: &str, kind: &str) -> Response {
    let body =
        format!(r#"{{"kind":"Status","message":"words","reason":"{reason}","details":{{"kind":"{kind}"}}}}"#);
    response(code, &body)
}

#[test]
fn denial_ends_an_opening_and_is_tried_again_later() {
    for (code, reason, part) in [(401, "Unauthorized", "renew the token"), (403, "Forbidden", "bind a Role")]
    {
        let denied = || DriverError::from_response(&status_response(code, reason, "leases"));
        let error = denied().into_open_error("https://a");
        assert!(!error.is_passing() && error.to_string().contains(part), "{code}: {error:?}");
        let error = denied().into_read_error();
        assert!(matches!(&error, ReadError::Unavailable(cause) if cause.to_string().contains(part)));
    }
    // A file of the login that is being replaced.
    let error = DriverError::from(OpenError::refused("the token can't be used")).into_write_error();
    assert!(matches!(error, WriteError::NotApplied(_)), "{error:?}");
}
