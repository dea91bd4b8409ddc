/// PostgreSQL: one prepared statement for each verb, in a table of the driver's shape.
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

    pub(in super::super) struct Postgres {
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
        written: HashMap<u32, UpdateVersion>,
    }

    impl Objects {
        /// Credentials come from the environment. A server that this program starts needs no option but the endpoint.
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
