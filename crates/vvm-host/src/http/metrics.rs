//! The metrics of a host. Their help texts describe them.

use crate::status::{HostStatus, Role};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, NoLabelSet},
    metrics::{
        MetricType::{Counter, Gauge, Histogram, Info},
        exemplar::Exemplar,
    },
    registry::Unit::Seconds,
};
use std::{fmt, iter, sync::Arc};
use vvm_clock::{SystemWallClock, WallClock as _};

/// Collects the metrics of a host at the moment of the request.
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

fn encode_state(status: &HostStatus, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
    out.encode_descriptor("vvm_build", "The version of this program.", None, Info)?
        .encode_info(&[("version", env!("CARGO_PKG_VERSION"))])?;

    let mut roles = out.encode_descriptor("vvm_role", "What this process does now.", None, Gauge)?;
    let role = status.role();
    for word in Role::WORDS {
        roles.encode_family(&[("vvm_role", word)])?.encode_gauge(&u32::from(role.word() == word))?;
    }

    let help = "1 while this process leads, or could if a slot were free.";
    let is_ready = status.readiness().is_ok();
    out.encode_descriptor("vvm_ready", help, None, Gauge)?.encode_gauge(&u32::from(is_ready))?;

    let help = "1 only while the work runs and time is left of the leadership.";
    let leads = status.leads().is_some();
    out.encode_descriptor("vvm_leading", help, None, Gauge)?.encode_gauge(&u32::from(leads))?;

    let help = "The leadership duration that this process campaigns with.";
    let ttl = status.candidate().ttl.get().as_secs_f64();
    out.encode_descriptor("vvm_ttl", help, Some(&Seconds), Gauge)?.encode_gauge(&ttl)?;

    let help = "Time since the storage last answered, or since the start.";
    let unanswered_for = status.unanswered_for().as_secs_f64();
    out.encode_descriptor("vvm_storage_unanswered", help, Some(&Seconds), Gauge)?
        .encode_gauge(&unanswered_for)?;

    let help = "Exit status of the command's last run, as a shell reports it.";
    let mut exit_status = out.encode_descriptor("vvm_last_exit_status", help, None, Gauge)?;
    match status.telemetry().last_exit_status() {
        Some(status) => exit_status.encode_gauge(&u32::from(status)),
        None => Ok(()),
    }
}

/// Encodes the metrics of a leadership. Without one they have no sample: a meaningless number would raise an
/// alarm, or hide one.
fn encode_leadership(status: &HostStatus, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let role = status.role();
    let leading = role.leadership();
    let of_slot = [("slot", leading.map(|leading| leading.slot.to_string()).unwrap_or_default())];

    let help = "The fencing token of the leadership that this process holds.";
    let mut epoch = out.encode_descriptor("vvm_epoch", help, None, Gauge)?;
    if let Some(leading) = leading {
        epoch.encode_family(&of_slot)?.encode_gauge(&leading.standing.epoch().get())?;
    }

    let help = "Time until the kill deadline unless a renewal is confirmed; 0 once leadership is lost.";
    let mut margin = out.encode_descriptor("vvm_margin", help, Some(&Seconds), Gauge)?;
    if let Some(leading) = leading {
        margin.encode_family(&of_slot)?.encode_gauge(&leading.standing.remaining().as_secs_f64())?;
    }

    let help = "The kill deadline in Unix time, by this machine's clock.";
    let mut deadline = out.encode_descriptor("vvm_kill_deadline_timestamp", help, Some(&Seconds), Gauge)?;
    if let Some(leading) = leading {
        let at = SystemWallClock.since_unix_epoch() + status.now().until(leading.standing.kill_at());
        deadline.encode_family(&of_slot)?.encode_gauge(&at.as_secs_f64())?;
    }

    let help = "Time since the last confirmed claim or renewal was sent.";
    let mut age = out.encode_descriptor("vvm_since_renewal", help, Some(&Seconds), Gauge)?;
    if let Some(leading) = leading {
        let since = status.since_renewal(&leading.standing).as_secs_f64();
        age.encode_family(&of_slot)?.encode_gauge(&since)?;
    }
    Ok(())
}

fn encode_counters(status: &HostStatus, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let telemetry = status.telemetry();

    let help = "Time from sending a renewal to its confirmation.";
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

    let mut failures =
        out.encode_descriptor("vvm_storage_failures", "Calls to the storage that failed.", None, Counter)?;
    for (call, failure, count) in telemetry.failures() {
        failures
            .encode_family(&[("call", call.word()), ("failure", failure.word())])?
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
