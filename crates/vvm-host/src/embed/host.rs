//! [`Host`] itself: opened, and then run to its end.

use super::{
    Ended, HostError, HostSettings, Services, campaigns::Campaigns, primary::PrimaryOnly, stop::StopSignals,
};
use crate::{
    http::{Answers, HttpServer},
    identity,
    neighbours::{LocalDir, Neighbours},
    requests::{Gate, Lookout},
    situation::{Candidate, Situation},
    storage_watch::WatchedStorage,
};
use ielections::{Env, Layer as _};
use primary_only::Registry;
use std::{fmt, future::pending, net::SocketAddr, sync::Arc};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use vvm_deadman::{Deadman, SystemOptions};
use vvm_storage::ElectionsTtlStorage;

/// Runs services of this program only while it leads.
///
/// ```no_run
/// use std::process::ExitCode;
/// use vvm_host::{Host, HostSettings};
/// use vvm_orch::service_fn;
///
/// #[tokio::main]
/// async fn main() -> ExitCode {
///     let host = match Host::open(HostSettings::new("sqlite:payroll.db", "payroll")).await {
///         Ok(host) => host,
///         Err(refusal) => {
///             eprintln!("{refusal}");
///             return refusal.exit_status().into();
///         }
///     };
///     let ended = host.run(|| {
///         vec![service_fn("payroll", async |cx| {
///             println!("this process leads, with epoch {}", cx.standing.epoch());
///             cx.stop.cancelled().await;
///             Ok(())
///         })]
///     });
///     let ended = ended.await;
///     eprintln!("{ended}");
///     ended.into()
/// }
/// ```
pub struct Host {
    campaigns: Campaigns,
    http: Option<HttpServer>,
    shown: Option<PrimaryOnly>,
    signals: StopSignals,
}

impl Host {
    /// Opens the storage, and makes sure of everything that a leader needs, before anything is led.
    ///
    /// From here on TERM and INT don't end the process: [`run`](Self::run) heeds them.
    ///
    /// # Errors
    /// [`HostError`].
    ///
    /// # Panics
    /// Outside of a tokio runtime with time and I/O.
    ///
    /// # Cancel safety
    /// May be dropped at will.
    pub async fn open(settings: HostSettings) -> Result<Self, HostError> {
        Self::open_with(settings, Deadman::system(SystemOptions::default())?).await
    }

    /// [`open`](Self::open), with what is to happen at the kill deadline.
    pub(crate) async fn open_with(settings: HostSettings, deadman: Deadman) -> Result<Self, HostError> {
        let holder = identity::or_own_name(settings.holder.as_ref())?;
        let env = Env::system(deadman, Handle::current())?;
        let opened = vvm_storage::open(&settings.storage, Arc::clone(&env.clock)).await;
        let opened = opened.map_err(|cause| HostError::Storage { url: settings.storage.clone(), cause })?;
        let storage = Arc::new(ElectionsTtlStorage::new(opened));
        storage.settle_slot_count(&settings.cluster(), settings.slots).await?;
        let candidate = Candidate {
            name: settings.name.clone(),
            holder: holder.clone(),
            slots: settings.slots,
            ttl: settings.ttl,
        };
        let situation = Arc::new(Situation::new(candidate, Arc::clone(&env.clock)));
        let stop = CancellationToken::new();
        let lookout = Arc::new(Lookout::of(storage, settings.cluster()));
        let behind = Arc::clone(&lookout).into_storage();
        let watched = Arc::new(WatchedStorage::new(behind, Arc::clone(&situation), stop.clone()));
        let clock = Arc::clone(&env.clock);
        let met = Neighbours::meet(&settings.local_dir, &settings.name, Arc::clone(&clock));
        let neighbours = match met {
            Err(unfit) if settings.local_dir == LocalDir::Usual => {
                tracing::warn!(name = settings.name, %unfit, "not prompt on this machine");
                Neighbours::alone(Arc::clone(&clock))
            }
            met => met?,
        };
        let watched = watched.into_storage();
        let gate = Arc::new(Gate::before(watched, lookout, neighbours, holder.clone(), clock));
        let http = settings.http.map(HttpServer::bind).transpose()?;
        let signals = StopSignals::catch()?;
        let campaigns = Campaigns { settings, holder, env, situation, gate, stop };
        Ok(Self { campaigns, http, shown: None, signals })
    }

    /// Clock, spawning and the rest, for what services are made with.
    pub fn env(&self) -> &Env {
        &self.campaigns.env
    }

    /// Where HTTP is served, once the host runs.
    pub fn http(&self) -> Option<SocketAddr> {
        self.http.as_ref().map(HttpServer::address)
    }

    /// Has HTTP show the services and instances of `registry`, too: in `/status`, in `/metrics`, and on the page. To be
    /// led, it still has to be one of the [`Services`](super::Services). Of two, the later one is shown.
    pub fn show(&mut self, registry: &Registry) {
        self.shown = Some(PrimaryOnly::of(registry));
    }

    /// Stops the host when it is cancelled, as TERM does.
    pub fn stop(&self) -> CancellationToken {
        self.campaigns.stop.clone()
    }

    /// Campaigns, runs what `services` returns while leading, and goes on so until that is over for good.
    ///
    /// `services` is called once for each campaign. An operator's `vvm pause` or `vvm step-down` stops them, and is followed by
    /// another campaign; nothing is started while the name is paused. TERM and INT stop; a second one ends the process at once, of that
    /// signal. Returns when all has stopped: services joined, the record handed back, the storage closed.
    ///
    /// # Cancel safety
    /// Dropping the future shuts down without waiting: as long as the runtime lives, services are told to stop and
    /// the record is handed back after them.
    pub async fn run(self, services: impl FnMut() -> Services + Send) -> Ended {
        let Self { campaigns, http, shown, signals } = self;
        let answers = Answers::new(Arc::clone(&campaigns.situation));
        let answers = match shown {
            Some(shown) => answers.with(Arc::new(shown)),
            None => answers,
        };
        let answering = async {
            match http {
                Some(server) => server.serve(&answers, &campaigns.env.clock).await,
                None => pending().await,
            }
        };
        let ended = tokio::select! {
            biased;
            never = signals.heed(&campaigns.stop, &campaigns.env.clock) => match never {},
            ended = campaigns.run(services) => ended,
            // Last: whoever asks can wait.
            never = answering => match never {},
        };
        campaigns.situation.ends(ended.to_string());
        campaigns.gate.close().await;
        ended
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("Host").field(&self.campaigns).finish()
    }
}
