use crate::{local_wakeups::LocalDir, successor::SuccessorSettings};
use ielections::{Holder, Ttl, record::HolderTooLong};
use std::{net::SocketAddr, num::NonZeroU32, time::Duration};
use vvm_orch::{AcquireTimeout, VvmConfig};

/// The settings of a [`Host`](super::Host): [`HostSettings::new`], and then what shall not be the default.
///
/// ```
/// use std::time::Duration;
/// use vvm_host::{AcquireTimeout, HostSettings, LocalDir, Ttl};
///
/// let mut settings = HostSettings::new("sqlite:/var/lib/payroll/leader.db", "payroll");
/// // The defaults:
/// assert_eq!(settings.slots.get(), 1);
/// assert_eq!(settings.ttl.get(), Duration::from_secs(20));
/// assert_eq!(settings.holder, None); // HOSTNAME:PID
/// assert_eq!(settings.acquisition, AcquireTimeout::Forever);
/// assert_eq!(settings.stop_timeout, Duration::from_secs(8));
/// assert_eq!(settings.http, None);
/// assert_eq!(settings.local_dir, LocalDir::None);
/// assert_eq!(settings.successor, None);
/// assert!(settings.stop_on_hup && !settings.stop_on_quit);
///
/// settings.ttl = Ttl::new(Duration::from_secs(10)).unwrap();
/// settings.http = Some(([127, 0, 0, 1], 8080).into());
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HostSettings {
    /// Where leadership is recorded, as for `vvm run --storage`.
    pub storage: String,
    /// What is led. Candidates for the same leadership use the same name.
    pub name: String,
    /// How many processes may lead at once, each in a slot of its own; the same number in each of them. Default: one.
    pub slots: NonZeroU32,
    /// How long others wait before they replace a dead leader. Default: 20 s ([`Ttl::DEFAULT`]).
    pub ttl: Ttl,
    /// The name of this process for people. Default: `HOSTNAME:PID`.
    pub holder: Option<Holder>,
    /// How long to campaign. Default: for ever.
    pub acquisition: AcquireTimeout,
    /// How long all services together may take to stop. Default: 8 s ([`VvmConfig::STOP_TIMEOUT`]).
    pub stop_timeout: Duration,
    /// The address of the HTTP server, if there is to be one: `/healthz`, `/readyz`, `/leader`, `/metrics`, `/status`,
    /// and a page at `/`, as by `vvm run --http`. Port 0: any; the event `status_page` has the address. Default: none.
    pub http: Option<SocketAddr>,
    /// The folder through which processes of this machine wake each other, so that a standby leads as soon as a leader
    /// has released, and requests are handled at once. Default: [`LocalDir::None`], because a library creates no files
    /// unasked. With [`LocalDir::Usual`], `vvm run`, `vvm elect` and `vvm step-down` of this user take part.
    pub local_dir: LocalDir,
    /// How this host takes part in succession, so that the loss of a machine costs seconds at any TTL; for a name with one
    /// slot, and a storage on a server. Default: not at all.
    pub successor: Option<SuccessorSettings>,
    /// Whether HUP stops the host as TERM does. Default: true, because HUP would otherwise kill the program
    /// and its services. Set false if HUP has another meaning, as "read the settings again". A HUP that was
    /// ignored before, as under `nohup`, stays ignored.
    pub stop_on_hup: bool,
    /// Whether QUIT stops the host as TERM does. Default: false. Then it kills the program and its services,
    /// with a core dump. A QUIT that was ignored before stays ignored.
    pub stop_on_quit: bool,
}

impl HostSettings {
    /// Returns the default settings for a candidate for `name` on `storage`.
    pub fn new(storage: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            storage: storage.into(),
            name: name.into(),
            slots: NonZeroU32::MIN,
            ttl: Ttl::DEFAULT,
            holder: None,
            acquisition: AcquireTimeout::Forever,
            stop_timeout: VvmConfig::<vvm_storage::ElectionKey>::STOP_TIMEOUT,
            http: None,
            local_dir: LocalDir::None,
            successor: None,
            stop_on_hup: true,
            stop_on_quit: false,
        }
    }
}

/// Returns `given`, or `HOSTNAME:PID`. Fails if that is too long for a holder, which uname(2) does not allow.
pub fn or_own_name(given: Option<&Holder>) -> Result<Holder, HolderTooLong> {
    if let Some(given) = given {
        return Ok(given.clone());
    }
    let (machine, process) = (rustix::system::uname(), rustix::process::getpid());
    Holder::new(format!("{}:{process}", machine.nodename().to_string_lossy()))
}
