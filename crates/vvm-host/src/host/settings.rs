//! What a host is told.

use crate::local_wakeups::LocalDir;
use ielections::{Holder, Ttl};
use std::{net::SocketAddr, num::NonZeroU32, time::Duration};
use vvm_orch::{Acquisition, VvmConfig};

/// What follows a loss, once all services have stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnLoss {
    /// The end of [`Host::run`](super::Host::run).
    Exit,
    /// Another campaign.
    Rejoin,
}

/// What a [`Host`](super::Host) is told.
///
/// ```
/// use std::time::Duration;
/// use vvm_host::{HostSettings, Ttl};
///
/// let mut settings = HostSettings::new("sqlite:payroll.db", "payroll");
/// settings.ttl = Ttl::new(Duration::from_secs(10)).unwrap();
/// settings.http = Some(([127, 0, 0, 1], 8080).into());
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HostSettings {
    /// Where leadership is recorded, as for `vvm run --storage`.
    pub storage: String,
    /// What is led: all who may replace each other give the same name.
    pub name: String,
    /// How many may lead at once, each in a slot of its own; the same number for everybody. One, unless told
    /// otherwise.
    pub slots: NonZeroU32,
    /// How long a dead leader's record stands. [`Ttl::DEFAULT`], unless told otherwise.
    pub ttl: Ttl,
    /// Who we are, to people; `None` for `HOSTNAME:PID`.
    pub holder: Option<Holder>,
    /// How long to campaign. For ever, unless told otherwise.
    pub acquisition: Acquisition,
    /// What follows a loss. [`OnLoss::Exit`], unless told otherwise: a process that starts afresh has no old
    /// state.
    pub on_loss: OnLoss,
    /// How long all services together may take to stop. [`VvmConfig::STOP_TIMEOUT`], unless told otherwise.
    pub stop_timeout: Duration,
    /// Where HTTP is served, if anywhere: `/healthz`, `/readyz`, `/leader`, `/metrics`, `/status`, and a page
    /// at `/`, as by `vvm run --http`. Port 0 is any that is free.
    pub http: Option<SocketAddr>,
    /// Where processes of this machine tell each other to look at the storage at once, so that a standby
    /// leads as soon as a leader has released, and requests are heeded at once. [`LocalDir::None`], unless
    /// told otherwise: a library puts no files where nobody asked it to. [`LocalDir::Usual`] meets `vvm run`,
    /// `vvm elect` and `vvm step-down` of this user.
    pub local_dir: LocalDir,
    /// Whether HUP stops the host as TERM does. True, unless told otherwise: a program that leaves HUP alone
    /// dies of it at once, and its services with it. False for a program to which HUP means something else,
    /// as "read your settings again". A HUP that was ignored before, as under `nohup`, stays ignored.
    pub stop_on_hup: bool,
}

impl HostSettings {
    /// The usual settings, for those who lead `name` on `storage`.
    pub fn new(storage: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            storage: storage.into(),
            name: name.into(),
            slots: NonZeroU32::MIN,
            ttl: Ttl::DEFAULT,
            holder: None,
            acquisition: Acquisition::Forever,
            on_loss: OnLoss::Exit,
            stop_timeout: VvmConfig::<vvm_storage::ElectionKey>::STOP_TIMEOUT,
            http: None,
            local_dir: LocalDir::None,
            stop_on_hup: true,
        }
    }
}
