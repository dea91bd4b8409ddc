//! Primary-only services in `/status` and `/metrics`.

use crate::http::Extra;
use primary_only::{Registry, ServiceState};
use prometheus_client::{
    collector::Collector, encoding::DescriptorEncoder, metrics::MetricType::Gauge, registry::Unit::Seconds,
};
use serde_json::{Map, Value};
use std::fmt;

/// How many instances `/status` lists: more than an operator reads, and few enough to collect their reports
/// while other requests wait. Metrics count all instances.
const LISTED: usize = 200;

/// The services of a registry.
#[derive(Debug)]
pub(super) struct PrimaryOnly {
    registry: Registry,
}

impl PrimaryOnly {
    pub(super) fn of(registry: &Registry) -> Self {
        Self { registry: registry.clone() }
    }
}

impl Collector for PrimaryOnly {
    fn encode(&self, mut out: DescriptorEncoder<'_>) -> fmt::Result {
        let services = self.registry.status();
        let help = "Where a primary-only service is in its term.";
        let mut states = out.encode_descriptor("vvm_service_state", help, None, Gauge)?;
        for service in &services {
            for name in ServiceState::NAMES {
                let labels = [("service", service.service), ("vvm_service_state", name)];
                states.encode_family(&labels)?.encode_gauge(&u32::from(service.state.name() == name))?;
            }
        }
        let help = "Instances of a primary-only service, by the state of their runs.";
        let mut instances = out.encode_descriptor("vvm_service_instances", help, None, Gauge)?;
        for service in &services {
            let ended = service.instances.saturating_sub(service.running + service.waiting);
            for (state, count) in
                [("waiting", service.waiting), ("running", service.running), ("ended", ended)]
            {
                let labels = [("service", service.service), ("state", state)];
                instances.encode_family(&labels)?.encode_gauge(&count)?;
            }
        }
        let help = "Documents of a primary-only service that make no instance.";
        let mut quarantined = out.encode_descriptor("vvm_service_quarantined", help, None, Gauge)?;
        for service in &services {
            let of_service = [("service", service.service)];
            quarantined.encode_family(&of_service)?.encode_gauge(&service.quarantined.len())?;
        }
        let help = "How long the last rebuild of a primary-only service took.";
        let mut rebuilds = out.encode_descriptor("vvm_service_rebuild", help, Some(&Seconds), Gauge)?;
        for service in &services {
            if let Some(rebuilt_in) = service.rebuilt_in {
                let of_service = [("service", service.service)];
                rebuilds.encode_family(&of_service)?.encode_gauge(&rebuilt_in.as_secs_f64())?;
            }
        }
        Ok(())
    }
}

impl Extra for PrimaryOnly {
    fn status(&self, out: &mut Map<String, Value>) {
        let services = self.registry.status();
        let in_all: usize = services.iter().map(|service| service.instances).sum();
        let listed = self.registry.first_instances(LISTED);
        out.insert("instances_not_listed".into(), in_all.saturating_sub(listed.len()).into());
        // Both consist of texts, numbers, and reports that are JSON already: serialization can't fail.
        out.insert("services".into(), serde_json::to_value(services).unwrap_or_default());
        out.insert("instances".into(), serde_json::to_value(listed).unwrap_or_default());
    }
}
