//! Databases with tables, and stores of keys and of objects.

/// MariaDB: one prepared statement for each verb, in a table of the driver's shape.
#[cfg(feature = "mysql")]
pub(super) mod mysql {
    use super::super::*;
    use servers::mysql::Client;

    const CREATION: &str = "CREATE TABLE IF NOT EXISTS bench_bare (pk VARBINARY(1536) PRIMARY KEY, \
        epoch BIGINT UNSIGNED NOT NULL, incarnation VARBINARY(16), write_number BIGINT UNSIGNED, \
        ttl_nanos BIGINT UNSIGNED, holder VARBINARY(255)) ENGINE = InnoDB";
    const CLAIM: &str = "INSERT INTO bench_bare (pk, epoch, incarnation, write_number, ttl_nanos, holder) \
        VALUES (?, 1, ?, 0, ?, ?)";
    const RENEW: &str = "UPDATE bench_bare SET write_number = write_number + 1, ttl_nanos = ?, holder = ? \
        WHERE pk = ? AND epoch = 1 AND incarnation = ? AND write_number = ?";
    const RELEASE: &str = "UPDATE bench_bare SET incarnation = NULL, write_number = NULL, ttl_nanos = NULL, \
        holder = NULL WHERE pk = ? AND epoch = 1 AND incarnation = ?";

    /// A connection that blocks, and its statements.
    pub(in super::super) struct MySql {
        client: Client,
        claim: u32,
        renew: u32,
        release: u32,
    }

    impl MySql {
        /// As `root`, without TLS and password: for servers of this program's own.
        pub(in super::super) fn connect(url: &str) -> Result<Self, Failure> {
            let place = url.split(['@', '?']).nth(1).and_then(|place| place.split_once('/'));
            let (address, database) = place.ok_or("no host and database")?;
            let mut client = Client::at(address.parse()?, database)?;
            client.ask(CREATION)?;
            let [claim, renew, release] = [CLAIM, RENEW, RELEASE].map(|text| client.prepare(text));
            Ok(Self { client, claim: claim?, renew: renew?, release: release? })
        }
    }

    #[async_trait(?Send)]
    impl BareStatements for MySql {
        async fn send(&mut self, slot: u32, verb: Verb) -> Result<(), Failure> {
            let (key, incarnation, holder) = (key_of_run(slot), INCARNATION.as_slice(), HOLDER.as_bytes());
            let ttl = TTL_NANOS.to_string();
            let changed = match verb {
                Claim => self.client.execute(self.claim, &[&key, incarnation, ttl.as_bytes(), holder])?,
                Renew(number) => {
                    let last = (number - 1).to_string();
                    let row = [ttl.as_bytes(), holder, &key, incarnation, last.as_bytes()];
                    self.client.execute(self.renew, &row)?
                }
                Release => self.client.execute(self.release, &[&key, incarnation])?,
            };
            if changed == 1 { Ok(()) } else { Err("a write without a competitor changed nothing".into()) }
        }
    }
}

/// PostgreSQL: the same.
#[cfg(feature = "postgres")]
pub(super) mod sql {
    use super::super::*;
    use tokio::task::JoinSet;
    use tokio_postgres::{Client, NoTls, Statement, types::ToSql};

    const CREATION: &str = "CREATE TABLE IF NOT EXISTS bench_bare (pk bytea PRIMARY KEY, epoch bigint NOT NULL, \
        incarnation bytea, write bigint, ttl_nanos bigint, holder bytea, last_batch bigint NOT NULL DEFAULT 0) \
        WITH (fillfactor = 50)";
    const CLAIM: &str = "INSERT INTO bench_bare (pk, epoch, incarnation, write, ttl_nanos, holder) \
        VALUES ($1, $2, $3, 0, $4, $5)";
    const RENEW: &str = "UPDATE bench_bare SET epoch = $2, incarnation = $3, write = write + 1, ttl_nanos = $4, \
        holder = $5 WHERE pk = $1 AND epoch = $2 AND incarnation = $3 AND write = $6";
    const RELEASE: &str = "UPDATE bench_bare SET incarnation = NULL, write = NULL, ttl_nanos = NULL, \
        holder = NULL WHERE pk = $1 AND epoch = $2 AND incarnation = $3";

    const EPOCH: i64 = 1;

    /// A connection, and its statements.
    pub(in super::super) struct Postgres {
        /// Host, port, user and database.
        place: String,
        client: Client,
        claim: Statement,
        renew: Statement,
        release: Statement,
        /// Ends with its client.
        _connections: JoinSet<()>,
    }

