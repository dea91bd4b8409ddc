//! What DynamoDB Local can't show: tables and refusals that only AWS has, and the number of requests.

use super::*;
use crate::{
    drivers::{
        config::REQUEST_TIMEOUT,
        errors::kinds,
        tests::{Scripted, answer},
    },
    key::Partition,
    opening::{OpenError, OpenErrorKind},
    step::{CurrentState, Step, StepOutcome},
    sysvvm::SysVvmStorage,
};
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::{
    Credentials,
    provider::{ProvideCredentials, SharedCredentialsProvider, error::CredentialsError, future},
};
use aws_sdk_dynamodb::{
    Client,
    config::{Builder, retry::RetryConfig},
    error::ErrorMetadata,
    operation::update_item::UpdateItemError,
};
use aws_smithy_runtime_api::client::{
    http::{HttpConnector, HttpConnectorFuture, SharedHttpConnector, http_client_fn},
    orchestrator::HttpRequest,
};
use bytes::Bytes;
use ielections::{
    DocumentId, DocumentVersion, DocumentWrite, Entry, Epoch, Fence, OnlyIf, ReadError, Scan, Slot, Vacant,
    WriteError,
};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};
use vvm_clock::SystemClock;

use super::{
    connection::{at as at_address, of_credentials},
    opening::init_with,
};

/// Status and body. With `None` the connection is closed without an answer.
type Answer = Option<(u16, String)>;

type Bodies = BTreeMap<String, Vec<String>>;

struct Server {
    scripted: Scripted,
    requests: Arc<Mutex<Bodies>>,
}

fn ok(text: &str) -> Answer {
    Some((200, text.to_owned()))
}

fn refusal(status: u16, code: &str) -> Answer {
    let text = format!(r#"{{"__type":"com.amazonaws.dynamodb.v20120810#{code}","message":"said so"}}"#);
    Some((status, text))
}

impl Server {
    /// `script` is given how often the operation was requested before.
    async fn start(script: impl Fn(&str, usize) -> Answer + Send + Sync + 'static) -> Self {
        let requests = Arc::new(Mutex::new(Bodies::new()));
        let received = Arc::clone(&requests);
        let scripted = Scripted::start(move |asked| {
            let target = asked.header("x-amz-target").unwrap_or_default();
            let operation = target.rsplit('.').next().unwrap_or_default().to_owned();
            let asked_before = {
                let mut requests = received.lock().unwrap();
                let bodies = requests.entry(operation.clone()).or_default();
                bodies.push(asked.body);
                bodies.len() - 1
            };
            let (status, text) = script(&operation, asked_before)?;
            Some(answer(status, "Content-Type: application/x-amz-json-1.0\r\n", &text))
        });
        Self { scripted: scripted.await, requests }
    }

    fn endpoint(&self) -> &str {
        &self.scripted.endpoint
    }

    fn take_counts(&self) -> Vec<(String, usize)> {
        let requests = std::mem::take(&mut *self.requests.lock().unwrap());
        requests.into_iter().map(|(operation, bodies)| (operation, bodies.len())).collect()
    }

    fn last_body(&self, operation: &str) -> String {
        self.requests.lock().unwrap()[operation].last().unwrap().clone()
    }
}

fn described(status: &str, more: &str) -> Answer {
    Some((
        200,
        format!(
            r#"{{"Table":{{"TableName":"elections","TableStatus":"{status}",
                "KeySchema":[{{"AttributeName":"pk","KeyType":"HASH"}},
                             {{"AttributeName":"cc","KeyType":"RANGE"}}],
                "AttributeDefinitions":[{{"AttributeName":"pk","AttributeType":"B"}},
                                        {{"AttributeName":"cc","AttributeType":"B"}}]{more}}}}}"#
        ),
    ))
}

