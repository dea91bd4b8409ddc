//! `resumable-copy`: start several processes and kill any of them at any time; the folder is copied.
//!
//! ```text
//! resumable-copy --storage sqlite:$HOME/copy.db --from photos --to backup --pause-ms 50
//! ```
#![forbid(unsafe_code)]

use clap::Parser;
use primary_only::{Outcome, RegistryBuilder, RegistryConfig, ServiceHandle};
use resumable_copy::{Copies, Plan, Progress};
use std::{
    error::Error, io::IsTerminal as _, net::SocketAddr, path::PathBuf, process::ExitCode, sync::Arc,
    time::Duration,
};
use tokio::sync::mpsc;
use vvm_clock::Clock;
use vvm_host::{Host, HostSettings, Ttl};
use vvm_orch::service_fn;

/// Copies a folder. Start it several times: one process copies, and another one continues after a kill.
#[derive(Clone, Parser, Debug)]
#[command(name = "resumable-copy")]
struct Args {
    /// The storage that all processes share.
    #[arg(long)]
    storage: String,
    /// The folder to copy.
    #[arg(long)]
    from: PathBuf,
    /// The destination.
    #[arg(long)]
    to: PathBuf,
    /// The copy's name. Another name is another copy.
    #[arg(long, default_value = "copy")]
    name: String,
    /// The number of bytes that a step copies.
    #[arg(long, default_value_t = 1 << 20)]
    piece: usize,
    /// The pause after each step, in milliseconds.
    #[arg(long, default_value_t = 0)]
    pause_ms: u64,
    /// How long after a leader's death another one may lead, in milliseconds.
    #[arg(long, default_value_t = 2_000)]
    ttl_ms: u64,
    /// The address of this process's status: /status, /metrics, and a page.
    #[arg(long)]
    http: Option<SocketAddr>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let level = tracing_subscriber::filter::LevelFilter::WARN;
    tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).init();
    match run(Args::parse()).await {
        Ok(status) => status,
        Err(error) => {
            eprintln!("resumable-copy: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: Args) -> Result<ExitCode, Box<dyn Error>> {
    // Absolute, because the next leader may run in another folder.
    let (from, to) = (args.from.canonicalize()?, std::path::absolute(&args.to)?);
    if to.starts_with(&from) {
        return Err(format!("{} is inside {}: choose a folder outside", to.display(), from.display()).into());
    }
    let begin = Progress::begin(from.clone(), to, &Plan::of(&from)?);
    let mut settings = HostSettings::new(args.storage, args.name.as_str());
    settings.ttl = Ttl::new(Duration::from_millis(args.ttl_ms))?;
    settings.http = args.http;
    let mut host = Host::open(settings).await?;

    let mut services = RegistryBuilder::new(RegistryConfig::new(host.env()));
    let (pause, clock) = (Duration::from_millis(args.pause_ms), host.env().clock.clone());
    let copies = services.register(Copies { piece: args.piece, pause, clock: clock.clone() })?;
    let registry = services.build();
    host.show(&registry);
    if let Some(address) = host.http() {
        eprintln!("resumable-copy: http://{address}/ shows the status");
    }

    let (done, mut outcome) = mpsc::unbounded_channel();
    let stop = host.stop();
    let ended = host.run(move || {
        let (registry, copies, name, begin) =
            (registry.clone(), copies.clone(), args.name.clone(), begin.clone());
        let (clock, done, stop) = (clock.clone(), done.clone(), stop.clone());
        vec![service_fn("copies", async move |cx| {
            let asking = async {
                // Received after the host has ended.
                let _ = done.send(copy(&copies, name, begin, clock).await);
                stop.cancel();
            };
            let (led, ()) = tokio::join!(registry.lead(cx.standing, cx.stop), asking);
            Ok(led?)
        })]
    });
    let ended = ended.await;
    match outcome.recv().await {
        Some(Ok(done)) => {
            println!("{}", serde_json::to_string(&done)?);
            Ok(ExitCode::SUCCESS)
        }
        Some(Err(failure)) => Err(failure.into()),
        None => Err(format!("not done: {ended}; start it again to continue").into()),
    }
}

/// Begins the copy or finds it, and shows its progress until it has ended in this process.
async fn copy(
    copies: &ServiceHandle<Copies>,
    name: String,
    begin: Progress,
    clock: Arc<dyn Clock>,
) -> Result<Progress, String> {
    let copy = copies.get_or_create(name, begin).await.map_err(|error| error.to_string())?.handle;
    let is_watched = std::io::stderr().is_terminal();
    let outcome = loop {
        tokio::select! {
            biased;
            outcome = copy.completed() => break outcome,
            () = clock.sleep(Duration::from_secs(1)) => {
                let Progress { files, bytes, steps, .. } = copy.task().progress();
                if is_watched {
                    eprintln!("resumable-copy: {bytes} bytes, {files} files, {steps} steps");
                }
            }
        }
    };
    match outcome {
        Outcome::Completed => Ok(copy.task().progress()),
        other => Err(other.to_string()),
    }
}