    impl Postgres {
        /// Without TLS and password: for servers of this program's own.
        pub(in super::super) async fn connect(url: &str) -> Result<Self, Failure> {
            let place = url.split('?').next().unwrap_or(url).to_owned();
            let (client, connection) = tokio_postgres::connect(&place, NoTls).await?;
            let mut connections = JoinSet::new();
            connections.spawn(async move { drop(connection.await) });
            client.batch_execute(CREATION).await?;
            let (claim, renew) = (client.prepare(CLAIM).await?, client.prepare(RENEW).await?);
            let release = client.prepare(RELEASE).await?;
            Ok(Self { place, client, claim, renew, release, _connections: connections })
        }
    }

    #[async_trait(?Send)]
    impl BareStatements for Postgres {
        async fn send(&mut self, slot: u32, verb: Verb) -> Result<(), Failure> {
            let (key, incarnation, holder) = (key_of_run(slot), INCARNATION.as_slice(), HOLDER.as_bytes());
            let changed = match verb {
                Claim => {
                    let row: &[&(dyn ToSql + Sync)] = &[&key, &EPOCH, &incarnation, &TTL_NANOS, &holder];
                    self.client.execute(&self.claim, row).await?
                }
                Renew(number) => {
                    let last = i64::try_from(number)? - 1;
                    let row: &[&(dyn ToSql + Sync)] =
                        &[&key, &EPOCH, &incarnation, &TTL_NANOS, &holder, &last];
                    self.client.execute(&self.renew, row).await?
                }
                Release => self.client.execute(&self.release, &[&key, &EPOCH, &incarnation]).await?,
            };
            if changed == 1 { Ok(()) } else { Err("a write without a competitor changed nothing".into()) }
        }

        async fn another(&mut self) -> Result<Option<Box<dyn BareStatements>>, Failure> {
            Ok(Some(Box::new(Self::connect(&self.place).await?)))
        }
    }
}

/// ScyllaDB and Apache Cassandra: one lightweight transaction for each verb, in the driver's table, through a
/// session with its settings.
#[cfg(feature = "scylla")]
pub(super) mod cql {
    use super::super::*;
    use scylla::{
        client::{execution_profile::ExecutionProfile, session::Session, session_builder::SessionBuilder},
        policies::retry::FallthroughRetryPolicy,
        serialize::row::SerializeRow,
        statement::{Consistency, SerialConsistency, prepared::PreparedStatement},
        value::{CqlValue, Row},
    };
    use std::sync::Arc;

    #[derive(Clone)]
    pub(in super::super) struct Scylla {
        session: Arc<Session>,
        swap: PreparedStatement,
        release: PreparedStatement,
    }

    /// The columns of a slot; all null if it was never led.
    type Record = (Option<i64>, Option<&'static [u8]>, Option<i64>, Option<i64>, Option<&'static str>);

    fn record(write: i64) -> Record {
        (Some(1), Some(&INCARNATION), Some(write), Some(TTL_NANOS), Some(HOLDER))
    }

    impl Scylla {
        /// Uses hosts and keyspace of `url`, and no option: clusters with passwords are not measured.
        pub(in super::super) async fn connect(url: &str) -> Result<Self, Failure> {
            let place = url.strip_prefix("scylla://").ok_or("no scylla:// URL")?;
            let (hosts, rest) = place.split_once('/').ok_or("the URL names no keyspace")?;
            let keyspace = rest.split('?').next().unwrap_or_default();
            let profile = ExecutionProfile::builder()
                .retry_policy(Arc::new(FallthroughRetryPolicy::new()))
                .speculative_execution_policy(None)
                .serial_consistency(Some(SerialConsistency::Serial))
                .consistency(Consistency::Quorum)
                .build();
            let session = SessionBuilder::new()
                .known_nodes(hosts.split(','))
                .default_execution_profile_handle(profile.into_handle())
                .build()
                .await?;
            let table = format!("\"{keyspace}\".sysvvm");
            let swap = format!(
                "UPDATE {table} SET epoch = ?, incarnation = ?, write = ?, ttl_nanos = ?, holder = ? \
                 WHERE pk = ? IF epoch = ? AND incarnation = ? AND write = ? AND ttl_nanos = ? AND holder = ?"
            );
            let release = format!(
                "UPDATE {table} SET incarnation = 0x, write = 0, ttl_nanos = 0, holder = '' WHERE pk = ? \
                 IF epoch = ? AND incarnation = ? AND write >= {} AND ttl_nanos >= 0 AND holder >= ''",
                i64::MIN
            );
            let (swap, release) = (session.prepare(swap).await?, session.prepare(release).await?);
            Ok(Self { session: Arc::new(session), swap, release })
        }

        async fn execute(
            &self,
            statement: &PreparedStatement,
            values: impl SerializeRow,
        ) -> Result<(), Failure> {
            let rows = self.session.execute_unpaged(statement, values).await?.into_rows_result()?;
            match rows.first_row::<Row>()?.columns.first() {
                Some(Some(CqlValue::Boolean(true))) => Ok(()),
                _ => Err("a bare statement was refused".into()),
            }
        }
    }

