//! `payroll`: a service that leads inside its own process, with the connection settings that it has anyway:
//! its database is also the storage of the election.
//!
//! Start several: `payroll --host 127.0.0.1 --user payroll --database payroll`, the first time with `--init`.
#![forbid(unsafe_code)]

use clap::Parser;
use std::{fs, io, path::PathBuf, process::ExitCode, sync::Arc, time::Duration};
use tokio_postgres::{Client, Config, NoTls};
use vvm_clock::Clock;
use vvm_host::{Host, HostSettings, Ttl, service_fn};
use vvm_orch::{BoxError, ServiceContext};
use vvm_storage::{ElectionKey, init_storage};
use workers::{SCHEMA, pay};

/// Makes a payment every second, in one process at a time.
#[derive(Clone, Debug, Parser)]
#[command(name = "payroll")]
struct Settings {
    /// The database server, at a loopback address: this example has no TLS.
    #[arg(long, default_value = "127.0.0.1")]
    host: String,
    /// Its port.
    #[arg(long, default_value_t = 5432)]
    port: u16,
    /// The user.
    #[arg(long)]
    user: String,
    /// The database.
    #[arg(long)]
    database: String,
    /// A file with the password in its first line.
    #[arg(long)]
    password_file: Option<PathBuf>,
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

impl Settings {
    /// Returns the settings of the service's own connections.
    fn database(&self) -> io::Result<Config> {
        let mut config = Config::new();
        config.host(&self.host).port(self.port).user(&self.user).dbname(&self.database);
        if let Some(path) = &self.password_file {
            config.password(fs::read_to_string(path)?.lines().next().unwrap_or_default());
        }
        Ok(config)
    }

    /// Returns the same place as the storage of the election.
    fn storage(&self) -> String {
        let Self { host, port, user, database, .. } = self;
        let password = self.password_file.iter().map(|path| format!("?password_file={}", path.display()));
        format!("postgres://{user}@{host}:{port}/{database}{}", password.collect::<String>())
    }
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
    let database = settings.database()?;
    if settings.init {
        init_storage(&settings.storage()).await?;
        connected(&database, async |client| Ok(client.batch_execute(SCHEMA).await?)).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut election = HostSettings::new(settings.storage(), &settings.name);
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

/// Connects, and calls `work`. The connection ends with the work.
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
