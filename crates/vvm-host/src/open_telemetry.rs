//! [`Observation`]: the metrics and leaderships of a host by the API of OpenTelemetry. Nothing here exports or waits. A
//! meter provider reads the metrics on its own thread, when it collects. A span and a latency are handed to the
//! provider's processor, which must not block, as its specification says.

use crate::{
    metrics::{HOST, LATENCY, Metric, SERVICES, Samples},
    status::{BOUNDS, HostStatus, Reporter},
};
use opentelemetry::{
    InstrumentationScope, KeyValue,
    global::{BoxedTracer, ObjectSafeTracerProvider},
    metrics::{AsyncInstrument, Meter, MeterProvider},
};
use primary_only::Registry;
use std::{sync::Arc, time::Duration};

const SCOPE: &str = "vvm";

/// While it lives, the metrics of a [`Host`](crate::Host) are observed. Keep it until the meter provider is shut
/// down: the last values, such as the count of losses, are read then.
#[must_use = "metrics are observed only while it lives"]
#[derive(Debug)]
pub struct Observation(#[expect(dead_code, reason = "callbacks have weak references to it")] Arc<Observed>);

#[derive(Debug)]
struct Observed {
    status: Arc<HostStatus>,
    services: Option<Registry>,
}

pub(crate) fn observe(
    status: Arc<HostStatus>,
    services: Option<Registry>,
    meters: &dyn MeterProvider,
    tracers: &dyn ObjectSafeTracerProvider,
) -> Observation {
    let meter = meters.meter(SCOPE);
    let name = KeyValue::new("name", status.candidate.name.clone());
    let observed = Arc::new(Observed { status, services });
    // An SDK never drops a callback, so callbacks keep nothing alive.
    let of = || Arc::downgrade(&observed);
    for metric in &HOST {
        let (of, name) = (of(), Some(name.clone()));
        register(&meter, metric, name, move |read| of.upgrade().iter().for_each(|of| read(&of.status)));
    }
    for metric in observed.services.iter().flat_map(|_| &SERVICES) {
        let of = of();
        register(&meter, metric, None, move |read| {
            let services = of.upgrade().and_then(|of| of.services.as_ref().map(Registry::status));
            services.iter().for_each(|services| read(services));
        });
    }
    let bounds = BOUNDS.iter().map(|bound| Duration::from_millis(*bound).as_secs_f64());
    let latency = meter.f64_histogram(LATENCY.0).with_description(LATENCY.1).with_unit("s");
    let latency = latency.with_boundaries(bounds.collect()).build();
    let scope = InstrumentationScope::builder(SCOPE).build();
    let tracer = BoxedTracer::new(tracers.boxed_tracer(scope));
    let _first_stands = observed.status.reporter.set(Reporter::new(tracer, latency, name));
    Observation(observed)
}

/// Makes the instrument of `metric`. `of` calls its argument with the source, if there still is one.
fn register<Source: ?Sized + 'static>(
    meter: &Meter,
    metric: &'static Metric<Source>,
    name: Option<KeyValue>,
    of: impl Fn(&dyn Fn(&Source)) + Send + Sync + 'static,
) {
    let Metric { name: metric_name, help, samples } = metric;
    let attributes = move |labels: &[(&str, &str)]| -> Vec<KeyValue> {
        let labels = labels.iter().map(|(key, value)| KeyValue::new((*key).to_owned(), (*value).to_owned()));
        name.iter().cloned().chain(labels).collect()
    };
    match samples {
        Samples::Info(labels) => {
            // What converts to Prometheus adds units and `_total`, but no `_info`.
            let gauge = meter.u64_observable_gauge(format!("{metric_name}_info")).with_description(*help);
            gauge.with_callback(move |out| of(&|_| out.observe(1, &attributes(labels)))).build();
        }
        Samples::Gauge(read) => {
            let gauge = meter.u64_observable_gauge(*metric_name).with_description(*help);
            let callback = move |out: &dyn AsyncInstrument<u64>| {
                of(&|source| read(source, &mut |labels, value| out.observe(value, &attributes(labels))));
            };
            gauge.with_callback(callback).build();
        }
        Samples::Seconds(read) => {
            let gauge = meter.f64_observable_gauge(*metric_name).with_description(*help).with_unit("s");
            let callback = move |out: &dyn AsyncInstrument<f64>| {
                of(&|source| {
                    read(source, &mut |labels, value| out.observe(value.as_secs_f64(), &attributes(labels)));
                });
            };
            gauge.with_callback(callback).build();
        }
        Samples::Counter(read) => {
            let counter = meter.u64_observable_counter(*metric_name).with_description(*help);
            let callback = move |out: &dyn AsyncInstrument<u64>| {
                of(&|source| read(source, &mut |labels, value| out.observe(value, &attributes(labels))));
            };
            counter.with_callback(callback).build();
        }
        // It counts each renewal when it is confirmed: there are no histograms that a callback observes.
        Samples::RenewalLatency => {}
    }
}

#[cfg(test)]
mod tests;