    #[async_trait(?Send)]
    impl BareStatements for Scylla {
        async fn send(&mut self, slot: u32, verb: Verb) -> Result<(), Failure> {
            let (old, new) = match verb {
                Claim => ((None, None, None, None, None), record(0)),
                Renew(number) => {
                    let number = i64::try_from(number)?;
                    (record(number - 1), record(number))
                }
                Release => {
                    let values = (key_of_run(slot), 1_i64, INCARNATION.as_slice());
                    return self.execute(&self.release, values).await;
                }
            };
            let key = key_of_run(slot);
            let values = (new.0, new.1, new.2, new.3, new.4, key, old.0, old.1, old.2, old.3, old.4);
            self.execute(&self.swap, values).await
        }

        /// Those of one session.
        async fn another(&mut self) -> Result<Option<Box<dyn BareStatements>>, Failure> {
            Ok(Some(Box::new(self.clone())))
        }
    }
}

/// DynamoDB: one conditional update for each verb, in the driver's table.
#[cfg(feature = "dynamodb")]
pub(super) mod items {
    use super::super::*;
    use aws_sdk_dynamodb::{
        Client,
        config::{
            Builder, Region, StalledStreamProtectionConfig, retry::RetryConfig, timeout::TimeoutConfig,
        },
        operation::update_item::builders::UpdateItemFluentBuilder,
        primitives::Blob,
        types::{AttributeValue, ReturnValuesOnConditionCheckFailure},
    };
    use std::time::Duration;

    pub(in super::super) struct DynamoDb {
        client: Client,
        table: String,
    }

    const SET: &str = "SET #epoch = :epoch, #incarnation = :incarnation, #write = :write, #ttl_nanos = :ttl, \
                       #holder = :holder";

    impl DynamoDb {
        /// Uses only the option `endpoint` of `url`: profiles are not measured.
        pub(in super::super) async fn connect(url: &str) -> Result<Self, Failure> {
            let place = url.strip_prefix("dynamodb://").ok_or("no dynamodb:// URL")?;
            let (region, rest) = place.split_once('/').ok_or("the URL names no table")?;
            let (table, options) = rest.split_once('?').unwrap_or((rest, ""));
            let mut loader = aws_config::defaults(aws_config::BehaviorVersion::v2026_01_12())
                .region(Region::new(region.to_owned()));
            if let Some(endpoint) = options.split('&').find_map(|option| option.strip_prefix("endpoint=")) {
                loader = loader.endpoint_url(endpoint);
            }
            let timeouts = TimeoutConfig::builder()
                .connect_timeout(Duration::from_secs(1))
                .operation_attempt_timeout(Duration::from_secs(2))
                .build();
            let configuration = Builder::from(&loader.load().await)
                .retry_config(RetryConfig::disabled())
                .timeout_config(timeouts)
                .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
                .build();
            Ok(Self { client: Client::from_conf(configuration), table: table.to_owned() })
        }

        fn update(&self, slot: u32, names: &[&str]) -> UpdateItemFluentBuilder {
            let update = self
                .client
                .update_item()
                .table_name(&self.table)
                .key("pk", binary(&key_of_run(slot)))
                .key("cc", binary(&[0]))
                .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
            names
                .iter()
                .fold(update, |update, name| update.expression_attribute_names(format!("#{name}"), *name))
        }

        fn put(&self, slot: u32, write: u64, names: &[&str]) -> UpdateItemFluentBuilder {
            self.update(slot, names)
                .update_expression(SET)
                .expression_attribute_values(":epoch", number(1))
                .expression_attribute_values(":incarnation", binary(&INCARNATION))
                .expression_attribute_values(":write", number(write))
                .expression_attribute_values(":ttl", number(TTL_NANOS.unsigned_abs()))
                .expression_attribute_values(":holder", AttributeValue::S(HOLDER.into()))
        }
    }

    fn binary(bytes: &[u8]) -> AttributeValue {
        AttributeValue::B(Blob::new(bytes))
    }

    fn number(number: u64) -> AttributeValue {
        AttributeValue::N(number.to_string())
    }

    const COLUMNS: [&str; 5] = ["epoch", "incarnation", "write", "ttl_nanos", "holder"];

