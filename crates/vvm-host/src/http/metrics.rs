//! The situation as metrics. The help text of a metric says what it means.

use crate::status::{HostStatus, Readiness, Role};
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

/// Collects the metrics of a situation at the moment of the request.
#[derive(Debug)]
pub(super) struct OfSituation(pub(super) Arc<HostStatus>);

impl Collector for OfSituation {
    fn encode(&self, mut out: DescriptorEncoder<'_>) -> fmt::Result {
        of_the_moment(&self.0, &mut out)?;
        of_the_leadership(&self.0, &mut out)?;
        of_all_time(&self.0, &mut out)
    }
}

const NO_EXEMPLAR: Option<&Exemplar<NoLabelSet, f64>> = None;

fn of_the_moment(situation: &HostStatus, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
    out.encode_descriptor("vvm_build", "Which program this is.", None, Info)?
        .encode_info(&[("version", env!("CARGO_PKG_VERSION"))])?;

    let mut roles = out.encode_descriptor("vvm_role", "What this process does now.", None, Gauge)?;
    let role = situation.role();
    for word in Role::WORDS {
        roles.encode_family(&[("vvm_role", word)])?.encode_gauge(&u32::from(role.word() == word))?;
    }

    let help = "1 while this process leads, or could if a slot were free.";
    let is_ready = situation.readiness() == Readiness::Ready;
    out.encode_descriptor("vvm_ready", help, None, Gauge)?.encode_gauge(&u32::from(is_ready))?;

    let help = "1 only while the work runs and time is left of the leadership.";
    let leads = situation.leads().is_some();
    out.encode_descriptor("vvm_leading", help, None, Gauge)?.encode_gauge(&u32::from(leads))?;

    let help = "The leadership duration that this process campaigns with.";
    let ttl = situation.candidate().ttl.get().as_secs_f64();
    out.encode_descriptor("vvm_ttl", help, Some(&Seconds), Gauge)?.encode_gauge(&ttl)?;

    let help =
        "How long ago the storage was last of use; without an answer yet, how long it has been waited for.";
    let useless_for = situation.useless_for().as_secs_f64();
    out.encode_descriptor("vvm_storage_useless", help, Some(&Seconds), Gauge)?.encode_gauge(&useless_for)
}

/// Without a leadership, these families have no sample: a meaningless number would raise an alarm, or hide
/// one.
fn of_the_leadership(situation: &HostStatus, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let role = situation.role();
    let leading = role.leadership();
    let of_slot = [("slot", leading.map(|leading| leading.slot.to_string()).unwrap_or_default())];

    let help = "The fencing token of the leadership that this process holds.";
    let mut epoch = out.encode_descriptor("vvm_epoch", help, None, Gauge)?;
    if let Some(leading) = leading {
        epoch.encode_family(&of_slot)?.encode_gauge(&leading.standing.epoch().get())?;
    }

    let help = "How long this process would live without another renewal; 0 once leadership is lost.";
    let mut margin = out.encode_descriptor("vvm_margin", help, Some(&Seconds), Gauge)?;
    if let Some(leading) = leading {
        margin.encode_family(&of_slot)?.encode_gauge(&leading.standing.remaining().as_secs_f64())?;
    }

    let help =
        "When this process is dead unless a renewal comes before, in Unix time by this machine's clock.";
    let mut deadline = out.encode_descriptor("vvm_kill_deadline_timestamp", help, Some(&Seconds), Gauge)?;
    if let Some(leading) = leading {
        let at = SystemWallClock.since_unix_epoch() + situation.now().until(leading.standing.kill_at());
        deadline.encode_family(&of_slot)?.encode_gauge(&at.as_secs_f64())?;
    }
    Ok(())
}

fn of_all_time(situation: &HostStatus, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let telemetry = situation.telemetry();

    let help = "Renewals that the storage confirmed, by how long that took from the moment each was sent.";
    let read = telemetry.renewals().read();
    let bounds = read.cumulative.iter().map(|(bound, count)| (bound.as_secs_f64(), *count));
    // The encoder takes the count of each bucket alone.
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

    out.encode_descriptor("vvm_leaderships", "Leaderships that this process has had.", None, Counter)?
        .encode_counter(&telemetry.leaderships(), NO_EXEMPLAR)?;

    let help = "Records of other leaders that this process took over because they were not renewed.";
    out.encode_descriptor("vvm_take_overs", help, None, Counter)?
        .encode_counter(&telemetry.take_overs(), NO_EXEMPLAR)?;

    let mut losses = out.encode_descriptor("vvm_losses", "Leaderships that were lost.", None, Counter)?;
    for (reason, count) in telemetry.losses() {
        losses.encode_family(&[("reason", reason)])?.encode_counter(&count, NO_EXEMPLAR)?;
    }
    Ok(())
}
