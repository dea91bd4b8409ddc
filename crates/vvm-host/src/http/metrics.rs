//! Metrics as Prometheus reads them. `/status` shows primary-only services, too ([`add_status`]).

use crate::{
    metrics::{HOST, LATENCY, Metric, SERVICES, Samples},
    status::HostStatus,
};
use primary_only::Registry;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, NoLabelSet},
    metrics::{MetricType, exemplar::Exemplar},
    registry::Unit::Seconds,
};
use serde_json::{Map, Value};
use std::{fmt, iter, sync::Arc};

#[derive(Debug)]
pub(super) struct HostMetrics(pub(super) Arc<HostStatus>);

impl Collector for HostMetrics {
    fn encode(&self, mut out: DescriptorEncoder<'_>) -> fmt::Result {
        HOST.iter().try_for_each(|metric| match metric.samples {
            Samples::RenewalLatency => encode_latency(&self.0, &mut out),
            _ => encode(metric, &*self.0, &mut out),
        })
    }
}

#[derive(Debug)]
pub(super) struct ServiceMetrics(pub(super) Registry);

impl Collector for ServiceMetrics {
    fn encode(&self, mut out: DescriptorEncoder<'_>) -> fmt::Result {
        let services = self.0.status();
        SERVICES.iter().try_for_each(|metric| encode(metric, &services[..], &mut out))
    }
}

const NO_EXEMPLAR: Option<&Exemplar<NoLabelSet, f64>> = None;

fn encode<Source: ?Sized>(
    Metric { name, help, samples }: &Metric<Source>,
    source: &Source,
    out: &mut DescriptorEncoder<'_>,
) -> fmt::Result {
    let mut encoded = Ok(());
    match samples {
        Samples::Info(labels) => {
            encoded = out.encode_descriptor(name, help, None, MetricType::Info)?.encode_info(labels);
        }
        Samples::Gauge(read) => {
            let mut family = out.encode_descriptor(name, help, None, MetricType::Gauge)?;
            read(source, &mut |labels, value| {
                encoded = encoded.and_then(|()| family.encode_family(&labels)?.encode_gauge(&value));
            });
        }
        Samples::Seconds(read) => {
            let mut family = out.encode_descriptor(name, help, Some(&Seconds), MetricType::Gauge)?;
            read(source, &mut |labels, value| {
                let seconds = value.as_secs_f64();
                encoded = encoded.and_then(|()| family.encode_family(&labels)?.encode_gauge(&seconds));
            });
        }
        Samples::Counter(read) => {
            let mut family = out.encode_descriptor(name, help, None, MetricType::Counter)?;
            read(source, &mut |labels, value| {
                encoded =
                    encoded.and_then(|()| family.encode_family(&labels)?.encode_counter(&value, NO_EXEMPLAR));
            });
        }
        Samples::RenewalLatency => {}
    }
    encoded
}

fn encode_latency(status: &HostStatus, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let read = status.telemetry.renewals.read();
    let bounds = read.cumulative.iter().map(|(bound, count)| (bound.as_secs_f64(), *count));
    // The encoder takes counts that are not cumulative.
    let buckets = bounds.chain(iter::once((f64::INFINITY, read.count))).scan(0, |before, (bound, count)| {
        let alone = count - *before;
        *before = count;
        Some((bound, alone))
    });
    let buckets = buckets.collect::<Vec<_>>();
    out.encode_descriptor(LATENCY.0, LATENCY.1, Some(&Seconds), MetricType::Histogram)?
        .encode_histogram::<NoLabelSet>(read.sum.as_secs_f64(), read.count, &buckets, None)
}

/// How many instances `/status` lists: more than an operator reads, and few enough to collect their reports
/// while other requests wait. Metrics count all instances.
const LISTED: usize = 200;

pub(super) fn add_status(registry: &Registry, out: &mut Map<String, Value>) {
    let services = registry.status();
    let in_all: usize = services.iter().map(|service| service.instances).sum();
    let listed = registry.first_instances(LISTED);
    out.insert("instances_not_listed".into(), in_all.saturating_sub(listed.len()).into());
    // Both consist of texts, numbers, and reports that are JSON already: serialization can't fail.
    out.insert("services".into(), serde_json::to_value(services).unwrap_or_default());
    out.insert("instances".into(), serde_json::to_value(listed).unwrap_or_default());
}
