//! [`Reporter`]: what a host reports to OpenTelemetry at the moment when it happens.

use super::{
    candidate::Candidate,
    role::{Role, SlotLeadership, WhyStopping},
    telemetry::loss_word,
};
use opentelemetry::{
    Context, KeyValue,
    global::{BoxedSpan, BoxedTracer},
    metrics::Histogram,
    trace::{Span as _, SpanBuilder, Status, Tracer as _},
};
use parking_lot::Mutex;
use std::{fmt, time::Duration};

/// Latencies of renewals, and a span for each leadership.
pub(crate) struct Reporter {
    tracer: BoxedTracer,
    span: Mutex<Option<BoxedSpan>>,
    latency: Histogram<f64>,
    /// The label of the host's metrics.
    name: [KeyValue; 1],
}

impl Reporter {
    pub(crate) fn new(tracer: BoxedTracer, latency: Histogram<f64>, name: KeyValue) -> Self {
        Self { tracer, span: Mutex::default(), latency, name: [name] }
    }

    pub(crate) fn record_renewal(&self, latency: Duration) {
        self.latency.record(latency.as_secs_f64(), &self.name);
    }

    /// Begins the span of a leadership. It is a root: a leadership lasts longer than what the caller of the host traces.
    pub(crate) fn begin_span(&self, candidate: &Candidate, leading: &SlotLeadership) {
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

    pub(crate) fn end_span(&self, role: &Role, reason: &str) {
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
