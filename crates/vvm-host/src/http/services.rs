//! Primary-only services in `/status` and `/metrics`.

use super::metrics::gauges;
use primary_only::{Registry, ServiceState};
use prometheus_client::{collector::Collector, encoding::DescriptorEncoder, registry::Unit::Seconds};
use serde_json::{Map, Value};
use std::fmt;

/// How many instances `/status` lists: more than an operator reads, and few enough to collect their reports
/// while other requests wait. Metrics count all instances.
const LISTED: usize = 200;

/// The services of a registry.
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

/// Adds the services and instances of `registry` to the object of `/status`.
pub(super) fn add_status(registry: &Registry, out: &mut Map<String, Value>) {
    let services = registry.status();
    let in_all: usize = services.iter().map(|service| service.instances).sum();
    let listed = registry.first_instances(LISTED);
    out.insert("instances_not_listed".into(), in_all.saturating_sub(listed.len()).into());
    // Both consist of texts, numbers, and reports that are JSON already: serialization can't fail.
    out.insert("services".into(), serde_json::to_value(services).unwrap_or_default());
    out.insert("instances".into(), serde_json::to_value(listed).unwrap_or_default());
}