    #[async_trait(?Send)]
    impl BareStatements for DynamoDb {
        async fn send(&mut self, slot: u32, verb: Verb) -> Result<(), Failure> {
            let request = match verb {
                Claim => {
                    let names = [&COLUMNS[..], &["pk"]].concat();
                    self.put(slot, 0, &names).condition_expression("attribute_not_exists(#pk)")
                }
                Renew(write) => self
                    .put(slot, write, &COLUMNS)
                    .condition_expression(
                        "#epoch = :old_epoch AND #incarnation = :old_incarnation AND #write = :old_write",
                    )
                    .expression_attribute_values(":old_epoch", number(1))
                    .expression_attribute_values(":old_incarnation", binary(&INCARNATION))
                    .expression_attribute_values(":old_write", number(write - 1)),
                Release => self
                    .update(slot, &COLUMNS)
                    .update_expression("REMOVE #incarnation, #write, #ttl_nanos, #holder")
                    .condition_expression("#epoch = :epoch AND #incarnation = :incarnation")
                    .expression_attribute_values(":epoch", number(1))
                    .expression_attribute_values(":incarnation", binary(&INCARNATION)),
            };
            request.send().await?;
            Ok(())
        }
    }
}

/// etcd: one transaction on one key for each verb, through the driver's connections.
#[cfg(feature = "etcd")]
pub(super) mod keys {
    use super::super::*;
    use bytes::Bytes;
    use vvm_storage::etcd::bare::BareEtcd;

    pub(in super::super) struct Etcd {
        url: String,
        connection: BareEtcd,
    }

    impl Etcd {
        pub(in super::super) fn new(url: &str) -> Result<Self, Failure> {
            Ok(Self { url: url.to_owned(), connection: BareEtcd::new(url)? })
        }
    }

    #[async_trait(?Send)]
    impl BareStatements for Etcd {
        async fn send(&mut self, slot: u32, verb: Verb) -> Result<(), Failure> {
            let run = std::process::id().to_be_bytes();
            let name: Bytes = [b"bench-bare/", key(slot).as_slice(), &run].concat().into();
            let value = |write| Some(Bytes::from(record(write)));
            let (from, to) = match verb {
                Claim => (None, value(0)),
                Renew(number) => (value(number - 1), value(number)),
                Release => (value(1), None),
            };
            if self.connection.swap(name, from, to).await? {
                Ok(())
            } else {
                Err("a write without a competitor was refused".into())
            }
        }

        async fn another(&mut self) -> Result<Option<Box<dyn BareStatements>>, Failure> {
            Ok(Some(Box::new(Self::new(&self.url)?)))
        }
    }
}

/// Object stores with the interface of S3: one conditional PUT for each verb, through the driver's client library.
#[cfg(feature = "object-store")]
pub(super) mod objects {
    use super::super::*;
    use object_store::{
        ClientOptions, ObjectStore as _, PutMode, PutOptions, RetryConfig, UpdateVersion,
        aws::{AmazonS3, AmazonS3Builder, S3ConditionalPut},
        path::Path,
    };
    use std::collections::HashMap;

    pub(in super::super) struct Objects {
        bucket: AmazonS3,
        /// The tag of each object.
        written: HashMap<u32, UpdateVersion>,
    }

    impl Objects {
        /// Credentials are those of the environment. Options of the URL other than the endpoint are not needed
        /// for a server that this program starts.
        pub(in super::super) fn open(url: &str) -> Result<Self, Failure> {
            let (place, options) = url.split_once('?').unwrap_or((url, ""));
            let (bucket, _prefix) = place.trim_start_matches("s3://").split_once('/').unwrap_or((place, ""));
            let endpoint = options.split('&').find_map(|option| option.strip_prefix("endpoint="));
            let bucket = AmazonS3Builder::from_env()
                .with_bucket_name(bucket)
                .with_region("us-east-1")
                .with_endpoint(endpoint.ok_or("bare statements need `endpoint=` in the URL")?)
                .with_conditional_put(S3ConditionalPut::ETagMatch)
                .with_client_options(ClientOptions::new().with_http1_only().with_allow_http(true))
                .with_retry(RetryConfig { max_retries: 0, ..RetryConfig::default() })
                .build()?;
            Ok(Self { bucket, written: HashMap::new() })
        }
    }

    #[async_trait(?Send)]
    impl BareStatements for Objects {
        async fn send(&mut self, slot: u32, verb: Verb) -> Result<(), Failure> {
            let mut replaced =
                || self.written.remove(&slot).map(PutMode::Update).ok_or("an object that was not claimed");
            let (mode, write) = match verb {
                Claim => (PutMode::Create, 0),
                Renew(number) => (replaced()?, number),
                Release => (replaced()?, u64::MAX),
            };
            let path = Path::from(format!("bench-bare/{}-{slot}", std::process::id()));
            let ttl = TTL_NANOS.to_be_bytes();
            let record = [INCARNATION.as_slice(), &write.to_be_bytes(), &ttl, HOLDER.as_bytes()].concat();
            let written = self.bucket.put_opts(&path, record.into(), PutOptions::from(mode)).await?;
            self.written.insert(slot, UpdateVersion { e_tag: written.e_tag, version: written.version });
            Ok(())
        }
    }
}
