//! `leader-service`: a TCP service that only the leader of several processes offers.
//!
//! ```text
//! leader-service --storage sqlite:service.db --listen 127.0.0.1:7000 --http 127.0.0.1:8001
//! leader-service --storage sqlite:service.db --listen 127.0.0.1:7000 --http 127.0.0.1:8002
//! ```
//!
//! Both have the same address, because only the leader listens there. End one with Ctrl-C or `kill -9`. `nc
//! 127.0.0.1 7000` prints the epoch of the current leader.
#![forbid(unsafe_code)]

use clap::Parser;
use std::{net::SocketAddr, process::ExitCode, time::Duration};
use tokio::net::TcpListener;
use vvm_host::{Host, HostSettings, Ttl};
use vvm_orch::{BoxError, ServiceContext, service_fn};
use vvm_storage::ElectionKey;

/// Answers each connection with the epoch under which it leads. Start it several times.
#[derive(Debug, Parser)]
#[command(name = "leader-service")]
struct Args {
    /// The storage that all processes share.
    #[arg(long, default_value = "sqlite:leader-service.db")]
    storage: String,
    /// The address on which the leader listens.
    #[arg(long, default_value = "127.0.0.1:7000")]
    listen: SocketAddr,
    /// The address of this process's status: /healthz, /readyz, /leader, /metrics, and a page.
    #[arg(long)]
    http: Option<SocketAddr>,
    /// How long after a leader's death another one may lead, in milliseconds.
    #[arg(long, default_value_t = 5_000)]
    ttl_ms: u64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let args = Args::parse();
    let mut settings = HostSettings::new(args.storage, "leader-service");
    settings.ttl = match Ttl::new(Duration::from_millis(args.ttl_ms)) {
        Ok(ttl) => ttl,
        Err(error) => {
            eprintln!("leader-service: --ttl-ms: {error}");
            return ExitCode::from(64);
        }
    };
    settings.http = args.http;
    let host = match Host::open(settings).await {
        Ok(host) => host,
        Err(error) => {
            eprintln!("leader-service: {error}");
            return error.exit_status().into();
        }
    };
    if let Some(address) = host.http() {
        eprintln!("leader-service: http://{address}/ shows the status");
    }
    let ended = host.run(move || vec![service_fn("greeter", move |cx| greet(cx, args.listen))]).await;
    eprintln!("leader-service: {ended}");
    ended.into()
}

/// The service. Starts when this process leads.
async fn greet(cx: ServiceContext<ElectionKey>, listen: SocketAddr) -> Result<(), BoxError> {
    let listener = TcpListener::bind(listen).await?;
    loop {
        let (caller, _) = tokio::select! {
            biased;
            () = cx.stop.cancelled() => return Ok(()),
            accepted = listener.accept() => accepted?,
        };
        // Checked just before the answer, because the process may have been paused.
        let line = match cx.standing.ensure(Duration::from_millis(100)) {
            Ok(()) => format!("epoch {}\n", cx.standing.epoch()),
            Err(why) => format!("not now: {why}\n"),
        };
        // A new connection has room for a line. A closed one needs no answer.
        let _ = caller.try_write(line.as_bytes());
    }
}
