//! The metrics of a host and of its primary-only services. Their help texts describe them. `/status` shows these
//! services, too ([`add_status`]).

use crate::status::{Call, HostStatus, Role};
use ielections::Standing;
use primary_only::{Registry, ServiceState};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeGaugeValue, NoLabelSet},
    metrics::{
        MetricType::{Counter, Gauge, Histogram, Info},
        exemplar::Exemplar,
    },
    registry::Unit::{self, Seconds},
};
use serde_json::{Map, Value};
use std::{fmt, iter, sync::Arc, time::Duration};
use vvm_clock::{SystemWallClock, WallClock as _};

#[derive(Debug)]
pub(super) struct HostMetrics(pub(super) Arc<HostStatus>);

impl Collector for HostMetrics {
    fn encode(&self, mut out: DescriptorEncoder<'_>) -> fmt::Result {
        encode_state(&self.0, &mut out)?;
        encode_leadership(&self.0, &mut out)?;
        encode_counters(&self.0, &mut out)
    }
}

const NO_EXEMPLAR: Option<&Exemplar<NoLabelSet, f64>> = None;

fn gauge(
    out: &mut DescriptorEncoder<'_>,
    (name, help): (&str, &str),
    unit: Option<&Unit>,
    value: Option<impl EncodeGaugeValue>,
) -> fmt::Result {
    let mut gauge = out.encode_descriptor(name, help, unit, Gauge)?;
    value.map_or(Ok(()), |value| gauge.encode_gauge(&value))
}

fn gauges<'l, const N: usize>(
    out: &mut DescriptorEncoder<'_>,
    (name, help): (&str, &str),
    unit: Option<&Unit>,
    samples: impl IntoIterator<Item = ([(&'l str, &'l str); N], impl EncodeGaugeValue)>,
) -> fmt::Result {
    let mut gauges = out.encode_descriptor(name, help, unit, Gauge)?;
    samples.into_iter().try_for_each(|(labels, value)| gauges.encode_family(&labels)?.encode_gauge(&value))
}

fn encode_state(status: &HostStatus, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
    out.encode_descriptor("vvm_build", "The version of this program.", None, Info)?
        .encode_info(&[("version", env!("CARGO_PKG_VERSION"))])?;

    let role = status.role();
    let roles = Role::WORDS.map(|word| ([("vvm_role", word)], u32::from(role.word() == word)));
    gauges(out, ("vvm_role", "What this process does now."), None, roles)?;

    let help = "1 while this process leads, or could if a slot were free.";
    gauge(out, ("vvm_ready", help), None, Some(u32::from(status.readiness().is_ok())))?;

    let help = "1 only while the work runs and time is left of the leadership.";
    gauge(out, ("vvm_leading", help), None, Some(u32::from(status.leads().is_some())))?;

    let help = "The leadership duration that this process campaigns with.";
    gauge(out, ("vvm_ttl", help), Some(&Seconds), Some(status.candidate.ttl.get().as_secs_f64()))?;

    let help = "Time since the storage last answered, or since the start.";
    let unanswered_for = status.unanswered_for().as_secs_f64();
    gauge(out, ("vvm_storage_unanswered", help), Some(&Seconds), Some(unanswered_for))?;

    let help = "Exit status of the command's last run, as a shell reports it.";
    let exit_status = status.telemetry.last_exit_status.lock().map(u32::from);
    gauge(out, ("vvm_last_exit_status", help), None, exit_status)
}

/// Encodes the metrics of a leadership. Without one they have no sample: a meaningless number would raise an
/// alarm, or hide one.
fn encode_leadership(status: &HostStatus, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let role = status.role();
    let leading = role.leadership();
    let slot = leading.map(|leading| leading.slot.to_string()).unwrap_or_default();
    let standing = leading.map(|leading| ([("slot", slot.as_str())], &leading.standing));

    let help = "The fencing token of the leadership that this process holds.";
    gauges(out, ("vvm_epoch", help), None, standing.map(|(slot, standing)| (slot, standing.epoch().get())))?;

    let mut seconds = |name: &str, help: &str, of: &dyn Fn(&Standing) -> Duration| {
        let sample = standing.map(|(slot, standing)| (slot, of(standing).as_secs_f64()));
        gauges(out, (name, help), Some(&Seconds), sample)
    };

    let help = "Time until the kill deadline unless a renewal is confirmed; 0 once leadership is lost.";
    seconds("vvm_margin", help, &Standing::remaining)?;

    let help = "The kill deadline in Unix time, by this machine's clock.";
    seconds("vvm_kill_deadline_timestamp", help, &|standing| {
        SystemWallClock.since_unix_epoch() + status.clock.now().until(standing.kill_at())
    })?;

    let help = "Time since the last confirmed claim or renewal was sent.";
    seconds("vvm_since_renewal", help, &|standing| status.since_renewal(standing))
}

