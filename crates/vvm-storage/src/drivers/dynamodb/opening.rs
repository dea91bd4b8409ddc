//! The table, which is checked at each opening, and created by `vvm init-storage`.

use super::{
    DriverError,
    config::Address,
    connection::{client, configuration, no_credentials},
    requests::{self, Requests},
    rows::{ATTRIBUTES, PARTITION, PLACE},
};
use crate::{
    key::{ElectionKey, SlotNumber},
    opening::OpenError,
    sysvvm::Description,
};
use aws_config::SdkConfig;
use aws_sdk_dynamodb::{
    Client,
    operation::create_table::CreateTableError,
    types::{
        AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType, TableDescription,
        TableStatus, TimeToLiveStatus,
    },
};
use bytes::Bytes;
use ielections::{DocumentId, DocumentVersion, DocumentWrite, Epoch, Fence, Incarnation, OnlyIf, Scan};
use std::{slice, time::Duration};
use vvm_clock::{Clock, SystemClock};

/// How long a new table may take to become active. DynamoDB needs about ten seconds.
const CREATION_TIMEOUT: Duration = Duration::from_secs(120);

pub(crate) async fn init(url: &str) -> Result<(), OpenError> {
    let address = Address::parse(url)?;
    init_with(&configuration(&address).await?, &address).await
}

pub(super) async fn init_with(configuration: &SdkConfig, address: &Address) -> Result<(), OpenError> {
    let client = client(configuration, address);
    let clock = SystemClock::start().map_err(|cause| {
        OpenError::refused(format!("the system refuses the thread that waits for a new table: {cause}"))
    })?;
    create(&client, address, &clock).await?;
    check(&client, address).await?;
    try_rights(&Requests::new(client, address.table.clone()), address).await
}

/// What leaders and their standbys need. A transaction needs the rights of its parts.
const ACTIONS: [&str; 9] = [
    "GetItem",
    "BatchGetItem",
    "Query",
    "UpdateItem",
    "ConditionCheckItem",
    "PutItem",
    "DeleteItem",
    "DescribeTable",
    "DescribeTimeToLive",
];

/// Sends each kind of request for a key that no leader has, where a write is refused: credentials that lack a right are
/// told so here, and not when they are to lead. Other failures say nothing of rights.
async fn try_rights(requests: &Requests, address: &Address) -> Result<(), OpenError> {
    let key = ElectionKey { cluster: "vvm init-storage".into(), slot: SlotNumber::FIRST }.partition();
    let (at, incarnation) = (key.as_bytes(), Incarnation::from_bytes([0; 16]));
    let (Ok(epoch), Ok(put), Ok(delete)) = (Epoch::new(1), DocumentId::new("put"), DocumentId::new("delete"))
    else {
        return Ok(());
    };
    let (fence, only_if) = (Fence { epoch, incarnation, after: DocumentVersion::NONE }, OnlyIf::Always);
    let batch = [
        DocumentWrite::Put { id: put, body: Bytes::new(), only_if },
        DocumentWrite::Delete { id: delete, only_if },
    ];
    let scan = Scan { limit: 1, ..Scan::default() };
    let release = requests::release(requests.update(at), incarnation, epoch);
    let tried = [
        requests.read(at).await.err(),
        requests.peek(slice::from_ref(&key)).await.err(),
        requests.scan_documents(at, &scan).await.err(),
        requests.unless_refused(release).await.err(),
        requests.write_documents(at, &fence, &batch).await.err(),
    ];
    let denial = tried.into_iter().flatten().find(|failure| matches!(failure, DriverError::Denied(_)));
    denial.map_or(Ok(()), |denial| Err(of_failure(address, denial)))
}

/// The statement of a policy that allows all of it.
fn policy(Address { region, table, .. }: &Address) -> String {
    let actions: Vec<_> =
        ACTIONS.iter().chain(&["CreateTable"]).map(|name| format!("\"dynamodb:{name}\"")).collect();
    format!(
        r#"{{"Effect": "Allow", "Action": [{}], "Resource": "arn:aws:dynamodb:{region}:*:table/{table}"}}"#,
        actions.join(", ")
    )
}

const PACE: Duration = Duration::from_millis(500);

const KEYS: [(&str, ScalarAttributeType, KeyType); 2] =
    [(PARTITION, ScalarAttributeType::B, KeyType::Hash), (PLACE, ScalarAttributeType::B, KeyType::Range)];

