//! `payroll`: a service that leads inside its own process. Its database is also the storage of the election.
//!
//! Start several with `DATABASE_URL=postgres://payroll@127.0.0.1/payroll`, the first time with `--init`.
#![forbid(unsafe_code)]

use clap::Parser;
use std::{env, process::ExitCode, sync::Arc, time::Duration};
use tokio_postgres::{Client, Config, NoTls};
use vvm_clock::Clock;
use vvm_host::{Host, HostSettings, Ttl, service_fn};
use vvm_orch::{BoxError, ServiceContext};
use vvm_storage::{ElectionKey, init_storage};
use workers::{SCHEMA, pay};

/// Makes a payment every second, in one process at a time. `DATABASE_URL` names a database on loopback, without TLS.
#[derive(Clone, Debug, Parser)]
#[command(name = "payroll")]
struct Settings {
    /// What is led. Processes of one name take turns.
    #[arg(long, default_value = "payroll")]
    name: String,
    /// How long after a leader's death another one may lead, in milliseconds.
    #[arg(long, default_value_t = 20_000)]
    ttl_ms: u64,
    /// Creates the tables of the service and of the election, and ends.
    #[arg(long)]
    init: bool,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run(Settings::parse()).await {
        Ok(status) => status,
        Err(error) => {
            eprintln!("payroll: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(settings: Settings) -> Result<ExitCode, BoxError> {
    let url = env::var("DATABASE_URL").map_err(|_| "DATABASE_URL must name the database, as postgres://…")?;
    let database: Config = url.parse()?;
    if settings.init {
        init_storage(&url).await?;
        connected(&database, async |client| Ok(client.batch_execute(SCHEMA).await?)).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut election = HostSettings::new(url, &settings.name);
    election.ttl = Ttl::new(Duration::from_millis(settings.ttl_ms))?;
    let host = Host::open(election).await?;
    let clock = Arc::clone(&host.env().clock);
    let ended = host.run(move || {
        let (database, name, clock) = (database.clone(), settings.name.clone(), Arc::clone(&clock));
        vec![service_fn("payroll", move |cx| pay_until_stopped(cx, database, name, clock))]
    });
    let ended = ended.await;
    eprintln!("payroll: {ended}");
    Ok(ended.into())
}

/// The service. Starts when this process leads.
async fn pay_until_stopped(
    cx: ServiceContext<ElectionKey>,
    database: Config,
    name: String,
    clock: Arc<dyn Clock>,
) -> Result<(), BoxError> {
    // Each slot has a leader and epochs of its own.
    let resource = format!("{name}/{}", cx.slot.slot);
    let epoch = i64::try_from(cx.standing.epoch().get())?;
    connected(&database, async |mut client| {
        while !cx.stop.is_cancelled() {
            pay(&mut client, &resource, epoch).await?;
            println!("paid under epoch {epoch}");
            tokio::select! {
                biased;
                () = cx.stop.cancelled() => {}
                () = clock.sleep(Duration::from_secs(1)) => {}
            }
        }
        Ok(())
    })
    .await
}

async fn connected(
    database: &Config,
    work: impl AsyncFnOnce(Client) -> Result<(), BoxError>,
) -> Result<(), BoxError> {
    let (client, connection) = database.connect(NoTls).await?;
    // A broken connection fails the work, which then drops its client.
    let (done, closed) = tokio::join!(work(client), connection);
    done?;
    Ok(closed?)
}
