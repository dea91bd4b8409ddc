//! The metrics of a host and of its primary-only services: one table for Prometheus and OpenTelemetry.

use crate::status::{Call, HostStatus, Role};
use ielections::{Loss, Standing};
use primary_only::{ServiceState, ServiceStatus};
use std::time::Duration;
use vvm_clock::{SystemWallClock, WallClock as _};

pub(crate) struct Metric<Source: ?Sized> {
    /// Without unit and ending: Prometheus and what converts from OpenTelemetry add `_seconds` and `_total`.
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
    pub(crate) samples: Samples<Source>,
}

/// How to read the samples of a metric: each has labels and a value.
pub(crate) enum Samples<Source: ?Sized> {
    /// A constant: only its label says something.
    Info([(&'static str, &'static str); 1]),
    Gauge(fn(&Source, Each<'_, u64>)),
    Seconds(fn(&Source, Each<'_, Duration>)),
    Counter(fn(&Source, Each<'_, u64>)),
    /// A histogram: `Telemetry::renewals`.
    RenewalLatency,
}

pub(crate) type Each<'l, Value> = &'l mut dyn FnMut(&[(&str, &str)], Value);

use Samples::{Counter, Gauge, Info, RenewalLatency, Seconds};

pub(crate) const LATENCY: (&str, &str) =
    ("vvm_renewal_latency", "Time from sending a renewal to the answer that confirms it.");

pub(crate) static HOST: [Metric<HostStatus>; 21] = [
    Metric {
        name: "vvm_build",
        help: "The version of this program.",
        samples: Info([("version", env!("CARGO_PKG_VERSION"))]),
    },
    Metric {
        name: "vvm_role",
        help: "What this process does now.",
        samples: Gauge(|status, each| {
            let now = status.role().word();
            Role::WORDS.iter().for_each(|word| each(&[("vvm_role", word)], u64::from(now == *word)));
        }),
    },
    Metric {
        name: "vvm_ready",
        help: "1 while this process leads, or could if a slot were free.",
        samples: Gauge(|status, each| each(&[], u64::from(status.readiness().is_ok()))),
    },
    Metric {
        name: "vvm_leading",
        help: "1 only while the work runs and time is left of the leadership.",
        samples: Gauge(|status, each| each(&[], u64::from(status.leads().is_some()))),
    },
    Metric {
        name: "vvm_ttl",
        help: "The leadership duration that this process campaigns with.",
        samples: Seconds(|status, each| each(&[], status.candidate.ttl.get())),
    },
    Metric {
        name: "vvm_storage_unanswered",
        help: "Time since the storage last answered, or since the start.",
        samples: Seconds(|status, each| each(&[], status.unanswered_for())),
    },
    Metric {
        name: "vvm_last_exit_status",
        help: "Exit status of the command's last run, as a shell reports it.",
        samples: Gauge(|status, each| {
            let last = *status.telemetry.last_exit_status.lock();
            last.into_iter().for_each(|last| each(&[], last.into()));
        }),
    },
    Metric {
        name: "vvm_epoch",
        help: "The fencing token of the leadership that this process holds.",
        samples: Gauge(|status, each| of_leadership(status, each, |standing| standing.epoch().get())),
    },
    Metric {
        name: "vvm_margin",
        help: "Time until the kill deadline unless a renewal is confirmed; 0 once leadership is lost.",
        samples: Seconds(|status, each| of_leadership(status, each, Standing::remaining)),
    },
    Metric {
        name: "vvm_kill_deadline_timestamp",
        help: "The kill deadline in Unix time, by this machine's clock.",
        samples: Seconds(|status, each| {
            of_leadership(status, each, |standing| {
                SystemWallClock.since_unix_epoch() + status.clock.now().until(standing.kill_at())
            });
        }),
    },
    Metric {
        name: "vvm_since_renewal",
        help: "Time since the last confirmed claim or renewal was sent.",
        samples: Seconds(|status, each| {
            of_leadership(status, each, |standing| status.since_renewal(standing));
        }),
    },
    Metric {
        name: "vvm_successor_named",
        help: "1 while a successor would take over seconds after the loss of this leader's machine.",
        samples: Gauge(|status, each| {
            if let Some(link) = status.link() {
                of_leadership(status, each, |_| u64::from(link.successor().is_some()));
            }
        }),
    },
    Metric {
        name: "vvm_successor_datagrams",
        help: "Datagrams to and from successors and their leaders, by what became of them.",
        samples: Counter(|status, each| {
            for (fate, count) in status.link().iter().flat_map(|link| link.fates()) {
                each(&[("fate", fate.word())], count);
            }
        }),
    },
    Metric { name: LATENCY.0, help: LATENCY.1, samples: RenewalLatency },
    Metric {
        name: "vvm_storage_calls",
        help: "Calls to the storage for records and requests, failed ones included. A scan is one call.",
        samples: Counter(|status, each| {
            for call in [Call::Read, Call::Write] {
                each(&[("call", call.word())], status.telemetry.calls(call).get());
            }
        }),
    },
    Metric {
        name: "vvm_storage_failures",
        help: "Calls to the storage that failed.",
        samples: Counter(|status, each| {
            for (call, failure, count) in status.telemetry.failures() {
                each(&[("call", call.word()), ("failure", failure)], count);
            }
        }),
    },
    Metric {
        name: "vvm_leaderships",
        help: "Leaderships that this process has had.",
        samples: Counter(|status, each| each(&[], status.telemetry.leaderships.get())),
    },
    Metric {
        name: "vvm_take_overs",
        help: "Records of other leaders that this process took over because they were not renewed.",
        samples: Counter(|status, each| each(&[], status.telemetry.take_overs.get())),
    },
    Metric {
        name: "vvm_restarts",
        help: "Restarts of the command under one leadership.",
        samples: Counter(|status, each| each(&[], status.telemetry.restarts.get())),
    },
    Metric {
        name: "vvm_check_failures",
        help: "Checks of the command that failed.",
        samples: Counter(|status, each| each(&[], status.telemetry.check_failures.get())),
    },
    Metric {
        name: "vvm_losses",
        help: "Leaderships that were lost.",
        samples: Counter(|status, each| {
            status.telemetry.losses().for_each(|(reason, count)| each(&[("reason", reason)], count));
        }),
    },
];

pub(crate) static SERVICES: [Metric<[ServiceStatus]>; 4] = [
    Metric {
        name: "vvm_service_state",
        help: "Where a primary-only service is in its term.",
        samples: Gauge(|services, each| {
            for service in services {
                for name in ServiceState::NAMES {
                    let labels = [("service", service.service), ("vvm_service_state", name)];
                    each(&labels, u64::from(service.state.name() == name));
                }
            }
        }),
    },
    Metric {
        name: "vvm_service_instances",
        help: "Instances of a primary-only service, by the state of their runs.",
        samples: Gauge(|services, each| {
            for service in services {
                let ended = service.instances.saturating_sub(service.running + service.waiting);
                for (state, count) in
                    [("waiting", service.waiting), ("running", service.running), ("ended", ended)]
                {
                    each(&[("service", service.service), ("state", state)], count as u64);
                }
            }
        }),
    },
    Metric {
        name: "vvm_service_quarantined",
        help: "Documents of a primary-only service that make no instance.",
        samples: Gauge(|services, each| {
            services.iter().for_each(|of| each(&[("service", of.service)], of.quarantined.len() as u64));
        }),
    },
    Metric {
        name: "vvm_service_rebuild",
        help: "How long the last rebuild of a primary-only service took.",
        samples: Seconds(|services, each| {
            for (service, took) in services.iter().filter_map(|of| Some((of.service, of.rebuilt_in?))) {
                each(&[("service", service)], took);
            }
        }),
    },
];

/// Without a leadership there is no sample: a meaningless number would raise an alarm, or hide one.
fn of_leadership<Value>(status: &HostStatus, each: Each<'_, Value>, of: impl Fn(&Standing) -> Value) {
    let role = status.role();
    let is_held = |standing: &Standing| match standing.loss() {
        None => true,
        Some(Loss::HandedBack) => false,
        // This process lives, so it has handed back what was lost before that deadline.
        Some(_) => status.clock.now() < standing.kill_at(),
    };
    if let Some(leading) = role.leadership().filter(|leading| is_held(&leading.standing)) {
        each(&[("slot", &leading.slot.to_string())], of(&leading.standing));
    }
}
