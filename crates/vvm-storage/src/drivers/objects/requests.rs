//! [`Requests`]: one GET or one conditional PUT, sent once.

use super::{
    DriverError, Response,
    config::Platform,
    connection::{RequestOutcome, Requests, Trace},
};
use crate::{
    cells::{Cell, CellCondition, CellWrite, Tag},
    drivers::errors::chain,
    key::Partition,
};
use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::{
    Attribute, Attributes, Extensions, GetOptions, ObjectStore, PutMode, PutOptions, UpdateVersion,
    path::Path,
};
use std::sync::Arc;
use vvm_clock::{Clock as _, DisplayDuration};

/// More objects are not listed: ten requests. A name with one slot has two to five objects.
const MAX_LISTED_OBJECTS: usize = 10_000;

#[derive(Debug)]
pub(super) struct ReadAnswer {
    pub(super) cell: Option<Cell>,
    pub(super) answer: Response,
}

/// More than any cell has. Another program may have written the object.
const MAX_OBJECT_BYTES: u64 = 32 << 20;

impl Requests {
    pub(super) async fn get(&self, name: &Path) -> Result<ReadAnswer, DriverError> {
        let trace = Trace::default();
        let options = GetOptions { extensions: extensions(&trace), ..GetOptions::default() };
        let store = self.store.current();
        let request = async {
            let got = store.get_opts(name, options).await?;
            if got.meta.size > MAX_OBJECT_BYTES {
                let source =
                    format!("it has {} bytes, and no cell has more than {MAX_OBJECT_BYTES}", got.meta.size);
                return Err(object_store::Error::Generic { store: "object", source: source.into() });
            }
            let tag = self.tag(got.meta.e_tag.clone(), got.meta.version.clone());
            Ok((got.bytes().await?, tag))
        };
        let outcome = self.within_time(request).await;
        match (outcome, self.fate(&trace, &store)) {
            (Ok((value, Some(tag))), RequestOutcome::Answered(answer)) => {
                Ok(ReadAnswer { cell: Some(Cell { value, tag }), answer })
            }
            (Err(_), RequestOutcome::Answered(answer)) if answer.is_absent() => {
                Ok(ReadAnswer { cell: None, answer })
            }
            // The rest of the answer is missing, or it has no tag.
            (Err(said), RequestOutcome::Answered(answer)) if answer.is_success() => {
                Err(DriverError::Unanswered(said))
            }
            (_, RequestOutcome::Answered(answer)) => Err(answer.failure()),
            (outcome, fate) => Err(unanswered(outcome.err(), &fate)),
        }
    }

    pub(super) async fn list(&self) -> Result<Vec<Partition>, DriverError> {
        let listed = self.store.current().list(Some(&self.names.folder())).take(MAX_LISTED_OBJECTS + 1);
        match self.within_time(listed.try_collect::<Vec<_>>()).await {
            Ok(found) if found.len() > MAX_LISTED_OBJECTS => Err(DriverError::Unanswered(format!(
                "the prefix has more than {MAX_LISTED_OBJECTS} objects to list"
            ))),
            Ok(found) => Ok(found.iter().filter_map(|object| self.names.key(&object.location)).collect()),
            Err(said) => {
                Err(DriverError::Unanswered(format!("can't list the bucket (s3:ListBucket): {said}")))
            }
        }
    }

    /// Replaces an object by `value` if it is in the state `expected`. Dropped, the write may be applied, now or later.
    pub(super) async fn put(
        &self,
        name: &Path,
        value: Bytes,
        expected: &CellCondition,
    ) -> Result<CellWrite, DriverError> {
        self.put_with_response(name, value, expected).await.0
    }