fn active(operation: &str) -> Answer {
    match operation {
        "DescribeTable" => described("ACTIVE", ""),
        "DescribeTimeToLive" => ok(r#"{"TimeToLiveDescription":{"TimeToLiveStatus":"DISABLED"}}"#),
        _ => ok("{}"),
    }
}

fn configured(endpoint: &str) -> SdkConfig {
    let credentials = Credentials::new("key", "secret", None, None, "this test");
    SdkConfig::builder()
        .behavior_version(BehaviorVersion::v2026_01_12())
        .region(Region::new("eu-west-1"))
        .endpoint_url(endpoint)
        .credentials_provider(SharedCredentialsProvider::new(credentials))
        .build()
}

fn place(server: &Server) -> (SdkConfig, Address) {
    let address = Address::parse(&format!("dynamodb://eu-west-1/elections?endpoint={}", server.endpoint()));
    (configured(server.endpoint()), address.unwrap())
}

async fn opened(script: impl Fn(&str, usize) -> Answer + Send + Sync + 'static) -> (Server, DynamoDbStorage) {
    let server = Server::start(script).await;
    let (configuration, address) = place(&server);
    let storage = DynamoDbStorage::on(client(&configuration, &address), &address).await.unwrap();
    server.take_counts();
    (server, storage)
}

async fn answering(
    of: &'static str,
    answer: impl Fn(usize) -> Answer + Send + Sync + 'static,
) -> (Server, DynamoDbStorage) {
    opened(move |operation, before| if operation == of { answer(before) } else { active(operation) }).await
}

async fn refused(of: &'static str, answer: impl Fn() -> Answer + Send + Sync + 'static) -> OpenError {
    let script = move |operation: &str, _| if operation == of { answer() } else { active(operation) };
    let server = Server::start(script).await;
    let (configuration, address) = place(&server);
    let client = client(&configuration, &address);
    DynamoDbStorage::on(client, &address).await.expect_err("opened")
}

async fn refused_table(status: &'static str, more: &'static str) -> OpenError {
    refused("DescribeTable", move || described(status, more)).await
}

fn entry() -> Entry {
    ielections::testing::entry(7, 0, 1)
}

fn partition() -> Partition {
    Partition::from_bytes(*b"partition")
}

#[tokio::test]
async fn both_kinds_of_global_tables_are_refused() {
    for (more, regions) in [
        (r#","Replicas":[{"RegionName":"us-east-1"},{"RegionName":"eu-west-3"}]"#, "us-east-1, eu-west-3"),
        (r#","GlobalTableVersion":"2017.11.29""#, "other regions"),
    ] {
        let error = refused_table("ACTIVE", more).await;
        assert!(error.to_string().contains(regions) && error.to_string().contains("two leaders"), "{error}");
    }
}

#[tokio::test]
async fn table_that_is_not_active_is_refused() {
    assert!(refused_table("CREATING", "").await.is_passing());
    for status in ["DELETING", "ARCHIVED", "INACCESSIBLE_ENCRYPTION_CREDENTIALS", "SOMETHING_NEW"] {
        let error = refused_table(status, "").await;
        assert!(error.to_string().contains(&format!("its status is {status}")), "{error}");
    }
    // A table whose throughput is being changed can be used.
    answering("DescribeTable", |_| described("UPDATING", "")).await;
}

#[tokio::test]
async fn time_to_live_of_records_is_refused_until_it_is_disabled() {
    for status in ["ENABLING", "ENABLED", "DISABLING"] {
        let found = format!(r#"{{"TimeToLiveStatus":"{status}","AttributeName":"epoch"}}"#);
        let answer = move || ok(&format!(r#"{{"TimeToLiveDescription":{found}}}"#));
        let error = refused("DescribeTimeToLive", answer).await;
        assert!(error.to_string().contains("time to live on attribute `epoch`"), "{status}: {error}");
    }
    // Items of elections do not have this attribute.
    const OTHER: &str = r#"{"TimeToLiveStatus":"ENABLED","AttributeName":"something_else"}"#;
    answering("DescribeTimeToLive", |_| ok(&format!(r#"{{"TimeToLiveDescription":{OTHER}}}"#))).await;
}

#[tokio::test]
async fn refusal_by_aws_says_what_to_do() {
    let table = [
        (400, "AccessDeniedException", "policy of these credentials"),
        (400, "UnrecognizedClientException", "renew or correct them"),
        (400, "InvalidSignatureException", "machine's clock"),
        (400, "ExpiredTokenException", "renew or correct them"),
        (400, "ResourceNotFoundException", "no table `elections` in http://127.0.0.1"),
        (400, "UnknownOperationException", "may not be DynamoDB"),
        (400, "ThrottlingException", "Try again"),
        (500, "InternalServerError", "Try again"),
    ];
    for (status, code, hint) in table {
        for operation in ["DescribeTable", "DescribeTimeToLive"] {
            let error = refused(operation, move || refusal(status, code)).await.to_string();
            assert!(error.contains(hint), "{operation}, {code}: {error}");
        }
    }
}

#[test]
fn failed_provider_is_passing_and_missing_credentials_are_not() {
    let none = of_credentials(&CredentialsError::not_loaded("no provider has any"));
    assert!(none.to_string().contains("AWS_ACCESS_KEY_ID") && !none.is_passing(), "{none}");
    let late = of_credentials(&CredentialsError::provider_error("503"));
    assert!(late.to_string().contains("503") && late.is_passing(), "{late}");
}

#[tokio::test]
async fn missing_table_is_created_and_waited_for() {
    let server = Server::start(|operation, before| match (operation, before) {
        // The table is missing, created but not visible yet, being created, active.
        ("DescribeTable", 0 | 1) => refusal(400, "ResourceNotFoundException"),
        ("DescribeTable", 2) => described("CREATING", ""),
        ("CreateTable", _) => refusal(400, "ResourceInUseException"),
        _ => active(operation),
    });
    let server = server.await;
    let (configuration, address) = place(&server);
    init_with(&configuration, &address).await.unwrap();
    let asked = [
        ("BatchGetItem", 1),
        ("CreateTable", 1),
        ("DescribeTable", 5),
        ("DescribeTimeToLive", 1),
        ("GetItem", 1),
        ("Query", 1),
        ("TransactWriteItems", 1),
        ("UpdateItem", 1),
    ];
    assert_eq!(server.take_counts(), asked.map(|(operation, count)| (operation.to_owned(), count)));

    let server = Server::start(|operation, _| active(operation)).await;
    let (configuration, address) = place(&server);
    init_with(&configuration, &address).await.unwrap();
    assert!(server.take_counts().iter().all(|(operation, _)| operation != "CreateTable"));
}

/// As IAM words it. A transaction is denied for a part of it.
#[tokio::test]
async fn init_without_a_right_is_refused_with_it_and_the_policy_that_gives_it() {
    for (denied, action) in [
        ("CreateTable", "CreateTable"),
        ("DescribeTable", "DescribeTable"),
        ("DescribeTimeToLive", "DescribeTimeToLive"),
        ("GetItem", "GetItem"),
        ("BatchGetItem", "BatchGetItem"),
        ("Query", "Query"),
        ("UpdateItem", "UpdateItem"),
        ("TransactWriteItems", "ConditionCheckItem"),
        ("TransactWriteItems", "PutItem"),
        ("TransactWriteItems", "DeleteItem"),
    ] {
        let server = Server::start(move |operation, _| match operation {
            _ if operation == denied => {
                let message = format!(
                    "User: arn:aws:iam::123456789012:user/payroll is not authorized to perform: dynamodb:{action} on \
                     resource: arn:aws:dynamodb:eu-west-1:123456789012:table/elections because no identity-based \
                     policy allows the dynamodb:{action} action"
                );
                let code = "com.amazon.coral.service#AccessDeniedException";
                Some((400, format!(r#"{{"__type":"{code}","Message":"{message}"}}"#)))
            }
            "DescribeTable" if denied == "CreateTable" => refusal(400, "ResourceNotFoundException"),
            _ => active(operation),
        });
        let server = server.await;
        let (configuration, address) = place(&server);
        let error = init_with(&configuration, &address).await.expect_err(action);
        assert_eq!(error.kind(), OpenErrorKind::Refused, "{error}");
        let text = error.to_string();
        let (said, policy) = text.split_once("CreateTable: ").unwrap();
        assert!(said.contains(&format!("not authorized to perform: dynamodb:{action}")), "{said}");
        let policy: serde_json::Value = serde_json::from_str(policy).unwrap();
        let actions = policy["Action"].as_array().unwrap();
        assert!(actions.contains(&format!("dynamodb:{action}").into()), "{policy}");
        assert_eq!(policy["Resource"], "arn:aws:dynamodb:eu-west-1:*:table/elections");
    }
}

#[tokio::test]
async fn each_verb_is_one_request() {
    let (server, storage) = opened(|operation, _| active(operation)).await;
    let (at, entry) = (partition(), entry());
    let one = |operation: &str| vec![(operation.to_owned(), 1)];

    let vacant = Slot::Vacant(Vacant { last_epoch: None });
    assert_eq!(storage.commit(at.clone(), Step::claim(&vacant, &entry)).await.unwrap(), StepOutcome::Applied);
    assert_eq!(server.take_counts(), one("UpdateItem"));
    assert_eq!(storage.commit(at.clone(), Step::renew(&entry, &entry)).await.unwrap(), StepOutcome::Applied);
    assert_eq!(server.take_counts(), one("UpdateItem"));
    assert_eq!(
        storage.commit(at.clone(), Step::release(entry.incarnation(), entry.epoch)).await.unwrap(),
        StepOutcome::Applied
    );
    assert_eq!(server.take_counts(), one("UpdateItem"));
    assert_eq!(storage.read(at.clone()).await.unwrap(), vacant);
    assert_eq!(server.take_counts(), one("GetItem"));
    assert_eq!(storage.commit(at.clone(), Step::settle(b"3")).await.unwrap(), StepOutcome::Applied);
    assert_eq!(server.take_counts(), one("UpdateItem"));
    assert_eq!(storage.setting(at.clone()).await.unwrap(), None);
    assert_eq!(server.take_counts(), one("GetItem"));
    assert_eq!(storage.peek(&vec![at; 101]).await.unwrap().len(), 101);
    assert_eq!(server.take_counts(), [("BatchGetItem".to_owned(), 2)]);
}

#[tokio::test]
async fn reads_are_consistent_and_peeks_are_not() {
    let (server, storage) = opened(|operation, _| active(operation)).await;
    let partition = partition();
    storage.read(partition.clone()).await.unwrap();
    assert!(server.last_body("GetItem").contains(r#""ConsistentRead":true"#));
    storage.setting(partition.clone()).await.unwrap();
    assert!(server.last_body("GetItem").contains(r#""ConsistentRead":true"#));
    storage.peek(&[partition.clone(), partition]).await.unwrap();
    let text = server.last_body("BatchGetItem");
    assert_eq!(text.matches(r#""pk""#).count(), 1, "{text}");
    assert!(!text.contains("ConsistentRead"), "{text}");
}

#[tokio::test]
async fn failed_request_is_sent_once_and_mapped_by_its_error() {
    let says = Arc::new(Mutex::new(Answer::None));
    let answer = Arc::clone(&says);
    let (server, storage) = opened(move |operation, _| match operation {
        "UpdateItem" | "GetItem" => answer.lock().unwrap().clone(),
        _ => active(operation),
    })
    .await;
    let answered = async |answer: Answer| {
        *says.lock().unwrap() = answer;
        let renewal = storage.commit(partition(), Step::renew(&entry(), &entry())).await.unwrap_err();
        let read = storage.read(partition()).await.unwrap_err();
        let once = ["GetItem", "UpdateItem"].map(|operation| (operation.to_owned(), 1));
        assert_eq!(server.take_counts(), once, "{renewal}");
        (kinds::of_write(&renewal), kinds::of_read(&read))
    };
    let table: [(&[&str], _, _); 4] = [
        (
            &[
                "ProvisionedThroughputExceededException",
                "RequestLimitExceeded",
                "ThrottlingException",
                "TransactionConflictException",
                "AccessDeniedException",
                "UnrecognizedClientException",
                "InvalidSignatureException",
                "IncompleteSignatureException",
                "MissingAuthenticationTokenException",
                "ExpiredTokenException",
                "RequestExpired",
            ],
            "NotApplied",
            "Unavailable",
        ),
        (
            &[
                "ValidationException",
                "SerializationException",
                "UnknownOperationException",
                "ItemCollectionSizeLimitExceededException",
            ],
            "Fatal",
            "Fatal",
        ),
        (&["ResourceNotFoundException", "ReplicatedWriteConflictException"], "Replaced", "Replaced"),
        (&["SomethingNew", ""], "Unknown", "Unavailable"),
    ];
    for (codes, write, read) in table {
        for code in codes {
            assert_eq!(answered(refusal(400, code)).await, (write, read), "{code}");
            // A broken server may have applied the request, with any code.
            for status in [500, 502, 503] {
                let found = answered(refusal(status, code)).await;
                assert_eq!(found, ("Unknown", "Unavailable"), "{status} {code}");
            }
        }
    }
    assert_eq!(answered(None).await, ("Unknown", "Unavailable"));
}

/// The client of an embedder retries by default: a second copy of an applied write would be refused.
#[tokio::test]
async fn client_of_the_caller_sends_once_too_and_keeps_its_endpoint_and_credentials() {
    let server = Server::start(|operation, _| match operation {
        "UpdateItem" => refusal(500, "InternalServerError"),
        operation => active(operation),
    });
    let server = server.await;
    let retries = RetryConfig::standard().with_max_attempts(5).with_initial_backoff(Duration::ZERO);
    let configuration = Builder::from(&configured(server.endpoint())).retry_config(retries);
    let client = Client::from_conf(configuration.build());
    let storage = DynamoDbStorage::open_with(&client, "elections", OpenOptions::default()).await.unwrap();
    assert!(storage.opened().unwrap().location.starts_with("dynamodb://eu-west-1/elections"));
    server.take_counts();
    let settled = storage.commit(partition(), Step::settle(b"3")).await;
    assert!(matches!(settled, Err(WriteError::Unknown(_))), "{settled:?}");
    assert_eq!(server.take_counts(), [("UpdateItem".to_owned(), 1)]);
    let nowhere = Client::from_conf(Builder::from(&configured(server.endpoint())).region(None).build());
    for (client, table, part) in [(&nowhere, "elections", "no region"), (&client, "a/b", "3 to 255")] {
        let refusal = DynamoDbStorage::open_with(client, table, OpenOptions::default()).await.unwrap_err();
        assert!(refusal.is_misuse() && refusal.to_string().contains(part), "{refusal}");
    }
}

#[derive(Debug)]
struct Issuer(AtomicU32);

impl ProvideCredentials for Issuer {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        let key = format!("key-{}", self.0.fetch_add(1, Ordering::Relaxed) + 1);
        future::ProvideCredentials::ready(Ok(Credentials::new(key, "secret", None, None, "this test")))
    }
}

#[tokio::test]
async fn credentials_are_fetched_anew_after_they_were_refused_and_no_sooner() {
    let server = Scripted::start(|asked| {
        let is_first = asked.header("authorization").unwrap().contains("key-1/");
        let (status, text) = if is_first { refusal(400, "ExpiredTokenException") } else { ok("{}") }?;
        Some(answer(status, "Content-Type: application/x-amz-json-1.0\r\n", &text))
    });
    let server = server.await;
    let address = Address::parse(&format!("dynamodb://eu-west-1/elections?endpoint={}", server.endpoint));
    let issuer = SharedCredentialsProvider::new(Issuer(AtomicU32::new(0)));
    let configuration = configured(&server.endpoint).into_builder().credentials_provider(issuer.clone());
    let address = address.unwrap();
    let storage = DynamoDbStorage::new(client(&configuration.build(), &address), &address);
    let refused = storage.commit(partition(), Step::renew(&entry(), &entry())).await;
    assert!(matches!(refused, Err(WriteError::NotApplied(_))), "{refused:?}");
    for _ in 0..2 {
        storage.read(partition()).await.unwrap();
    }
    assert_eq!(server.served(), 3);
    assert_eq!(issuer.provide_credentials().await.unwrap().access_key_id(), "key-3", "fetched twice before");
}

#[derive(Debug)]
struct Nowhere;

impl HttpConnector for Nowhere {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        HttpConnectorFuture::ready(Err(ConnectorError::other(request.uri().into(), None)))
    }
}

/// Shows I1. The SDK takes an endpoint of the environment (`AWS_ENDPOINT_URL`) for one of its configuration.
#[tokio::test]
async fn table_is_where_its_address_says_whatever_the_environment_names() {
    let of_environment = configured("http://environment:1");
    for (options, place) in
        [("", "https://dynamodb.eu-west-1.amazonaws.com/"), ("?endpoint=http://here:2", "http://here:2/")]
    {
        let address = Address::parse(&format!("dynamodb://eu-west-1/elections{options}")).unwrap();
        let nowhere = http_client_fn(|_, _| SharedHttpConnector::new(Nowhere));
        let client = sent_once(at_address(&of_environment, &address).http_client(nowhere), REQUEST_TIMEOUT);
        let asked = super::described(&client.list_tables().send().await.unwrap_err());
        assert!(asked.contains(place) && !asked.contains("environment"), "{asked}");
    }
}

fn at(listener: &std::net::TcpListener) -> DynamoDbStorage {
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let address = Address::parse(&format!("dynamodb://eu-west-1/elections?endpoint={endpoint}")).unwrap();
    DynamoDbStorage::new(client(&configured(&endpoint), &address), &address)
}

#[tokio::test]
async fn write_without_a_connection_is_not_applied() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let storage = at(&listener);
    drop(listener);
    let outcome = storage.commit(partition(), Step::renew(&entry(), &entry())).await;
    assert!(matches!(outcome, Err(WriteError::NotApplied(_))), "{outcome:?}");
    assert!(matches!(storage.read(partition()).await, Err(ReadError::Unavailable(_))));
}

#[tokio::test]
async fn request_after_one_without_an_answer_takes_no_connection_from_before() {
    let is_silent = Arc::new(Mutex::new(false));
    let next = Arc::clone(&is_silent);
    let server = Scripted::keeping(move |_| {
        let is_silent = std::mem::take(&mut *next.lock().unwrap());
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/x-amz-json-1.0\r\n";
        Some(if is_silent { String::new() } else { format!("{head}Content-Length: 2\r\n\r\n{{}}") })
    });
    let server = server.await;
    let address = Address::parse(&format!("dynamodb://eu-west-1/elections?endpoint={}", server.endpoint));
    let address = address.unwrap();
    let storage = DynamoDbStorage::new(client(&configured(&server.endpoint), &address), &address);
    let _open = tokio::join!(storage.read(partition()), storage.read(partition()), storage.read(partition()));
    let before = (server.connected(), server.served());
    assert_eq!(before, (3, 3));
    *is_silent.lock().unwrap() = true;
    let is_sent = async {
        while server.served() == before.1 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        read = storage.read(partition()) => panic!("{read:?}"),
        () = is_sent => {}
    }
    storage.read(partition()).await.unwrap();
    assert_eq!(server.connected(), before.0 + 1);
}

#[tokio::test]
async fn keys_left_out_of_an_answer_are_requested_again() {
    const KEY: &str = r#"{"pk":{"B":"cGFydGl0aW9u"},"cc":{"B":"AA=="}}"#;
    let left_out = || Some((200, format!(r#"{{"UnprocessedKeys":{{"elections":{{"Keys":[{KEY}]}}}}}}"#)));
    let two = [Partition::from_bytes(*b"another"), partition()];
    let (server, storage) = answering("BatchGetItem", move |before| match before {
        0 => left_out(),
        _ => ok(r#"{"Responses":{"elections":[
                {"pk":{"B":"cGFydGl0aW9u"},"cc":{"B":"AA=="},"epoch":{"N":"5"}}]}}"#),
    })
    .await;
    let slots = storage.peek(&two).await.unwrap();
    assert_eq!(slots.iter().map(Slot::last_epoch).collect::<Vec<_>>(), [None, Epoch::new(5).ok()]);
    assert_eq!(server.take_counts(), [("BatchGetItem".to_owned(), 2)]);

    // An answer without any item is not followed by another request (I10).
    let (server, storage) = answering("BatchGetItem", move |_| left_out()).await;
    assert!(matches!(storage.peek(&two).await, Err(ReadError::Unavailable(_))));
    assert_eq!(server.take_counts(), [("BatchGetItem".to_owned(), 2)]);
}

#[tokio::test]
async fn refusal_without_an_item_is_fatal_for_a_claim() {
    let refused = |_| refusal(400, "ConditionalCheckFailedException");
    let (_server, storage) = answering("UpdateItem", refused).await;
    let vacant = Slot::Vacant(Vacant { last_epoch: None });
    let outcome = storage.commit(partition(), Step::claim(&vacant, &entry())).await;
    assert!(matches!(outcome, Err(WriteError::Fatal(_))), "{outcome:?}");
    assert!(matches!(storage.commit(partition(), Step::settle(b"3")).await, Err(WriteError::Fatal(_))));
    let outcome = storage.commit(partition(), Step::renew(&entry(), &entry())).await;
    assert!(matches!(outcome, Ok(StepOutcome::Refused(CurrentState::Slot(Slot::Vacant(_))))), "{outcome:?}");
}

#[test]
fn loopback_is_reached_without_a_proxy() {
    let cases = ["each_verb_is_one_request", "missing_table_is_created_and_waited_for"];
    crate::drivers::config::behind_a_closed_proxy("drivers::dynamodb::tests", &cases);
}

fn id() -> DocumentId {
    DocumentId::new("name").unwrap()
}

fn fence() -> Fence {
    Fence { epoch: entry().epoch, incarnation: entry().incarnation(), after: DocumentVersion::from_stored(4) }
}

async fn write(storage: &DynamoDbStorage) -> Result<StepOutcome, WriteError> {
    let delete = DocumentWrite::Delete { id: id(), only_if: OnlyIf::Always };
    storage.commit(partition(), Step::batch(&fence(), &[delete])).await
}

fn cancelled(codes: &[&str]) -> Answer {
    let reasons: Vec<_> = codes.iter().map(|code| format!(r#"{{"Code":"{code}"}}"#)).collect();
    let reasons = reasons.join(",");
    let code = "com.amazonaws.dynamodb.v20120810#TransactionCanceledException";
    let message = "Transaction cancelled, please refer cancellation reasons for specific reasons";
    Some((400, format!(r#"{{"__type":"{code}","Message":"{message}","CancellationReasons":[{reasons}]}}"#)))
}

fn batches(last: u64) -> String {
    format!(r#"{{"version":{{"N":"{last}"}},"ids":{{"BS":["bmFtZQ=="]}}}}"#)
}

const LEADER: &str = r#"{"epoch":{"N":"5"}}"#;

fn together(last: u64) -> Answer {
    let (leader, batches) = (LEADER, batches(last));
    Some((200, format!(r#"{{"Responses":[{{"Item":{leader}}},{{"Item":{batches}}},{{}}]}}"#)))
}

/// After four batches, with this answer to the read of all that the last one wrote.
async fn after_four(answer: impl Fn(usize) -> Answer + Send + Sync + 'static) -> (Server, DynamoDbStorage) {
    opened(move |operation, before| match operation {
        "GetItem" => ok(&format!(r#"{{"Item":{}}}"#, batches(4))),
        "TransactGetItems" => answer(before),
        _ => active(operation),
    })
    .await
}

#[tokio::test]
async fn each_verb_is_one_request_and_reading_the_fence_is_two() {
    let (server, storage) = after_four(|_| together(4)).await;
    let at = partition();
    let asked = |operations: &[&str]| -> Vec<_> {
        operations.iter().map(|operation| ((*operation).to_owned(), 1)).collect()
    };
    assert_eq!(write(&storage).await.unwrap(), StepOutcome::Applied);
    assert_eq!(server.take_counts(), asked(&["TransactWriteItems"]));
    let state = storage.fence_state(&at).await.unwrap();
    assert_eq!((state.last, state.slot.last_epoch()), (fence().after, Epoch::new(5).ok()));
    assert_eq!(server.last_body("TransactGetItems").matches(r#""Get""#).count(), 3);
    assert_eq!(server.take_counts(), asked(&["GetItem", "TransactGetItems"]));
    let scan = Scan { limit: 10, ..Scan::default() };
    assert_eq!(storage.scan_documents(&at, &scan).await.unwrap().documents, []);
    assert!(server.last_body("Query").contains(r#""ConsistentRead":true"#));
    assert_eq!(server.take_counts(), asked(&["Query"]));
    let long = Scan { prefix: Bytes::from(vec![1; 1024]), limit: 10, ..Scan::default() };
    assert_eq!(storage.scan_documents(&at, &long).await.unwrap().documents, []);
    let beyond = Scan { prefix: Bytes::from_static(b"a"), after: Some(id()), limit: 10 };
    assert_eq!(storage.scan_documents(&at, &beyond).await.unwrap().next, None);
    assert_eq!(server.take_counts(), []);
}

#[tokio::test]
async fn failed_batch_is_sent_once_and_mapped_by_its_error() {
    let table: [(fn() -> Answer, _); 5] = [
        (|| cancelled(&["ConditionalCheckFailed", "None", "None"]), "Refused"),
        (|| cancelled(&["None", "None", "TransactionConflict"]), "NotApplied"),
        (|| refusal(400, "TransactionInProgressException"), "Unknown"),
        (|| refusal(500, "InternalServerError"), "Unknown"),
        (|| None, "Unknown"),
    ];
    for (answer, expected) in table {
        let (server, storage) = answering("TransactWriteItems", move |_| answer()).await;
        let outcome = write(&storage).await;
        let found = match &outcome {
            Ok(StepOutcome::Refused(CurrentState::Nothing)) => "Refused",
            Err(error) => kinds::of_write(error),
            other => panic!("{other:?}"),
        };
        assert_eq!(found, expected, "{outcome:?}");
        assert_eq!(server.take_counts(), [("TransactWriteItems".to_owned(), 1)], "{outcome:?}");
    }
}

#[tokio::test]
async fn fence_is_unavailable_while_a_batch_is_applied() {
    let conflict = |_| cancelled(&["None", "None", "TransactionConflict"]);
    let (server, storage) = after_four(conflict).await;
    let state = storage.fence_state(&partition()).await;
    assert!(matches!(state, Err(ReadError::Unavailable(_))), "{state:?}");
    assert_eq!(server.take_counts(), [("GetItem".to_owned(), 1), ("TransactGetItems".to_owned(), 1)]);
}

#[tokio::test]
async fn fence_is_read_again_when_a_batch_came_between_its_two_reads() {
    // One batch between the reads is followed by a second read; batches without end are an error (I10).
    for (steady, looks) in [(true, 2), (false, 3)] {
        let last = move |before: usize| together(if steady { 5 } else { 5 + before as u64 });
        let (server, storage) = after_four(last).await;
        let state = storage.fence_state(&partition()).await;
        match state {
            Ok(state) => assert!(steady && state.last == fence().after.next(), "{state:?}"),
            Err(error) => assert!(!steady && matches!(error, ReadError::Unavailable(_)), "{error:?}"),
        }
        assert_eq!(server.take_counts(), [("GetItem".to_owned(), 1), ("TransactGetItems".to_owned(), looks)]);
    }
}

#[tokio::test]
async fn answer_with_missing_items_is_unavailable_and_not_vacant() {
    let (_server, storage) = after_four(|_| ok(r#"{"Responses":[]}"#)).await;
    let state = storage.fence_state(&partition()).await;
    assert!(matches!(state, Err(ReadError::Unavailable(_))), "{state:?}");
}

mod timed {
    use super::*;

    #[test]
    fn request_to_a_hanging_server_ends_after_its_timeout() {
        ::timed::timed("hanging server", |attempt| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
                let storage = at(&listener);
                let began_at = SystemClock::read();
                let outcome = storage.commit(partition(), Step::renew(&entry(), &entry())).await;
                assert!(matches!(outcome, Err(WriteError::Unknown(_))), "{outcome:?}");
                assert!(SystemClock::read().since(began_at) >= REQUEST_TIMEOUT, "given up early");
                attempt.took("the request", 2 * REQUEST_TIMEOUT, began_at).map(|_| ())
            })
        });
    }
}

fn kind(codes: &[&str]) -> &'static str {
    let reason = |code: &&str| CancellationReason::builder().code(*code).build();
    let reasons: Vec<_> = codes.iter().map(reason).collect();
    match DriverError::of_cancellation(&reasons, String::new()) {
        None => "Refused",
        Some(error) => kinds::of_write(&error.into_write_error()),
    }
}

#[test]
fn each_reason_maps_as_documented() {
    for (codes, expected) in [
        (&["None", "ConditionalCheckFailed"][..], "Refused"),
        // With both reasons, the item compared is committed, so the refusal counts.
        (&["TransactionConflict", "ConditionalCheckFailed"], "Refused"),
        (&["None", "TransactionConflict"], "NotApplied"),
        (&["ThrottlingError", "None"], "NotApplied"),
        (&["None", "ProvisionedThroughputExceeded"], "NotApplied"),
        (&["None", "ValidationError"], "Fatal"),
        (&["ItemCollectionSizeLimitExceeded"], "Fatal"),
        (&["AccessDenied"], "NotApplied"),
        (&["SomethingNew"], "Unknown"),
        (&["None"], "Unknown"),
        (&[], "Unknown"),
    ] {
        assert_eq!(kind(codes), expected, "{codes:?}");
    }
}

type UpdateError = SdkError<UpdateItemError, HttpResponse>;

fn response(status: u16) -> HttpResponse {
    HttpResponse::new(status.try_into().unwrap(), "".into())
}

fn answered(status: u16, code: &str) -> UpdateError {
    let said = ErrorMetadata::builder().code(code).message("said so").build();
    SdkError::service_error(UpdateItemError::generic(said), response(status))
}

fn dispatch(cause: impl Into<Box<dyn Error + Send + Sync>>) -> UpdateError {
    SdkError::dispatch_failure(ConnectorError::other(cause.into(), None))
}

fn both(error: impl Fn() -> UpdateError) -> (&'static str, &'static str) {
    let failed = || DriverError::of(error());
    (kinds::of_write(&failed().into_write_error()), kinds::of_read(&failed().into_read_error()))
}

#[test]
fn request_that_may_have_been_sent_is_unknown() {
    assert_eq!(both(|| SdkError::timeout_error("no answer in time")), ("Unknown", "Unavailable"));
    assert_eq!(both(|| SdkError::response_error("no JSON", response(200))), ("Unknown", "Unavailable"));
    assert_eq!(both(|| SdkError::construction_failure("no endpoint")), ("Fatal", "Fatal"));
    for broken in [
        ConnectorError::io("connection reset".into()),
        ConnectorError::timeout("no byte".into()),
        // An established connection can end with it, after an ICMP message of another host.
        ConnectorError::io(Box::new(std::io::Error::from(std::io::ErrorKind::ConnectionRefused))),
    ] {
        let failure = DriverError::of(UpdateError::dispatch_failure(broken));
        assert!(matches!(failure.into_write_error(), WriteError::Unknown(_)));
    }
}

#[test]
fn request_without_credentials_is_not_applied() {
    let none = || dispatch(CredentialsError::not_loaded("none"));
    assert_eq!(both(none), ("NotApplied", "Unavailable"));
    let wrong = || dispatch(CredentialsError::invalid_configuration("a loop"));
    assert_eq!(both(wrong), ("NotApplied", "Unavailable"));
    // The provider fails, or hangs.
    assert_eq!(both(|| dispatch(CredentialsError::provider_error("503"))), ("NotApplied", "Unavailable"));
    let hangs = || dispatch(CredentialsError::provider_timed_out(std::time::Duration::from_secs(1)));
    assert_eq!(both(hangs), ("NotApplied", "Unavailable"));
}

#[test]
fn message_has_the_answer_of_the_server_and_what_to_do() {
    let said = |error| DriverError::of::<UpdateItemError>(error).to_string();
    let error = said(answered(400, "AccessDeniedException"));
    assert!(error.contains("policy") && error.contains("AccessDeniedException: said so"), "{error}");
    assert!(said(answered(400, "InvalidSignatureException")).contains("clock"));
    assert!(said(dispatch(CredentialsError::not_loaded("none"))).contains("AWS_ACCESS_KEY_ID"));
    let error =
        said(SdkError::service_error(UpdateItemError::generic(ErrorMetadata::default()), response(502)));
    assert!(error.contains("502"), "{error}");
    assert!(said(SdkError::dispatch_failure(ConnectorError::io("reset".into()))).contains("reset"));
}