fn encode_counters(status: &HostStatus, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let telemetry = &status.telemetry;

    let help = "Time from sending a renewal to the answer that confirms it.";
    let read = telemetry.renewals.read();
    let bounds = read.cumulative.iter().map(|(bound, count)| (bound.as_secs_f64(), *count));
    // The encoder takes counts that are not cumulative.
    let buckets = bounds.chain(iter::once((f64::INFINITY, read.count))).scan(0, |before, (bound, count)| {
        let alone = count - *before;
        *before = count;
        Some((bound, alone))
    });
    out.encode_descriptor("vvm_renewal_latency", help, Some(&Seconds), Histogram)?
        .encode_histogram::<NoLabelSet>(
            read.sum.as_secs_f64(),
            read.count,
            &buckets.collect::<Vec<_>>(),
            None,
        )?;

    let help = "Calls to the storage for records and requests, failed ones included. A scan is one call.";
    let mut calls = out.encode_descriptor("vvm_storage_calls", help, None, Counter)?;
    for call in [Call::Read, Call::Write] {
        calls
            .encode_family(&[("call", call.word())])?
            .encode_counter(&telemetry.calls(call).get(), NO_EXEMPLAR)?;
    }

    let mut failures =
        out.encode_descriptor("vvm_storage_failures", "Calls to the storage that failed.", None, Counter)?;
    for (call, failure, count) in telemetry.failures() {
        failures
            .encode_family(&[("call", call.word()), ("failure", failure)])?
            .encode_counter(&count, NO_EXEMPLAR)?;
    }

    let counters = [
        ("vvm_leaderships", "Leaderships that this process has had.", telemetry.leaderships.get()),
        (
            "vvm_take_overs",
            "Records of other leaders that this process took over because they were not renewed.",
            telemetry.take_overs.get(),
        ),
        ("vvm_restarts", "Restarts of the command under one leadership.", telemetry.restarts.get()),
        ("vvm_check_failures", "Checks of the command that failed.", telemetry.check_failures.get()),
    ];
    for (name, help, count) in counters {
        out.encode_descriptor(name, help, None, Counter)?.encode_counter(&count, NO_EXEMPLAR)?;
    }

    let mut losses = out.encode_descriptor("vvm_losses", "Leaderships that were lost.", None, Counter)?;
    for (reason, count) in telemetry.losses() {
        losses.encode_family(&[("reason", reason)])?.encode_counter(&count, NO_EXEMPLAR)?;
    }
    Ok(())
}

/// How many instances `/status` lists: more than an operator reads, and few enough to collect their reports
/// while other requests wait. Metrics count all instances.
const LISTED: usize = 200;

#[derive(Debug)]
pub(super) struct ServiceMetrics(pub(super) Registry);

impl Collector for ServiceMetrics {
    fn encode(&self, mut out: DescriptorEncoder<'_>) -> fmt::Result {
        let out = &mut out;
        let services = self.0.status();

        let help = "Where a primary-only service is in its term.";
        let states = services.iter().flat_map(|service| {
            ServiceState::NAMES.map(|name| {
                let labels = [("service", service.service), ("vvm_service_state", name)];
                (labels, u32::from(service.state.name() == name))
            })
        });
        gauges(out, ("vvm_service_state", help), None, states)?;

        let help = "Instances of a primary-only service, by the state of their runs.";
        let instances = services.iter().flat_map(|service| {
            let ended = service.instances.saturating_sub(service.running + service.waiting);
            let counts = [("waiting", service.waiting), ("running", service.running), ("ended", ended)];
            counts.map(|(state, count)| ([("service", service.service), ("state", state)], count))
        });
        gauges(out, ("vvm_service_instances", help), None, instances)?;

        let help = "Documents of a primary-only service that make no instance.";
        let quarantined = services.iter().map(|of| ([("service", of.service)], of.quarantined.len()));
        gauges(out, ("vvm_service_quarantined", help), None, quarantined)?;

        let help = "How long the last rebuild of a primary-only service took.";
        let rebuilds =
            services.iter().filter_map(|of| Some(([("service", of.service)], of.rebuilt_in?.as_secs_f64())));
        gauges(out, ("vvm_service_rebuild", help), Some(&Seconds), rebuilds)
    }
}

pub(super) fn add_status(registry: &Registry, out: &mut Map<String, Value>) {
    let services = registry.status();
    let in_all: usize = services.iter().map(|service| service.instances).sum();
    let listed = registry.first_instances(LISTED);
    out.insert("instances_not_listed".into(), in_all.saturating_sub(listed.len()).into());
    // Both consist of texts, numbers, and reports that are JSON already: serialization can't fail.
    out.insert("services".into(), serde_json::to_value(services).unwrap_or_default());
    out.insert("instances".into(), serde_json::to_value(listed).unwrap_or_default());
}
