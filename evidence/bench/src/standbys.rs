//! What waiting standbys cost on PostgreSQL: transactions and connections, with notifications and without (PgBouncer).

use crate::{
    process::{self, init_storage},
    report::{Failure, Figure, Unit},
};
use harness::Level;
use ielections::Ttl;
use servers::postgres::{Pooler, Postgres};
use std::{io, time::Duration};
use tokio_postgres::NoTls;
use vvm_clock::{Clock as _, SystemClock};

/// What the candidates have done so far: transactions, and connections that are open now.
const STATISTICS: &str = "SELECT xact_commit + xact_rollback, (SELECT count(*) FROM pg_stat_activity \
    WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()) \
    FROM pg_stat_database WHERE datname = current_database()";

pub(crate) fn measure(quick: bool) -> Result<Vec<Figure>, Failure> {
    let standbys = if quick { 3 } else { 200 };
    let watched = if quick { Duration::from_secs(5) } else { Ttl::DEFAULT.get() * 3 };
    // Some for the leader, and for the statistics.
    let connections = format!("max_connections={}", standbys + 50);
    let server = Postgres::start(&servers::target(), &[], &[&connections])?;
    let url = server.url("postgres");
    init_storage(&url)?;
    let (told, connections) = wait(&url, &url, standbys, watched)?;
    let mut figures = vec![told, Figure::new("connections of each standby", Unit::Ratio, vec![connections])];
    match Pooler::start(&server)? {
        Some(pooler) => figures.push(wait(&pooler.url("postgres"), &url, standbys, watched)?.0),
        None => eprintln!("left out: standbys without notifications (install Debian's package pgbouncer)"),
    }
    Ok(figures)
}

/// Returns how many transactions each standby causes in a TTL, and its connections. `direct` is for the statistics.
fn wait(url: &str, direct: &str, standbys: u16, watched: Duration) -> Result<(Figure, f64), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let trial = process::program(Level::Guardian)?.trial();
    let start = || process::start(&trial, &[], &["--storage", url, "--name", trial.mark()]);
    let mut leader = start()?;
    leader.stdout.wait_for("alone");
    let alone = runtime.block_on(cost(direct, watched))?;
    let mut waiting = Vec::new();
    for _ in 0..standbys {
        let mut standby = start()?;
        standby.stderr.wait_for("waiting for leadership");
        waiting.push(standby);
    }
    // The first reads of all, and what the server counts late.
    SystemClock::block_for(Duration::from_secs(10));
    let all = runtime.block_on(cost(direct, watched))?;
    let each = |both: f64, leader: f64| (both - leader) / f64::from(standbys);
    let way = if url == direct { "with notifications" } else { "without them, behind PgBouncer" };
    let name = format!("transactions of each of {standbys} standbys in a TTL, {way}");
    let told = Figure::new(name, Unit::Ratio, vec![each(all.0, alone.0)]);
    Ok((told, each(all.1, alone.1)))
}

pub(crate) async fn cost(url: &str, watched: Duration) -> Result<(f64, f64), Failure> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    let reads = async {
        let read = || async {
            let row = client.query_one(STATISTICS, &[]).await?;
            Ok::<(i64, i64), tokio_postgres::Error>((row.get(0), row.get(1)))
        };
        let (before, _) = read().await?;
        SystemClock::start()?.sleep(watched).await;
        let (after, connections) = read().await?;
        let ttls = watched.div_duration_f64(Ttl::DEFAULT.get());
        Ok::<_, Failure>(((after - before) as f64 / ttls, connections as f64))
    };
    tokio::select! {
        biased;
        counted = reads => counted,
        ended = connection => Err(match ended {
            Err(cause) => cause.into(),
            Ok(()) => io::Error::from(io::ErrorKind::UnexpectedEof).into(),
        }),
    }
}
