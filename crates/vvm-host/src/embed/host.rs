//! [`Host`] itself: opened, and then run to its end.

use super::{Ended, HostError, HostSettings, OnLoss, stop::StopSignals};
use crate::identity;
use deadman::{Deadman, SystemOptions};
use ielections::{Elections, Env, Holder, TtlStorage as _, elections};
use std::{fmt, sync::Arc};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use vvm_orch::{Problem, Service, Vvm, VvmConfig};
use vvm_storage::{ClusterName, ElectionKey, ElectionsTtlStorage, SlotNumber};

/// The services of one leadership, in the order of their start.
pub type Services = Vec<Box<dyn Service<ElectionKey>>>;

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
    settings: HostSettings,
    holder: Holder,
    env: Env,
    storage: Arc<ElectionsTtlStorage>,
    signals: StopSignals,
    stop: CancellationToken,
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
        let holder = identity::or_own_name(settings.holder.as_ref())?;
        let deadman = Deadman::system(SystemOptions::default())?;
        let env = Env::system(deadman, Handle::current())?;
        let opened = vvm_storage::open(&settings.storage, Arc::clone(&env.clock)).await;
        let opened = opened.map_err(|cause| HostError::Storage { url: settings.storage.clone(), cause })?;
        let storage = Arc::new(ElectionsTtlStorage::new(opened));
        storage.settle_slot_count(&settings.cluster(), settings.slots).await?;
        let signals = StopSignals::catch()?;
        Ok(Self { settings, holder, env, storage, signals, stop: CancellationToken::new() })
    }

    /// Clock, spawning and the rest, for what services are made with.
    pub fn env(&self) -> &Env {
        &self.env
    }

    /// Stops the host when it is cancelled, as TERM does.
    pub fn stop(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Campaigns, runs what `services` returns while leading, and goes on so until that is over for good.
    ///
    /// `services` is called once for each campaign. TERM and INT stop; a second one ends the process at once, of that
    /// signal. Returns when all has stopped: services joined, the record handed back, the storage closed.
    ///
    /// # Cancel safety
    /// Dropping the future shuts down without waiting: as long as the runtime lives, services are told to stop and
    /// the record is handed back after them.
    pub async fn run(self, mut services: impl FnMut() -> Services + Send) -> Ended {
        let Self { settings, holder, env, storage, signals, stop } = self;
        let campaigns = async {
            loop {
                let elections = elections(Arc::clone(&storage) as Arc<_>, env.clone());
                let ended = campaign(&settings, &holder, &env, elections, services(), &stop).await;
                tracing::info!(name = settings.name, %ended, "the campaign has ended");
                let is_loss = matches!(ended, Ended::Problem(Problem::Lost(_)));
                if !is_loss || settings.on_loss == OnLoss::Exit || stop.is_cancelled() {
                    break ended;
                }
            }
        };
        let ended = tokio::select! {
            biased;
            never = signals.heed(stop.clone(), Arc::clone(&env.clock)) => match never {},
            ended = campaigns => ended,
        };
        storage.close().await;
        ended
    }
}

/// One campaign, and the leadership that it may come to, until all of it has ended.
async fn campaign(
    settings: &HostSettings,
    holder: &Holder,
    env: &Env,
    elections: Arc<dyn Elections<ElectionKey>>,
    services: Services,
    stop: &CancellationToken,
) -> Ended {
    let cluster = settings.cluster();
    let slots = SlotNumber::all(settings.slots).map(|slot| ElectionKey { cluster: cluster.clone(), slot });
    let mut config = VvmConfig::new(slots.collect(), holder.clone(), env);
    config.stop_timeout = settings.stop_timeout;
    let vvm = Vvm::provide(config, elections, services).launch(settings.ttl, settings.acquisition);
    let problem = tokio::select! {
        biased;
        problem = vvm.problem() => problem,
        () = stop.cancelled() => None,
    };
    let stopped = vvm.shutdown().await;
    match problem.or(stopped.err()) {
        Some(problem) => Ended::Problem(problem),
        None => Ended::Stopped,
    }
}

impl HostSettings {
    fn cluster(&self) -> ClusterName {
        ClusterName::from(self.name.as_str())
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Host").field("settings", &self.settings).field("holder", &self.holder).finish()
    }
}
