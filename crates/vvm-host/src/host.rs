//! [`Host`]: runs services of a Rust program only while the program leads. Signals stop it and HTTP shows it. Services
//! are tasks of this process and die with it at the kill deadline.

mod campaigns;
mod ended;
mod opening;
mod services;
mod settings;

pub use ended::{HostError, HostOutcome, Next};
pub use services::{NotReady, Services, StopRequested};
pub use settings::{HostSettings, or_own_name};

use crate::{
    host_storage::HostStorage,
    http::{Answers, HttpServer},
    left_behind::{LeftBehind, OnClaim},
    local_wakeups::LocalWakeups,
    requests::Condition,
    status::{Candidate, HostStatus},
    stop::StopSignals,
    successor::{DeadlineEnforcer, UdpPeerLink},
};
use campaigns::Campaigns;
use ielections::Env;
use primary_only::Registry;
use std::{fmt, future::pending, net::SocketAddr, sync::Arc};
use tokio::{runtime::Handle, sync::watch};
use tokio_util::sync::CancellationToken;
use vvm_clock::Instant;
use vvm_deadman::Deadman;
use vvm_orch::AcquireTimeout;
use vvm_storage::{ElectionKey, ElectionsTtlStorage, SlotNumber, SysVvmStorage};

/// Runs services of this program only while it leads. The [first page](crate) has an example.
pub struct Host {
    campaigns: Campaigns,
    storage: Option<Arc<ElectionsTtlStorage>>,
    wakeups: LocalWakeups,
    http: Option<HttpServer>,
    shown: Option<Registry>,
    signals: Option<StopSignals>,
    /// Since when it waits for leadership; `None` is since `run`.
    waits_since: Option<Instant>,
    on_claim: Option<OnClaim>,
    enforcers: Vec<DeadlineEnforcer>,
}

/// How signals reach a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signals {
    /// TERM and INT stop it; HUP and QUIT if [`HostSettings`] says so. They have no effect after its end. See [`Host::open`].
    Caught,
    /// The program catches signals itself and cancels [`Host::stop`].
    Ignored,
}

impl Host {
    /// Opens the storage and reserves everything that a leader needs, before it campaigns.
    ///
    /// Once it returns a host, TERM and INT do not end the process, nor do HUP and QUIT if [`HostSettings::stop_on_hup`]
    /// and [`stop_on_quit`](HostSettings::stop_on_quit) say so: [`run`](Self::run) handles them, and nothing does once the
    /// host has ended or was dropped. A program that outlives its host uses [`with_env`](Self::with_env) with
    /// [`Signals::Ignored`]. Before this returns, and after an error, they end it as usual.
    ///
    /// # Panics
    /// Outside of a tokio runtime with time and I/O.
    ///
    /// # Cancel safety
    /// May be dropped at will.
    pub async fn open(settings: HostSettings) -> Result<Self, HostError> {
        let env = Env::with_deadman(Deadman::system()?, Handle::current())?;
        let mut host = Self::with_env(settings, env, Signals::Ignored)?;
        let opened = opening::open_once(&host.campaigns.settings, &host.campaigns.env.clock).await?;
        host.storage = Some(opened);
        host.catch_signals()?;
        Ok(host)
    }

