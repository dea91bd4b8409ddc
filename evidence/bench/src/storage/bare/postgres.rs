//! PostgreSQL: one prepared statement for each verb, in a table of the driver's shape.

use super::{BareError, BareStatements, BareWriter, HOLDER, INCARNATION, TTL_NANOS, key};
use async_trait::async_trait;
use std::ops::Range;
use tokio::task::JoinSet;
use tokio_postgres::{Client, NoTls, Statement};

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

pub(super) struct Postgres {
    /// Host, port, user and database.
    place: String,
    writer: Writer,
    connections: JoinSet<()>,
}

/// One of many writers.
struct Renewing {
    writer: Writer,
    slot: u32,
    /// The last one.
    write: i64,
}

/// A connection, and its statements.
struct Writer {
    client: Client,
    claim: Statement,
    renew: Statement,
    release: Statement,
}

impl Postgres {
    /// Without TLS and password: for servers of this program's own.
    pub(super) async fn connect(url: &str) -> Result<Self, BareError> {
        let place = url.split('?').next().unwrap_or(url).to_owned();
        let mut connections = JoinSet::new();
        let writer = Writer::connect(&place, &mut connections).await?;
        Ok(Self { place, writer, connections })
    }
}

impl Writer {
    async fn connect(place: &str, connections: &mut JoinSet<()>) -> Result<Self, BareError> {
        let (client, connection) = tokio_postgres::connect(place, NoTls).await?;
        connections.spawn(async move {
            // It ends with its client.
            let _ended = connection.await;
        });
        client.batch_execute(CREATION).await?;
        let (claim, renew) = (client.prepare(CLAIM).await?, client.prepare(RENEW).await?);
        let release = client.prepare(RELEASE).await?;
        Ok(Self { client, claim, renew, release })
    }

    async fn claim(&self, slot: u32) -> Result<(), BareError> {
        let (key, incarnation, holder) = (key_of_run(slot), INCARNATION.as_slice(), HOLDER.as_bytes());
        let changed =
            self.client.execute(&self.claim, &[&key, &EPOCH, &incarnation, &TTL_NANOS, &holder]).await?;
        one(changed)
    }

    async fn renew(&self, slot: u32, write: i64) -> Result<(), BareError> {
        let (key, incarnation, holder) = (key_of_run(slot), INCARNATION.as_slice(), HOLDER.as_bytes());
        let parameters: &[&(dyn tokio_postgres::types::ToSql + Sync)] =
            &[&key, &EPOCH, &incarnation, &TTL_NANOS, &holder, &write];
        one(self.client.execute(&self.renew, parameters).await?)
    }
}

/// Runs share a table.
fn key_of_run(slot: u32) -> Vec<u8> {
    [key(slot).as_slice(), &std::process::id().to_be_bytes()].concat()
}

fn one(changed: u64) -> Result<(), BareError> {
    if changed == 1 { Ok(()) } else { Err("a write without a competitor changed nothing".into()) }
}

#[async_trait(?Send)]
impl BareStatements for Postgres {
    async fn claim(&mut self, slot: u32) -> Result<(), BareError> {
        self.writer.claim(slot).await
    }

    async fn renew(&mut self, slot: u32) -> Result<(), BareError> {
        self.writer.renew(slot, 0).await
    }

    async fn release(&mut self, slot: u32) -> Result<(), BareError> {
        let (key, incarnation) = (key_of_run(slot), INCARNATION.as_slice());
        one(self.writer.client.execute(&self.writer.release, &[&key, &EPOCH, &incarnation]).await?)
    }

    async fn writers(&mut self, slots: Range<u32>) -> Result<Option<Vec<Box<dyn BareWriter>>>, BareError> {
        let mut writers: Vec<Box<dyn BareWriter>> = Vec::new();
        for slot in slots {
            let writer = Writer::connect(&self.place, &mut self.connections).await?;
            writer.claim(slot).await?;
            writers.push(Box::new(Renewing { writer, slot, write: 0 }));
        }
        Ok(Some(writers))
    }
}

#[async_trait(?Send)]
impl BareWriter for Renewing {
    async fn renew(&mut self) -> Result<(), BareError> {
        self.writer.renew(self.slot, self.write).await?;
        self.write += 1;
        Ok(())
    }
}