    pub(super) async fn put_with_response(
        &self,
        name: &Path,
        value: Bytes,
        expected: &CellCondition,
    ) -> (Result<CellWrite, DriverError>, Option<Response>) {
        let trace = Trace::default();
        // Google's servers cache an object that everyone may read for an hour, unless it says this.
        let attributes = Attributes::from_iter([(Attribute::CacheControl, "no-store")]);
        let options = PutOptions {
            mode: self.mode(expected),
            attributes,
            extensions: extensions(&trace),
            ..PutOptions::default()
        };
        let store = self.store.current();
        let request = async {
            let put = store.put_opts(name, value.into(), options).await?;
            Ok(self.tag(put.e_tag, put.version))
        };
        let outcome = self.within_time(request).await;
        let fate = self.fate(&trace, &store);
        let answer = if let RequestOutcome::Answered(answer) = &fate { Some(answer.clone()) } else { None };
        let written = match (outcome, fate) {
            (Ok(Some(tag)), RequestOutcome::Answered(_)) if *expected == CellCondition::Tag(tag.clone()) => {
                // Of another answer, of a cache for example: each content has a tag of its own (I7).
                Err(DriverError::Unanswered("an answer with the tag that was to be replaced".into()))
            }
            (Ok(Some(tag)), RequestOutcome::Answered(_)) => Ok(CellWrite::Written(Some(tag))),
            (_, RequestOutcome::Answered(answer)) if answer.is_refusal() => Ok(CellWrite::Refused),
            (_, RequestOutcome::Answered(answer)) => Err(answer.failure()),
            (outcome, fate) => Err(unanswered(outcome.err(), &fate)),
        };
        (written, answer)
    }

    fn fate(&self, trace: &Trace, store: &Arc<dyn ObjectStore>) -> RequestOutcome {
        let fate = trace.fate();
        if matches!(&fate, RequestOutcome::Answered(answer) if answer.refuses_credentials()) {
            self.store.replace(store);
        }
        fate
    }