    /// [`open`](Self::open) on a storage that the program has opened itself, with its own client for example.
    /// [`HostSettings::storage`] is not opened. The host closes `storage` when it ends.
    ///
    /// # Panics
    /// Outside of a tokio runtime with time and I/O.
    ///
    /// # Cancel safety
    /// May be dropped at will.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn open() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::{path::Path, sync::Arc};
    /// use vvm_host::{Host, HostSettings, storage::sqlite::{OpenOptions, SqliteStorage}};
    ///
    /// let file = Path::new("/var/lib/payroll/leader.db");
    /// let storage = Arc::new(SqliteStorage::open(file, OpenOptions::default()).await?);
    /// let host = Host::open_on(HostSettings::new("opened by this program", "payroll"), storage).await?;
    /// # drop(host);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn open_on(settings: HostSettings, storage: Arc<dyn SysVvmStorage>) -> Result<Self, HostError> {
        let env = Env::with_deadman(Deadman::system()?, Handle::current())?;
        let mut host = Self::with_env(settings, env, Signals::Ignored)?;
        let checked = opening::prepare(storage, &host.campaigns.settings, &host.campaigns.env.clock).await?;
        host.storage = Some(checked);
        host.catch_signals()?;
        Ok(host)
    }

    /// Makes a host from the parts of this process, without opening the storage: [`run`](Self::run) opens it,
    /// and tries again while the obstacle may pass. HTTP answers meanwhile.
    ///
    /// # Errors
    /// [`HostError`], except for those of the storage.
    ///
    /// # Panics
    /// Outside of a tokio runtime with time and I/O.
    pub fn with_env(settings: HostSettings, env: Env, signals: Signals) -> Result<Self, HostError> {
        if let Some(meant) = vvm_storage::url::meaning_of_relative_path(&settings.storage) {
            let (name, meant) = (settings.name.as_str(), meant.display().to_string());
            tracing::warn!(
                target: "vvm", event = "relative_storage", name, storage = meant,
                "{name}: the path of the storage is relative, and means {meant} in this folder; a candidate in \
                 another folder would lead beside this one: write the whole path"
            );
        }
        let holder = or_own_name(settings.holder.as_ref())?;
        let candidate =
            Candidate { name: settings.name.clone(), holder, slots: settings.slots, ttl: settings.ttl };
        let status = Arc::new(HostStatus::new(candidate, Arc::clone(&env.clock)));
        let wakeups = wakeups(&settings);
        let http = settings.http.map(HttpServer::bind).transpose()?;
        let successor = match &settings.successor {
            Some(successor) => {
                let period = successor.checked(settings.slots, &settings.storage, settings.ttl)?;
                let key = ElectionKey { cluster: settings.cluster(), slot: SlotNumber::FIRST };
                let link = Arc::new(UdpPeerLink::bind(successor, period, &key, &env)?);
                status.shows_link(&link);
                Some(link)
            }
            None => None,
        };
        let stop = CancellationToken::new();
        let condition = Condition::default();
        let campaigns = Campaigns { settings, env, status, stop, condition, successor };
        let (storage, shown, waits_since, on_claim) = (None, None, None, None);
        let enforcers = Vec::new();
        let mut host = Self {
            campaigns,
            storage,
            wakeups,
            http,
            shown,
            signals: None,
            waits_since,
            on_claim,
            enforcers,
        };
        if signals == Signals::Caught {
            host.catch_signals()?;
        }
        Ok(host)
    }

    /// The last thing that may fail: nothing gives a signal its default action back.
    fn catch_signals(&mut self) -> Result<(), HostError> {
        let HostSettings { stop_on_hup, stop_on_quit, .. } = self.campaigns.settings;
        self.signals = Some(StopSignals::catch(stop_on_hup, stop_on_quit)?);
        Ok(())
    }

    /// Makes a host on a storage that is open already, without HTTP, signals and local wake-ups. With the
    /// parts of `env` it needs no async runtime. [`HostSettings::storage`] has no effect.
    ///
    /// # Errors
    /// If this machine has no name for a holder.
    #[cfg(feature = "testing")]
    pub fn on_storage(
        settings: HostSettings,
        env: Env,
        storage: Arc<dyn SysVvmStorage>,
    ) -> Result<Self, HostError> {
        let settings = HostSettings { http: None, local_dir: crate::LocalDir::None, ..settings };
        let mut host = Self::with_env(settings, env, Signals::Ignored)?;
        host.storage = Some(Arc::new(ElectionsTtlStorage::new(storage)));
        Ok(host)
    }

    /// Returns clock, spawning and the rest, for services that need them.
    pub fn env(&self) -> &Env {
        &self.campaigns.env
    }

    /// Returns the address of the HTTP server, which answers while the host runs.
    pub fn http(&self) -> Option<SocketAddr> {
        self.http.as_ref().map(|server| server.address)
    }

    /// Adds the services and instances of `registry` to `/status`, `/metrics` and the page. To be led,
    /// `registry` still has to be one of the [`Services`]. The last call counts.
    pub fn show(&mut self, registry: &Registry) {
        self.shown = Some(registry.clone());
    }

    /// Reports to OpenTelemetry: the metrics of `/metrics`, and a span `vvm.leadership` for each leadership. Call it
    /// once, after [`show`](Self::show).
    ///
    /// Pass the providers of your program, or [`opentelemetry::global`]'s. Names and attributes are those of `/metrics`
    /// without `_seconds` and `_total`, which the unit and the kind of an instrument say. A span has name, holder, slot,
    /// epoch and incarnation, and at its end `vvm.end` and `vvm.reason`, for a loss also `vvm.loss` and the status
    /// "error". It ends when the work has stopped and the record is handed back or lost. A process that is killed at its
    /// deadline reports no span: `vvm history` knows that leadership.
    ///
    /// The host waits for no exporter, as long as the providers export on threads of their own. A `PeriodicReader`
    /// and a `BatchSpanProcessor` do; a `SimpleSpanProcessor` would delay the host.
    ///
    /// ```no_run
    /// # async fn run(settings: vvm_host::HostSettings) -> Result<(), Box<dyn std::error::Error>> {
    /// use opentelemetry_otlp::{MetricExporter, SpanExporter};
    /// use opentelemetry_sdk::{metrics::SdkMeterProvider, trace::SdkTracerProvider};
    /// use vvm_host::{Host, service_fn};
    ///
    /// // To OTEL_EXPORTER_OTLP_ENDPOINT, as OTEL_SERVICE_NAME.
    /// let spans = SpanExporter::builder().with_http().build()?;
    /// let tracers = SdkTracerProvider::builder().with_batch_exporter(spans).build();
    /// let metrics = MetricExporter::builder().with_http().build()?;
    /// let meters = SdkMeterProvider::builder().with_periodic_exporter(metrics).build();
    ///
    /// let mut host = Host::open(settings).await?;
    /// let observation = host.observe(&meters, &tracers);
    /// let ended = host.run(|| vec![service_fn("payroll", async |cx| Ok(cx.stop.cancelled().await))]).await;
    /// // The last values and the last span. Each waits for 5 s at most.
    /// let _ = (meters.shutdown(), tracers.shutdown());
    /// drop(observation);
    /// # let _ = ended;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "opentelemetry")]
    pub fn observe(
        &mut self,
        meters: &dyn opentelemetry::metrics::MeterProvider,
        tracers: &dyn opentelemetry::global::ObjectSafeTracerProvider,
    ) -> crate::Observation {
        crate::open_telemetry::observe(self.status(), self.shown.clone(), meters, tracers)
    }

    /// Has `report` called before each claim is sent, with the record that it may write, and with `None` when
    /// the storage has no record of this host any more. A process that outlives this one can then have the
    /// record released. `report` must not block. The last call counts.
    pub fn report_claims(&mut self, report: impl Fn(Option<LeftBehind>) + Send + Sync + 'static) {
        self.on_claim = Some(Box::new(report));
    }

    /// Names the other processes that enforce the kill deadline, so that a successor is named only after each has
    /// confirmed the earlier deadline that follows. Default: none, for services in this process. The last call counts.
    pub fn enforced_by(&mut self, enforcers: Vec<DeadlineEnforcer>) {
        self.enforcers = enforcers;
    }

    /// Has [`HostSettings::acquisition`] count from `began` for the first campaign, for a program that has waited
    /// before. The last call counts.
    pub fn wait_since(&mut self, began: Instant) {
        self.waits_since = Some(began);
    }

    /// Returns when the first campaign gives up, unless for another reason. The opening of the storage counts, too.
    pub fn gives_up_at(&self) -> Instant {
        match self.campaigns.settings.acquisition {
            AcquireTimeout::Within(timeout) => {
                self.waits_since.unwrap_or_else(|| self.campaigns.env.clock.now()).after(timeout)
            }
            AcquireTimeout::Forever | AcquireTimeout::UntilLeaderSeen => Instant::NEVER,
        }
    }

    /// Has the host campaign only while `ready` is true, as for a program that must warm up first.
    ///
    /// While it is false, the host claims nothing, and accepts no step-down in its favour.
    /// [`HostSettings::acquisition`] counts from the moment when it becomes true. When it becomes false, a campaign is
    /// withdrawn, and a leadership is given up: its services stop, and the record is released. A slot won just then is
    /// released before any service starts. If the sender is dropped, the last value stands. The last call counts.
    ///
    /// ```no_run
    /// # async fn run(settings: vvm_host::HostSettings) -> Result<(), vvm_host::HostError> {
    /// let mut host = vvm_host::Host::open(settings).await?;
    /// let (ready, is_ready) = tokio::sync::watch::channel(false);
    /// host.campaign_while(is_ready);
    /// let warming_up = async {
    ///     // Fill the caches, connect the pools.
    ///     ready.send_replace(true);
    /// };
    /// let work = || vec![vvm_host::service_fn("work", async |cx| Ok(cx.stop.cancelled().await))];
    /// let (ended, ()) = tokio::join!(host.run(work), warming_up);
    /// # let _ = ended;
    /// # Ok(())
    /// # }
    /// ```
    pub fn campaign_while(&mut self, ready: watch::Receiver<bool>) {
        self.campaigns.condition = Condition::new(ready);
    }

    /// Returns the token that stops the host, as TERM does.
    pub fn stop(&self) -> CancellationToken {
        self.campaigns.stop.clone()
    }

    /// Returns the status, which stays readable while the host runs.
    pub fn status(&self) -> Arc<HostStatus> {
        Arc::clone(&self.campaigns.status)
    }

    /// Campaigns, and runs what `services` returns while this process leads. Every end of the work ends the host, a
    /// loss, too, because a new process has no old state. [`run_then`](Self::run_then) can campaign again.
    ///
    /// Calls `services` once for each campaign. An operator's `vvm pause` or `vvm step-down` stops them, and
    /// another campaign follows. Nothing starts while the name is paused. The first signal stops the host; a
    /// second TERM, INT or QUIT ends the process at once, of that signal. Returns when the services are
    /// joined, the record is handed back, and the storage is closed or its time to close is over.
    ///
    /// # Cancel safety
    /// Dropping the future shuts down without waiting: while the runtime lives, services are asked to stop,
    /// and the record is handed back after them.
    pub async fn run(self, services: impl FnMut() -> Services + Send) -> HostOutcome {
        // Boxed, because the type nests too deeply for the compiler otherwise.
        Box::pin(self.run_then(services, |_| Next::Stop)).await
    }

    /// [`run`](Self::run), where `after` decides what follows each campaign. For example,
    /// [`Next::CampaignAfter`] after [`Problem::Lost`](vvm_orch::Problem::Lost), and [`Next::Stop`] otherwise.
    ///
    /// Calls `after` once for each campaign that ended, unless an operator ended it: then the host campaigns
    /// again. After a stop, if the storage can't be opened, and if the campaign [leaves work](HostOutcome::leaves_work),
    /// its answer has no effect: the host ends.
    ///
    /// # Cancel safety
    /// As [`run`](Self::run).
    pub async fn run_then(
        self,
        services: impl FnMut() -> Services + Send,
        mut after: impl FnMut(&HostOutcome) -> Next + Send,
    ) -> HostOutcome {
        let give_up_at = self.gives_up_at();
        let Self { campaigns, storage, wakeups, http, shown, signals, waits_since: _, on_claim, enforcers } =
            self;
        if let Some(HttpServer { address, .. }) = &http {
            // With port 0, nothing else says where it answers.
            let (event, name) = ("status_page", campaigns.settings.name.as_str());
            tracing::info!(target: "vvm", event, name, %address, "{name}: status page: http://{address}/");
        }
        let answers = Answers::new(Arc::clone(&campaigns.status), shown);
        let answering = async {
            match http {
                Some(server) => Box::pin(server.serve(&answers, &campaigns.env.clock)).await,
                None => pending().await,
            }
        };
        let handling_signals = async {
            match signals {
                Some(signals) => signals.handle(&campaigns.stop, &campaigns.env.clock).await,
                None => pending().await,
            }
        };
        let running = async {
            let storage = match storage {
                Some(storage) => Ok(storage),
                None => tokio::select! {
                    biased;
                    opened = opening::open(
                        &campaigns.settings,
                        &campaigns.env.clock,
                        &campaigns.status,
                        give_up_at,
                    ) => opened.map_err(|error| HostOutcome::NotOpened(Arc::new(error))),
                    () = campaigns.stop.cancelled() => Err(HostOutcome::Stopped),
                },
            };
            let ended = match storage {
                Ok(storage) => {
                    let (status, stop) = (Arc::clone(&campaigns.status), campaigns.stop.clone());
                    status.storage_opened(storage.opened().map(|opened| opened.to_string()));
                    let storage = HostStorage::new(storage, wakeups, status, stop);
                    let storage = Arc::new(storage.reporting_claims(on_claim));
                    let linking = async {
                        match &campaigns.successor {
                            Some(link) => link.serve(&storage.storage, &enforcers).await,
                            None => pending().await,
                        }
                    };
                    let ended = tokio::select! {
                        biased;
                        ended = campaigns.run(&storage, services, &mut after, give_up_at) => ended,
                        never = Box::pin(linking) => match never {},
                    };
                    campaigns.status.ends(ended.to_string());
                    opening::close(storage, &campaigns.settings.name, &campaigns.env.clock).await;
                    return ended;
                }
                Err(ended) => ended,
            };
            after(&ended);
            campaigns.status.ends(ended.to_string());
            ended
        };
        tokio::select! {
            biased;
            never = handling_signals => match never {},
            ended = running => ended,
            // Last: HTTP clients can wait.
            never = answering => match never {},
        }
    }
}

/// Joins the wake-ups of this machine. Without them, a hand-over takes longer: a standby waits for its poll.
fn wakeups(settings: &HostSettings) -> LocalWakeups {
    let name = settings.name.as_str();
    LocalWakeups::join(&settings.local_dir, name).unwrap_or_else(|error| {
        tracing::warn!(
            target: "vvm", event = "no_local_wakeups", name, reason = %error,
            "{name}: local wake-ups are disabled (--local-dir: {error}); hand-over falls back to polling"
        );
        LocalWakeups::disabled()
    })
}

impl fmt::Debug for Host {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("Host").field(&self.campaigns).finish()
    }
}
