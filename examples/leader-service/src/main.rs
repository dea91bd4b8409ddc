//! `leader-service`: a TCP service that one process of many offers, the one that leads.
//!
//! ```text
//! leader-service --storage sqlite:service.db --listen 127.0.0.1:7000 --http 127.0.0.1:8001
//! leader-service --storage sqlite:service.db --listen 127.0.0.1:7000 --http 127.0.0.1:8002
//! ```
//!
//! Both share one address, because only the leader listens there. End one with Ctrl-C, or with `kill -9`, and
//! ask again: `nc 127.0.0.1 7000` answers with the epoch of whoever leads then.
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
    /// Where the leader listens.
    #[arg(long, default_value = "127.0.0.1:7000")]
    listen: SocketAddr,
    /// Where this process tells how it stands: /healthz, /readyz, /leader, /metrics, and a page.
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
        Err(refusal) => {
            eprintln!("leader-service: --ttl-ms: {refusal}");
            return ExitCode::from(64);
        }
    };
    settings.http = args.http;
    let host = match Host::open(settings).await {
        Ok(host) => host,
        Err(refusal) => {
            eprintln!("leader-service: {refusal}");
            return refusal.exit_status().into();
        }
    };
    if let Some(address) = host.http() {
        eprintln!("leader-service: http://{address}/ shows how it stands");
    }
    let ended = host.run(move || vec![service_fn("greeter", move |cx| greet(cx, args.listen))]).await;
    eprintln!("leader-service: {ended}");
    ended.into()
}

/// The service: begins when this process leads, and has ended when it returns.
async fn greet(cx: ServiceContext<ElectionKey>, listen: SocketAddr) -> Result<(), BoxError> {
    let listener = TcpListener::bind(listen).await?;
    loop {
        let (caller, _) = tokio::select! {
            biased;
            () = cx.stop.cancelled() => return Ok(()),
            accepted = listener.accept() => accepted?,
        };
        // Asked right before it counts: a leader that was paused meanwhile must not answer as one.
        let line = match cx.standing.ensure(Duration::from_millis(100)) {
            Ok(()) => format!("epoch {}\n", cx.standing.epoch()),
            Err(why) => format!("not now: {why}\n"),
        };
        // A new connection has room for a line; a caller that has gone needs no answer.
        let _ = caller.try_write(line.as_bytes());
    }
}