    /// Drops `request` after the time limit. Its trace says whether it may have been sent (I7).
    async fn within_time<T>(
        &self,
        request: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T, String> {
        tokio::select! {
            biased;
            outcome = request => outcome.map_err(|error| {
                let words: Vec<_> = chain(&error).map(ToString::to_string).collect();
                words.last().cloned().unwrap_or_default()
            }),
            () = self.clock.sleep(self.timeout) => Err(format!("no answer within {}", DisplayDuration(self.timeout))),
        }
    }

    fn mode(&self, expected: &CellCondition) -> PutMode {
        match expected {
            CellCondition::Absent => PutMode::Create,
            CellCondition::Tag(tag) => {
                let tag = Some(String::from_utf8_lossy(tag.as_bytes()).into_owned());
                PutMode::Update(match self.platform {
                    Platform::Google => UpdateVersion { e_tag: None, version: tag },
                    Platform::S3 | Platform::Azure => UpdateVersion { e_tag: tag, version: None },
                })
            }
        }
    }

    fn tag(&self, e_tag: Option<String>, version: Option<String>) -> Option<Tag> {
        let tag = match self.platform {
            Platform::Google => version,
            Platform::S3 | Platform::Azure => e_tag,
        };
        tag.map(|tag| Tag::new(tag.into_bytes()))
    }

    pub(super) fn wrong_tag(&self) -> Tag {
        let text: &[u8] = match self.platform {
            Platform::S3 => b"\"00000000000000000000000000000000\"",
            Platform::Google => b"1",
            Platform::Azure => b"\"0x8000000000000000\"",
        };
        Tag::new(text)
    }
}

pub(super) fn extensions(trace: &Trace) -> Extensions {
    let mut extensions = Extensions::new();
    extensions.insert(trace.clone());
    extensions
}

fn unanswered(said: Option<String>, fate: &RequestOutcome) -> DriverError {
    let said = said.unwrap_or_else(|| "an answer without a request".into());
    if *fate == RequestOutcome::NotSent { DriverError::NotSent(said) } else { DriverError::Unanswered(said) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drivers::{
        errors::kinds,
        objects::{config::Address, connection},
        tests::{self as scripted, Scripted},
    };
    use std::{net::TcpListener, sync::Mutex};
    use vvm_clock::SystemClock;

    async fn server(answer: Option<String>) -> Scripted {
        Scripted::start(move |_| answer.clone()).await
    }

    fn answer(status: u16, headers: &str, body: &str) -> Option<String> {
        Some(scripted::answer(status, headers, body))
    }

    fn error(status: u16, code: &str) -> Option<String> {
        answer(status, "", &format!("<Error><Code>{code}</Code></Error>"))
    }

    /// Connections to `endpoint`, with credentials of this test: the environment's are not used.
    fn requests(endpoint: &str, options: &str) -> Requests {
        let address =
            Address::parse(&format!("s3://bucket/prefix?endpoint={endpoint}&request_timeout=1s{options}"));
        let keys = [("aws_access_key_id", "key"), ("aws_secret_access_key", "secret")];
        connection::connect_with(&address.unwrap(), |name| {
            keys.iter()
                .find(|(known, _)| known.eq_ignore_ascii_case(name))
                .map(|(_, value)| (*value).to_owned())
        })
        .unwrap()
    }

    fn name() -> Path {
        Path::from("prefix/a.cell")
    }

    async fn put(requests: &Requests, expected: &CellCondition) -> Result<CellWrite, DriverError> {
        requests.put(&name(), Bytes::from_static(b"value"), expected).await
    }

    #[tokio::test]
    async fn cells_are_listed_and_a_denial_names_the_right() {
        let keys = [&b"\x02payroll"[..], &[b'n'; 200], b"\x01payroll\0\0\0\x01"].map(Partition::from_bytes);
        let names = requests("http://localhost:1", "").names;
        let cells = keys.iter().map(|key| names.cell(key).to_string());
        let objects = cells.chain(["prefix/initialised".into(), "prefix/probe/a".into()]).map(|name| {
            format!(
                "<Contents><Key>{name}</Key><LastModified>2026-11-27T00:00:00.000Z</LastModified>\
             <ETag>\"e\"</ETag><Size>1</Size></Contents>"
            )
        });
        let body = format!(
            "<ListBucketResult><IsTruncated>false</IsTruncated>{}</ListBucketResult>",
            objects.collect::<String>()
        );
        let lists = server(answer(200, "", &body)).await;
        assert_eq!(requests(&lists.endpoint, "").list().await.unwrap(), keys);
        let denies = server(error(403, "AccessDenied")).await;
        let refusal = requests(&denies.endpoint, "").list().await.unwrap_err().to_string();
        assert!(refusal.contains("s3:ListBucket"), "{refusal}");
    }

    #[tokio::test]
    async fn write_is_sent_once_and_mapped_by_its_answer() {
        let says = Arc::new(Mutex::new(None::<String>));
        let script = Arc::clone(&says);
        let server = Scripted::start(move |_| script.lock().unwrap().clone()).await;
        let requests = requests(&server.endpoint, "");
        let written = async |answer: Option<String>, expected: CellCondition| {
            let served = server.served();
            says.lock().unwrap().clone_from(&answer);
            let written = put(&requests, &expected).await;
            assert_eq!(server.served(), served + 1, "{answer:?}");
            match written {
                Ok(CellWrite::Written(Some(tag))) if tag == Tag::new(*b"\"new\"") => "written",
                Ok(CellWrite::Refused) => "refused",
                Ok(other) => panic!("{answer:?}: {other:?}"),
                Err(failure) => kinds::of_write(&failure.into_write_error()),
            }
        };
        let tag = || CellCondition::Tag(Tag::new(*b"\"tag\""));
        for (answer, outcome) in [
            (answer(200, "ETag: \"new\"\r\n", ""), "written"),
            (answer(200, "", ""), "Unknown"),
            (answer(200, "ETag: \"tag\"\r\n", ""), "Unknown"),
            (None, "Unknown"),
        ] {
            assert_eq!(written(answer.clone(), tag()).await, outcome, "{answer:?}");
        }
        for (status, code, outcome) in [
            (412, "PreconditionFailed", "refused"),
            (412, "", "refused"),
            (404, "NoSuchKey", "refused"),
            (404, "BlobNotFound", "refused"),
            (409, "BlobAlreadyExists", "refused"),
            (404, "NoSuchBucket", "Replaced"),
            (404, "ContainerNotFound", "Replaced"),
            (404, "", "Unknown"),
            (403, "", "Unknown"),
            (409, "ConditionalRequestConflict", "NotApplied"),
            (429, "SlowDown", "NotApplied"),
            (408, "", "Unknown"),
            (400, "RequestTimeout", "Unknown"),
            (400, "InvalidRequest", "Fatal"),
            (400, "ExpiredToken", "NotApplied"),
            (400, "InvalidToken", "NotApplied"),
            (401, "", "NotApplied"),
            (403, "AccessDenied", "NotApplied"),
            (403, "RequestTimeTooSkewed", "NotApplied"),
            (500, "InternalError", "Unknown"),
            (501, "NotImplemented", "Unknown"),
            (503, "SlowDown", "Unknown"),
        ] {
            for expected in [tag(), CellCondition::Absent] {
                assert_eq!(written(error(status, code), expected).await, outcome, "{status} {code}");
            }
        }
    }

    #[tokio::test]
    async fn server_whose_conditions_are_known_to_race_is_recognised_by_its_answer() {
        let (tag, size, id) = ("ETag: \"new\"\r\n", "x-amz-object-size: 5\r\n", "x-amz-request-id: 1\r\n");
        for (headers, known) in [
            ([tag, size, ""], Some("S3Mock")),
            ([tag, size, id], None),
            ([tag, "", id], None),
            ([tag, "", ""], None),
        ] {
            let server = server(answer(200, &headers.concat(), "")).await;
            let requests = requests(&server.endpoint, "");
            let (name, value) = (name(), Bytes::from_static(b"value"));
            let (written, answer) = requests.put_with_response(&name, value, &CellCondition::Absent).await;
            assert!(matches!(written, Ok(CellWrite::Written(_))), "{written:?}");
            assert_eq!(answer.unwrap().known_to_race(), known, "{headers:?}");
            assert_eq!(server.served(), 1);
        }
    }

    #[tokio::test]
    async fn no_redirect_is_followed() {
        for (status, outcome) in [(301, "Err(Refused("), (303, "Err(Unanswered("), (307, "Err(Refused(")] {
            let target = TcpListener::bind("127.0.0.1:0").unwrap();
            let location = format!("Location: http://{}/\r\n", target.local_addr().unwrap());
            let server = server(answer(status, &location, "")).await;
            let found = format!("{:?}", put(&requests(&server.endpoint, ""), &CellCondition::Absent).await);
            assert!(found.starts_with(outcome) && found.contains(&status.to_string()), "{status}: {found}");
            assert_eq!(server.served(), 1);
            target.set_nonblocking(true).unwrap();
            assert!(target.accept().is_err(), "{status} was followed");
        }
    }

    #[tokio::test]
    async fn only_a_named_object_is_absent() {
        for (answer, outcome) in [
            (error(404, "NoSuchKey"), "Ok(None)"),
            (error(404, "NoSuchBucket"), "Err(NoBucket("),
            (error(403, "NoSuchKey"), "Err(Denied("),
            (answer(404, "", "not found"), "Err(NotOfStore("),
            (None, "Err(Unanswered("),
            // The answer breaks off.
            (
                Some(
                    "HTTP/1.1 200 OK\r\nETag: \"a\"\r\nLast-Modified: Sun, 22 Nov 2026 00:00:00 GMT\r\n\
                  Content-Length: 9\r\n\r\nval"
                        .into(),
                ),
                "Err(Unanswered(",
            ),
        ] {
            let server = server(answer.clone()).await;
            let got = requests(&server.endpoint, "").get(&name()).await.map(|got| got.cell);
            let found = format!("{got:?}");
            assert!(found.starts_with(outcome), "{answer:?}: {found}");
            assert_eq!(server.served(), 1, "{answer:?}");
        }
    }

    #[tokio::test]
    async fn write_without_a_connection_is_not_applied() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        drop(listener);
        let outcome = put(&requests(&endpoint, ""), &CellCondition::Absent).await;
        assert!(matches!(outcome, Err(DriverError::NotSent(_))), "{outcome:?}");
    }

    #[tokio::test]
    async fn request_after_one_without_an_answer_takes_no_connection_from_before() {
        let is_silent = Arc::new(Mutex::new(false));
        let next = Arc::clone(&is_silent);
        let server = Scripted::keeping(move |_| {
            let body = "<Error><Code>NoSuchKey</Code></Error>";
            let absent = || format!("HTTP/1.1 404 words\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            Some(if std::mem::take(&mut *next.lock().unwrap()) { String::new() } else { absent() })
        });
        let server = server.await;
        let (requests, name) = (requests(&server.endpoint, ""), name());
        let _open = tokio::join!(requests.get(&name), requests.get(&name), requests.get(&name));
        let before = (server.connected(), server.served());
        assert_eq!(before, (3, 3));
        *is_silent.lock().unwrap() = true;
        let is_sent = async {
            while server.served() == before.1 {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            got = requests.get(&name) => panic!("{got:?}"),
            () = is_sent => {}
        }
        requests.get(&name).await.unwrap();
        assert_eq!(server.connected(), before.0 + 1);
    }

    fn requests_by(credentials: &Scripted, endpoint: &str) -> Requests {
        let address = Address::parse(&format!("s3://bucket/prefix?endpoint={endpoint}")).unwrap();
        connection::connect_with(&address, |name| {
            (name == "AWS_CONTAINER_CREDENTIALS_FULL_URI")
                .then(|| credentials.endpoint.clone())
                .or_else(|| (name == "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE").then(|| "/dev/null".into()))
        })
        .unwrap()
    }

    #[tokio::test]
    async fn credentials_are_fetched_anew_after_they_were_refused_and_no_sooner() {
        let fetched = Arc::new(Mutex::new(0));
        let credentials = Scripted::start(move |_| {
            let mut fetched = fetched.lock().unwrap();
            *fetched += 1;
            let token = r#""SecretAccessKey":"s","Token":"t","Expiration":"3026-01-01T00:00:00Z""#;
            answer(200, "", &format!(r#"{{"AccessKeyId":"key-{fetched}",{token}}}"#))
        });
        let credentials = credentials.await;
        let objects = Scripted::start(|asked| {
            let is_first = asked.header("authorization").unwrap().contains("key-1/");
            if is_first { error(400, "ExpiredToken") } else { error(404, "NoSuchKey") }
        });
        let objects = objects.await;
        let requests = requests_by(&credentials, &objects.endpoint);
        let refused = requests.get(&name()).await;
        assert!(matches!(refused, Err(DriverError::Denied(_))), "{refused:?}");
        for _ in 0..2 {
            assert!(requests.get(&name()).await.unwrap().cell.is_none());
        }
        assert_eq!((credentials.served(), objects.served()), (2, 3));
    }

    #[tokio::test]
    async fn last_credentials_serve_while_their_issuer_is_away_or_silent() {
        for fails in [answer(500, "", ""), Some(String::new())] {
            let fetched = Arc::new(Mutex::new(0));
            let credentials = Scripted::keeping(move |_| {
                let mut fetched = fetched.lock().unwrap();
                *fetched += 1;
                // Long expired, so that the library asks for new ones before each request.
                let issued = r#"{"AccessKeyId":"k","SecretAccessKey":"s","Token":"t","Expiration":"2026-01-01T00:00:00Z"}"#;
                if *fetched == 1 { answer(200, "", issued) } else { fails.clone() }
            });
            let credentials = credentials.await;
            let objects = server(error(404, "NoSuchKey")).await;
            let requests = requests_by(&credentials, &objects.endpoint);
            for served in 1..=2 {
                assert!(requests.get(&name()).await.unwrap().cell.is_none());
                assert_eq!((credentials.served(), objects.served()), (served, served));
            }
        }
    }

    /// The service of credentials answers 404. It says nothing about the object.
    #[tokio::test]
    async fn missing_credentials_are_no_missing_object() {
        let not_found = || answer(404, "", "<Error><Code>NoSuchKey</Code></Error>");
        let server = server(not_found()).await;
        let requests = requests_by(&server, "http://127.0.0.1:1");
        let got = requests.get(&name()).await;
        assert!(matches!(got, Err(DriverError::NotSent(_))), "{got:?}");
        assert_eq!(server.served(), 1);
    }

    /// A proxy on another machine would reach its own loopback, and this one reaches nothing.
    #[test]
    fn loopback_is_reached_without_a_proxy() {
        let cases =
            ["missing_credentials_are_no_missing_object", "write_is_sent_once_and_mapped_by_its_answer"];
        crate::drivers::config::behind_a_closed_proxy("drivers::objects::requests::tests", &cases);
    }

    mod timed {
        use super::*;

        #[test]
        fn write_to_a_hanging_server_is_unknown_after_its_timeout() {
            ::timed::timed("hanging object store", |attempt| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                    let requests = requests(&format!("http://{}", listener.local_addr().unwrap()), "");
                    let began_at = SystemClock::read();
                    let outcome = put(&requests, &CellCondition::Absent).await;
                    assert!(matches!(outcome, Err(DriverError::Unanswered(_))), "{outcome:?}");
                    attempt.took("the request", 2 * requests.timeout, began_at).map(|_| ())
                })
            });
        }
    }
}
