//! What primary-only services have to show, over HTTP.

use crate::http::{Exposition, Extra, Kind};
use primary_only::{Registry, ServiceState, ServiceStatus};
use serde_json::{Map, Value};

/// How many instances `/status` lists: more than a person reads, few enough to ask each for its report while others wait.
/// Metrics count all of them.
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

impl Extra for PrimaryOnly {
    fn metrics(&self, out: &mut Exposition) {
        let services = self.registry.status();
        let mut of_each = |name, kind, unit, help, sample: &dyn Fn(&mut Exposition, &ServiceStatus)| {
            out.family(name, kind, unit, help);
            services.iter().for_each(|service| sample(out, service));
        };
        let help = "Where a primary-only service is in its term.";
        of_each("vvm_service_state", Kind::StateSet, None, help, &|out, service| {
            for name in ServiceState::NAMES {
                let labels = [("service", service.service), ("vvm_service_state", name)];
                out.sample("vvm_service_state", &labels, u8::from(service.state.name() == name));
            }
        });
        let help = "Instances of a primary-only service, by how far their runs are.";
        of_each("vvm_service_instances", Kind::Gauge, None, help, &|out, service| {
            let ended = service.instances.saturating_sub(service.running + service.waiting);
            for (course, count) in
                [("waiting", service.waiting), ("running", service.running), ("ended", ended)]
            {
                let labels = [("service", service.service), ("course", course)];
                out.sample("vvm_service_instances", &labels, count);
            }
        });
        let help = "Documents of a primary-only service that make no instance.";
        of_each("vvm_service_quarantined", Kind::Gauge, None, help, &|out, service| {
            out.sample("vvm_service_quarantined", &[("service", service.service)], service.quarantined.len());
        });
        let help = "How long the last rebuild of a primary-only service took.";
        of_each("vvm_service_rebuild_seconds", Kind::Gauge, Some("seconds"), help, &|out, service| {
            if let Some(rebuilt_in) = service.rebuilt_in {
                let labels = [("service", service.service)];
                out.sample("vvm_service_rebuild_seconds", &labels, rebuilt_in.as_secs_f64());
            }
        });
    }

    fn status(&self, out: &mut Map<String, Value>) {
        let services = self.registry.status();
        let in_all: usize = services.iter().map(|service| service.instances).sum();
        let listed = self.registry.first_instances(LISTED);
        out.insert("instances_not_listed".into(), in_all.saturating_sub(listed.len()).into());
        // Both are made of texts and numbers, and of reports, which are JSON already.
        out.insert("services".into(), serde_json::to_value(services).unwrap_or_default());
        out.insert("instances".into(), serde_json::to_value(listed).unwrap_or_default());
    }
}
