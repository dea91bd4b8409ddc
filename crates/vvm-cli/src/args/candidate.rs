//! The options that `vvm run` and `vvm elect` share.

use super::values::{
    parse_acquire_timeout, parse_address, parse_holder, parse_local_dir, parse_name, parse_slots,
    parse_storage, parse_ttl,
};
use crate::announce::LogFormat;
use clap::Args;
use ielections::{Holder, Ttl, record::HolderTooLong};
use std::{net::SocketAddr, num::NonZeroU32, time::Duration};
use vvm_host::{HostSettings, LocalDir, operate};
use vvm_orch::Acquisition;

#[derive(Clone, Debug, Args)]
pub(crate) struct CandidateArgs {
    /// Where leadership is recorded, e.g. sqlite:/var/lib/payroll/leader.db
    #[arg(long, value_name = "URL", value_parser = parse_storage)]
    pub(crate) storage: String,
    /// What the candidates compete for: the same name on all of them
    #[arg(long, value_parser = parse_name)]
    pub(crate) name: String,
    /// Number of leaders at a time, each in a slot of its own: the same number on all candidates
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_slots)]
    #[arg(allow_hyphen_values = true)]
    pub(crate) slots: NonZeroU32,
    /// Time without renewals after which a standby takes over
    #[arg(long, value_name = "DURATION", default_value = "20s", value_parser = parse_ttl)]
    pub(crate) ttl: Ttl,
    /// How long to wait for leadership; 0 takes a free slot or exits
    #[arg(
        long, value_name = "forever|0|DURATION", default_value = "forever",
        value_parser = parse_acquire_timeout
    )]
    pub(crate) acquire_timeout: Acquisition,
    /// Exit when a live leader is seen, which can take one TTL, or when the storage has not answered for 1.4
    /// TTL
    #[arg(long = "try", conflicts_with = "acquire_timeout")]
    pub(crate) try_once: bool,
    /// Name of this candidate in the record [default: HOSTNAME:PID]
    #[arg(long, value_parser = parse_holder)]
    pub(crate) holder: Option<Holder>,
    /// Folder of sockets by which candidates of this user on this machine wake each other, or none [default:
    /// /tmp/vvm-UID]
    ///
    /// A standby that is woken leads as soon as the leader has released. Without the folder it polls the
    /// storage once a second. Safety does not depend on it.
    #[arg(long, value_name = "DIR|none", value_parser = parse_local_dir)]
    pub(crate) local_dir: Option<LocalDir>,
    /// Serve HTTP at this address, e.g. localhost:8080; port 0 is any free port
    ///
    /// /healthz: the process is alive. /readyz: it leads or could lead; a standby is ready. /leader: 200 only
    /// while it leads with time left. /metrics: OpenMetrics. /status: JSON. /: a page for browsers. All of it
    /// is read-only, but shows names and errors to every client that reaches the address.
    #[arg(long, value_name = "ADDR:PORT", value_parser = parse_address)]
    pub(crate) http: Option<SocketAddr>,
    /// Format of standard error: lines of text, or one JSON object a line
    ///
    /// With json, each change of state is an object with event, name, holder, slot, epoch and more. Other
    /// messages have the event "message". VVM_LOG=debug adds renewals and messages of libraries.
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) log_format: LogFormat,
    /// Show the current leader and what would be done; create, record and start nothing. Exits with 0, or
    /// with the status of the refusal
    #[arg(long)]
    pub(crate) dry_run: bool,
}

impl CandidateArgs {
    /// Returns `--holder`, or else the name of this process.
    ///
    /// # Errors
    /// If the host name is longer than a holder may be, which uname(2) rules out.
    pub(crate) fn own_holder(&self) -> Result<Holder, HolderTooLong> {
        operate::or_own_name(self.holder.as_ref())
    }

    /// Returns the settings of a host with these options.
    pub(crate) fn host_settings(&self, holder: Holder) -> HostSettings {
        let mut settings = HostSettings::new(self.storage.clone(), self.name.clone());
        (settings.slots, settings.ttl, settings.holder) = (self.slots, self.ttl, Some(holder));
        settings.acquisition =
            if self.try_once { Acquisition::UntilLeaderSeen } else { self.acquire_timeout };
        settings.http = self.http;
        settings.local_dir = self.local_dir.clone().unwrap_or(LocalDir::Usual);
        // The command or hook is killed by a limit of its own, so the host must not give up before.
        settings.stop_timeout = Duration::MAX;
        settings
    }
}