/// Creates the table if it is missing, and waits until it can be used. Several processes may do so at once.
pub(super) async fn create(client: &Client, address: &Address, clock: &dyn Clock) -> Result<(), OpenError> {
    if look(client, address).await?.is_none() {
        send_creation(client, address).await?;
    }
    let give_up_at = clock.now().after(CREATION_TIMEOUT);
    loop {
        // A server may not know yet of a table that was created a moment ago.
        match look(client, address).await?.and_then(|table| table.table_status) {
            None | Some(TableStatus::Creating) if clock.now() < give_up_at => clock.sleep(PACE).await,
            None | Some(TableStatus::Creating) => return Err(being_created(address)),
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
            .map_err(|error| of_failure(address, DriverError::of_building(&error)))?;
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
        Err(error) => Err(of_failure(address, DriverError::of(error))),
    }
}

pub(super) async fn check(client: &Client, address: &Address) -> Result<(), OpenError> {
    let table = &address.table;
    let Some(found) = look(client, address).await? else { return Err(no_table(address)) };
    match &found.table_status {
        Some(TableStatus::Active | TableStatus::Updating) => {}
        Some(TableStatus::Creating) => return Err(being_created(address)),
        other => {
            let status = other.as_ref().map_or("without a status", TableStatus::as_str);
            return Err(OpenError::refused(format!(
                "table `{table}` can't be used, its status is {status}: repair it, or use another table"
            )));
        }
    }
    if let Some(why) = difference(&found) {
        return Err(OpenError::refused(format!(
            "table `{table}` was not created by vvm: {why}. Use another table; `vvm init-storage` creates one"
        )));
    }
    if let Some(regions) = replicated_to(&found) {
        return Err(OpenError::refused(format!(
            "table `{table}` is a global table, replicated to {regions}: two regions would have two leaders. \
             Use a table of one region"
        )));
    }
    let answer = client.describe_time_to_live().table_name(&address.table).send().await;
    let answer = answer.map_err(|error| of_failure(address, DriverError::of(error)))?;
    let Some(found) = answer.time_to_live_description else { return Ok(()) };
    match (found.time_to_live_status, found.attribute_name) {
        (None | Some(TimeToLiveStatus::Disabled), _) => Ok(()),
        (_, Some(attribute)) if ATTRIBUTES.contains(&attribute.as_str()) => Err(OpenError::refused(format!(
            "table `{table}` has time to live on attribute `{attribute}`, and would delete leader records \
                 while they are held: switch it off (`aws dynamodb update-time-to-live`), or use another table"
        ))),
        // Items of elections do not have the attribute.
        _ => Ok(()),
    }
}

pub(super) async fn look(client: &Client, address: &Address) -> Result<Option<TableDescription>, OpenError> {
    match client.describe_table().table_name(&address.table).send().await.map_err(DriverError::of) {
        Ok(answer) => Ok(answer.table),
        Err(DriverError::NoTable(_)) => Ok(None),
        Err(failure) => Err(of_failure(address, failure)),
    }
}

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

/// The older kind of global table does not list its regions.
fn replicated_to(table: &TableDescription) -> Option<String> {
    let regions: Vec<_> = table.replicas().iter().filter_map(|replica| replica.region_name()).collect();
    match (regions.is_empty(), table.global_table_version()) {
        (true, None) => None,
        (true, Some(_)) => Some("other regions".to_owned()),
        (false, _) => Some(regions.join(", ")),
    }
}

fn of_failure(address: &Address, failure: DriverError) -> OpenError {
    let (place, region) = (address.place(), &address.region);
    match failure {
        DriverError::NotSent(cause) => OpenError::passing(format!(
            "no answer from {place}: check the region, the endpoint and the network ({cause})"
        )),
        DriverError::NoCredentials(said) => no_credentials(&said),
        DriverError::Credentials(said) => OpenError::refused(format!(
            "AWS rejects these credentials: renew or correct them, check the machine's clock, and check that \
             the account uses region {region} ({said})"
        )),
        DriverError::Denied(_) => OpenError::refused(format!(
            "{failure}. Leaders and standbys need all of this, and `vvm init-storage` alone CreateTable: {}",
            policy(address)
        )),
        DriverError::Damaged(_) | DriverError::Closed(_) => OpenError::refused(failure.to_string()),
        DriverError::NoTable(_) => no_table(address),
        DriverError::Refused(said) => {
            OpenError::refused(format!("{place} refuses the request, and may not be DynamoDB: {said}"))
        }
        DriverError::Throttled(said)
        | DriverError::Conflict(said)
        | DriverError::Global(said)
        | DriverError::Unanswered(said) => {
            OpenError::passing(format!("{place} failed a request: {said}. Try again"))
        }
    }
}

fn no_table(address: &Address) -> OpenError {
    OpenError::missing(format!(
        "there is no table `{}` in {}: if it is in another region, correct the URL; to create it, run `vvm \
         init-storage` with this URL",
        address.table,
        address.place()
    ))
}

fn being_created(address: &Address) -> OpenError {
    OpenError::passing(format!("table `{}` is being created: try again in a few seconds", address.table))
}

pub(super) async fn describe(client: &Client, table: &str) -> Result<Description, DriverError> {
    let answer = client.describe_table().table_name(table).send().await.map_err(DriverError::of)?;
    let description = Description::new("DynamoDB");
    Ok(match &answer.table {
        Some(table) => of_table(table, description),
        None => description,
    })
}

fn of_table(table: &TableDescription, mut description: Description) -> Description {
    if let Some(arn) = table.table_arn() {
        description = description.with("table", arn);
    }
    if table.deletion_protection_enabled() == Some(true) {
        return description.with("deletion protection", "on");
    }
    description.with("deletion protection", "off").concerned(
        "deletion protection is off, and a deleted table loses its epochs: run `aws dynamodb update-table \
         --deletion-protection-enabled --table-name NAME`",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_protection_is_a_concern() {
        let concerns = |protected| {
            let table = TableDescription::builder().deletion_protection_enabled(protected).build();
            of_table(&table, Description::default()).concerns
        };
        assert!(concerns(false)[0].contains("--deletion-protection-enabled"));
        assert_eq!(concerns(true), Vec::<String>::new());
    }
}
