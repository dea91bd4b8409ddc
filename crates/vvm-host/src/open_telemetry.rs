//! [`Observation`]: the metrics and leaderships of a host by the API of OpenTelemetry.
//!
//! Nothing here exports or waits. A meter provider reads the metrics on its own thread, when it collects. A span
//! and a latency are handed to the provider's processor, which must not block, as its specification says.

use crate::{
    metrics::{HOST, LATENCY, Metric, SERVICES, Samples},
    status::{BOUNDS, Candidate, HostStatus, Role, SlotLeadership, WhyStopping, loss_word},
};
use opentelemetry::{
    Context, InstrumentationScope, KeyValue,
    global::{BoxedSpan, BoxedTracer, ObjectSafeTracerProvider},
    metrics::{AsyncInstrument, Histogram, Meter, MeterProvider},
    trace::{Span as _, SpanBuilder, Status, Tracer as _},
};
use parking_lot::Mutex;
use primary_only::Registry;
use std::{fmt, sync::Arc, time::Duration};

/// The scope of all instruments and spans.
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

/// What a host reports at the moment when it happens: latencies of renewals, and a span for each leadership.
pub(crate) struct Reporter {
    tracer: BoxedTracer,
    span: Mutex<Option<BoxedSpan>>,
    latency: Histogram<f64>,
    /// The label of the host's metrics.
    name: [KeyValue; 1],
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
    let _first_stands = observed.status.reporter.set(Reporter {
        tracer: BoxedTracer::new(tracers.boxed_tracer(InstrumentationScope::builder(SCOPE).build())),
        span: Mutex::default(),
        latency: latency.with_boundaries(bounds.collect()).build(),
        name: [name],
    });
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

impl Reporter {
    pub(crate) fn renewed(&self, latency: Duration) {
        self.latency.record(latency.as_secs_f64(), &self.name);
    }

    /// Begins the span of a leadership. It is a root: a leadership lasts longer than what the caller of the host traces.
    pub(crate) fn leads(&self, candidate: &Candidate, leading: &SlotLeadership) {
        let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let span = SpanBuilder::from_name("vvm.leadership").with_attributes([
            KeyValue::new("vvm.name", candidate.name.clone()),
            KeyValue::new("vvm.holder", candidate.holder.as_str().to_owned()),
            KeyValue::new("vvm.slot", i64::from(leading.slot)),
            KeyValue::new("vvm.epoch", number(leading.standing.epoch().get())),
            KeyValue::new("vvm.incarnation", leading.standing.incarnation().to_string()),
        ]);
        *self.span.lock() = Some(self.tracer.build_with_context(span, &Context::new()));
    }

    /// Ends the span of a leadership, if there is one.
    pub(crate) fn ended(&self, role: &Role, reason: &str) {
        let Some(mut span) = self.span.lock().take() else { return };
        if let Role::Stopping { why, .. } = role {
            span.set_attribute(KeyValue::new("vvm.end", why.word()));
            if let WhyStopping::Lost(loss) = why {
                span.set_attributes(loss_word(loss).map(|loss| KeyValue::new("vvm.loss", loss)));
                span.set_status(Status::error(reason.to_owned()));
            }
        }
        span.set_attribute(KeyValue::new("vvm.reason", reason.to_owned()));
        span.end();
    }
}

impl fmt::Debug for Reporter {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Reporter").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
