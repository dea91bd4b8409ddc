//! Creates and checks the table.

use super::{
    super::{
        errors::Failure,
        rows::{ATTRIBUTES, PARTITION, PLACE},
    },
    Address, CREATION_TIMEOUT, OpenError,
};
use aws_sdk_dynamodb::{
    Client,
    operation::create_table::CreateTableError,
    types::{
        AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType, TableDescription,
        TableStatus, TimeToLiveStatus,
    },
};
use std::time::Duration;
use vvm_clock::Clock;

/// The interval between looks at a table that is being created.
const PACE: Duration = Duration::from_millis(500);

/// The keys of a table: name, type, kind.
const KEYS: [(&str, ScalarAttributeType, KeyType); 2] =
    [(PARTITION, ScalarAttributeType::B, KeyType::Hash), (PLACE, ScalarAttributeType::B, KeyType::Range)];

/// Creates the table if it is missing, and waits until it can be used.
pub(super) async fn create(client: &Client, address: &Address, clock: &dyn Clock) -> Result<(), OpenError> {
    if describe(client, address).await?.is_none() {
        send_creation(client, address).await?;
    }
    let give_up_at = clock.now().after(CREATION_TIMEOUT);
    loop {
        // A server may not know yet of a table that was created a moment ago.
        match describe(client, address).await?.and_then(|table| table.table_status) {
            None | Some(TableStatus::Creating) if clock.now() < give_up_at => clock.sleep(PACE).await,
            None | Some(TableStatus::Creating) => {
                return Err(OpenError::BeingCreated(address.table.clone()));
            }
            Some(_) => return Ok(()),
        }
    }
}

async fn send_creation(client: &Client, address: &Address) -> Result<(), OpenError> {
    let mut creation =
        client.create_table().table_name(&address.table).billing_mode(BillingMode::PayPerRequest);
    for (name, of_type, kind) in KEYS {
        let attribute = AttributeDefinition::builder().attribute_name(name).attribute_type(of_type).build();
        let key = KeySchemaElement::builder().attribute_name(name).key_type(kind).build();
        let (attribute, key) = attribute
            .and_then(|attribute| Ok((attribute, key?)))
            .map_err(|error| OpenError::of_failure(address, Failure::of_building(&error)))?;
        creation = creation.attribute_definitions(attribute).key_schema(key);
    }
    match creation.send().await {
        Ok(_) => Ok(()),
        // Another process created it first. The caller checks its table.
        Err(error)
            if matches!(error.as_service_error(), Some(CreateTableError::ResourceInUseException(_))) =>
        {
            Ok(())
        }
        Err(error) => Err(OpenError::of_failure(address, Failure::of(error))),
    }
}

/// Checks that elections can use the table.
pub(super) async fn check(client: &Client, address: &Address) -> Result<(), OpenError> {
    let table = || address.table.clone();
    let Some(found) = describe(client, address).await? else {
        return Err(OpenError::NoTable { table: table(), place: address.place() });
    };
    match &found.table_status {
        Some(TableStatus::Active | TableStatus::Updating) => {}
        Some(TableStatus::Creating) => return Err(OpenError::BeingCreated(table())),
        other => {
            let status = other.as_ref().map_or("without a status", TableStatus::as_str).to_owned();
            return Err(OpenError::NotUsable { table: table(), status });
        }
    }
    if let Some(why) = difference(&found) {
        return Err(OpenError::OtherTable { table: table(), why });
    }
    if let Some(regions) = replicated_to(&found) {
        return Err(OpenError::GlobalTable { table: table(), regions });
    }
    let answer = client.describe_time_to_live().table_name(&address.table).send().await;
    let answer = answer.map_err(|error| OpenError::of_failure(address, Failure::of(error)))?;
    let Some(found) = answer.time_to_live_description else { return Ok(()) };
    match (found.time_to_live_status, found.attribute_name) {
        (None | Some(TimeToLiveStatus::Disabled), _) => Ok(()),
        (_, Some(attribute)) if ATTRIBUTES.contains(&attribute.as_str()) => {
            Err(OpenError::TimeToLive { table: table(), attribute })
        }
        // Items of elections do not have the attribute.
        _ => Ok(()),
    }
}

/// Describes the table; `None` if it does not exist.
async fn describe(client: &Client, address: &Address) -> Result<Option<TableDescription>, OpenError> {
    match client.describe_table().table_name(&address.table).send().await.map_err(Failure::of) {
        Ok(answer) => Ok(answer.table),
        Err(Failure::NoTable(_)) => Ok(None),
        Err(failure) => Err(OpenError::of_failure(address, failure)),
    }
}

/// Returns the difference between its keys and those of an election table, if there is one.
fn difference(table: &TableDescription) -> Option<String> {
    let type_of = |name: &str| {
        let attributes = table.attribute_definitions().iter();
        attributes
            .filter(|attribute| attribute.attribute_name == name)
            .map(|found| &found.attribute_type)
            .next()
    };
    let keys: Vec<_> = table.key_schema().iter().map(|key| (key.attribute_name(), key.key_type())).collect();
    let is_ours = keys.len() == KEYS.len()
        && KEYS
            .iter()
            .all(|(name, of_type, kind)| keys.contains(&(name, kind)) && type_of(name) == Some(of_type));
    let describe = |(name, kind): &(&str, &KeyType)| {
        format!("{name} ({kind}, {})", type_of(name).map_or("?", ScalarAttributeType::as_str))
    };
    (!is_ours).then(|| {
        let keys: Vec<_> = keys.iter().map(describe).collect();
        format!("its key is {} instead of {PARTITION} (HASH, B), {PLACE} (RANGE, B)", keys.join(", "))
    })
}

/// Returns the other regions of a global table. The older kind of global table does not list them.
fn replicated_to(table: &TableDescription) -> Option<String> {
    let regions: Vec<_> = table.replicas().iter().filter_map(|replica| replica.region_name()).collect();
    match (regions.is_empty(), table.global_table_version()) {
        (true, None) => None,
        (true, Some(_)) => Some("other regions".to_owned()),
        (false, _) => Some(regions.join(", ")),
    }
}
