//! On DynamoDB Local, or AWS (`https://dynamodb.eu-west-1.amazonaws.com`, with `AWS_REGION` and credentials).

use crate::{
    driver::{Driver, all_suites_on_a_server, described, fresh, is_the_storage_at, many_create},
    is_refused, says,
};
use aws_config::{BehaviorVersion, Region};
use aws_sdk_dynamodb::{
    Client,
    types::{AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType},
};
use std::{sync::Arc, time::Duration};
use vvm_storage::{
    OpenErrorKind,
    dynamodb::{DynamoDbStorage, OpenOptions},
    init_storage,
};

all_suites_on_a_server!(Driver::on_a_server(url("vvm_test_suites")).await);

fn endpoint() -> String {
    crate::server("VVM_TEST_DYNAMODB", "http://host:port", "dynamodb")
}

/// A busy machine may need more than the default of 2 s, and most cases fail if a request is not answered.
const REQUEST_TIMEOUT: &str = "20s";

fn region() -> String {
    std::env::var("AWS_REGION").unwrap_or_else(|_| "eu-west-1".into())
}

fn url(table: &str) -> String {
    format!("dynamodb://{}/{table}?endpoint={}&request_timeout={REQUEST_TIMEOUT}", region(), endpoint())
}

#[tokio::test]
async fn table_is_described_with_location_and_protection() {
    let described = described(&url(&fresh("described"))).await;
    assert_eq!(described.software.as_deref(), Some("DynamoDB"));
    assert!(described.setting("table").unwrap().starts_with("arn:"), "{described:?}");
    // `init_storage` leaves the protection to the owner of the table.
    assert_eq!(described.setting("deletion protection"), Some("off"));
    assert!(described.concerns[0].contains("--deletion-protection-enabled"), "{described:?}");
}

async fn client() -> Client {
    let loader = aws_config::defaults(BehaviorVersion::v2026_01_12());
    let loader = loader.region(Region::new(region())).endpoint_url(endpoint());
    Client::new(&loader.load().await)
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoint_that_does_not_answer_is_named() {
    let silent = "dynamodb://eu-west-1/elections?endpoint=http://127.0.0.1:1";
    is_refused(silent, OpenErrorKind::Passing, &["no answer from http://127.0.0.1:1"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn table_with_other_keys_is_refused() {
    let table = fresh("foreign");
    let attribute = AttributeDefinition::builder().attribute_name("pk");
    let key = KeySchemaElement::builder().attribute_name("pk").key_type(KeyType::Hash);
    let creation = client().await.create_table().table_name(&table).billing_mode(BillingMode::PayPerRequest);
    creation
        .attribute_definitions(attribute.attribute_type(ScalarAttributeType::S).build().unwrap())
        .key_schema(key.build().unwrap())
        .send()
        .await
        .unwrap();
    is_refused(&url(&table), OpenErrorKind::Refused, &["its key is pk (HASH, S) instead of"]).await;
    says(&init_storage(&url(&table)).await.unwrap_err(), &["Use another table"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn client_of_the_caller_opens_the_same_records() {
    let table = fresh("own");
    init_storage(&url(&table)).await.unwrap();
    let options = OpenOptions { request_timeout: Duration::from_secs(20) };
    let storage = DynamoDbStorage::open_with(&client().await, &table, options).await.unwrap();
    is_the_storage_at(&url(&table), Arc::new(storage)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn several_processes_can_create_one_table_at_once() {
    many_create(&url(&fresh("many"))).await;
}
