//! The answer to each path. Only GET and HEAD are served: no request changes anything.

use super::{
    metrics::HostMetrics,
    services::{ServiceMetrics, add_status},
};
use crate::status::{HostStatus, Role, Seen};
use http_body_util::Full;
use hyper::{
    Method, Response, StatusCode,
    body::Bytes,
    header::{
        ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS,
    },
};
use prometheus_client::{encoding::text::encode, registry::Registry};
use serde_json::Value;
use std::{fmt::Write as _, sync::Arc};

/// Makes the answers.
#[derive(Debug)]
pub(crate) struct Answers {
    status: Arc<HostStatus>,
    services: Option<primary_only::Registry>,
    metrics: Registry,
}

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

type Answer = Response<Full<Bytes>>;

/// The status page, with style and script: the browser's network may reach no other server.
const PAGE: &str = include_str!("page.html");

/// The page may use its own style and script, and connect to this server alone.
const PAGE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                           connect-src 'self'; img-src data:";

impl Answers {
    /// Answers from `status`, and from `services` if there are any.
    pub(crate) fn new(status: Arc<HostStatus>, services: Option<primary_only::Registry>) -> Self {
        let mut metrics = Registry::default();
        let name = status.candidate.name.clone();
        metrics
            .sub_registry_with_label(("name".into(), name.into()))
            .register_collector(Box::new(HostMetrics(Arc::clone(&status))));
        if let Some(services) = services.clone() {
            metrics.register_collector(Box::new(ServiceMetrics(services)));
        }
        Self { status, services, metrics }
    }

    /// Returns the answer to a request. Never waits.
    pub(super) fn to(&self, method: &Method, path: &str) -> Answer {
        if !matches!(*method, Method::GET | Method::HEAD) {
            let mut refusal =
                text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD: nothing can be changed here");
            refusal.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return refusal;
        }
        match path {
            "/" => self.page(),
            "/healthz" => text(StatusCode::OK, "alive"),
            "/readyz" => self.readiness(),
            "/leader" => self.leader(),
            "/metrics" => self.metrics(),
            "/status" => self.snapshot(),
            _ => text(StatusCode::NOT_FOUND, "there is / /healthz /readyz /leader /metrics /status"),
        }
    }

    fn page(&self) -> Answer {
        let mut page = answer(StatusCode::OK, "text/html; charset=utf-8", PAGE.into());
        page.headers_mut().insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(PAGE_POLICY));
        page
    }

    fn readiness(&self) -> Answer {
        match self.status.readiness() {
            Ok(()) => text(StatusCode::OK, &format!("ready: {}", self.status.activity())),
            Err(reason) => text(StatusCode::SERVICE_UNAVAILABLE, &format!("not ready: {reason}")),
        }
    }

    fn leader(&self) -> Answer {
        if let Some((leading, margin)) = self.status.leads() {
            let left = margin.as_secs_f64();
            return text(StatusCode::OK, &format!("leading: {leading}, {left:.1} s left"));
        }
        let role = self.status.role();
        let mut lines = match role {
            Role::Idling { .. } => format!("no command runs: {role}"),
            _ => format!("not leading: {}", self.status.activity()),
        };
        for Seen { slot, holder, epoch, ago, .. } in self.status.others() {
            let ago = ago.as_secs_f64();
            // Writing to a String does not fail.
            let _ = write!(lines, "\nslot {slot}: {holder}, epoch {epoch}, seen {ago:.1} s ago");
        }
        text(StatusCode::SERVICE_UNAVAILABLE, &lines)
    }

    fn metrics(&self) -> Answer {
        let mut out = String::new();
        // Writing to a String does not fail.
        let _ = encode(&mut out, &self.metrics);
        answer(StatusCode::OK, OPEN_METRICS, out.into())
    }

    fn snapshot(&self) -> Answer {
        let mut status = self.status.snapshot();
        if let (Value::Object(members), Some(services)) = (&mut status, &self.services) {
            add_status(services, members);
        }
        answer(StatusCode::OK, "application/json", format!("{status}\n").into())
    }
}

fn text(status: StatusCode, text: &str) -> Answer {
    answer(status, "text/plain; charset=utf-8", format!("{text}\n").into())
}

fn answer(status: StatusCode, content_type: &'static str, body: Bytes) -> Answer {
    let mut answer = Response::new(Full::new(body));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    // An answer is true only at the moment of the request.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}
