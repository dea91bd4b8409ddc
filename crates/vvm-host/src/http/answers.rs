//! What is answered to which path. Nothing here changes anything, so that only GET and HEAD are served.

use super::metrics::OfSituation;
use crate::status::{HostStatus, Readiness, Role};
use http_body_util::Full;
use hyper::{
    Method, Response, StatusCode,
    body::Bytes,
    header::{
        ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS,
    },
};
use prometheus_client::{collector::Collector, encoding::text::encode, registry::Registry};
use serde_json::{Map, Value};
use std::{fmt::Write as _, sync::Arc};

/// What a host has to show beside its situation: primary-only instances, say.
pub(crate) trait Extra: Collector {
    /// Adds members to the object of `/status`.
    fn status(&self, out: &mut Map<String, Value>);
}

/// What is answered from.
#[derive(Debug)]
pub(crate) struct Answers {
    situation: Arc<HostStatus>,
    extras: Vec<Arc<dyn Extra>>,
    metrics: Registry,
}

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

type Answer = Response<Full<Bytes>>;

/// The status page: whole, since a browser may be on a network that reaches nothing else.
const PAGE: &str = include_str!("page.html");

/// It needs its own style and script, and asks nobody but us.
const PAGE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:";

const PATHS: &str = "/ /healthz /readyz /leader /metrics /status";

impl Answers {
    /// From `situation`.
    pub(crate) fn new(situation: Arc<HostStatus>) -> Self {
        let mut metrics = Registry::default();
        let name = situation.candidate().name.clone();
        metrics
            .sub_registry_with_label(("name".into(), name.into()))
            .register_collector(Box::new(OfSituation(Arc::clone(&situation))));
        Self { situation, extras: Vec::new(), metrics }
    }

    /// Also from `extra`.
    pub(crate) fn with(mut self, extra: Arc<impl Extra>) -> Self {
        self.metrics.register_collector(Box::new(Arc::clone(&extra)));
        self.extras.push(extra);
        self
    }

    /// The answer to a request. Never waits.
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
            "/status" => self.status(),
            _ => text(StatusCode::NOT_FOUND, &format!("there is {PATHS}")),
        }
    }

    fn page(&self) -> Answer {
        let mut page = answer(StatusCode::OK, "text/html; charset=utf-8", PAGE.into());
        page.headers_mut().insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(PAGE_POLICY));
        page
    }

    fn readiness(&self) -> Answer {
        match self.situation.readiness() {
            Readiness::Ready => text(StatusCode::OK, &format!("ready: {}", self.situation.role())),
            Readiness::NotReady(reason) => {
                text(StatusCode::SERVICE_UNAVAILABLE, &format!("not ready: {reason}"))
            }
        }
    }

    fn leader(&self) -> Answer {
        if let Some((leading, margin)) = self.situation.leads() {
            let left = margin.as_secs_f64();
            return text(StatusCode::OK, &format!("leading: {leading}, {left:.1} s left"));
        }
        let role = self.situation.role();
        let mut says = match role {
            Role::Idling { .. } => format!("no command runs: {role}"),
            _ => format!("not leading: {role}"),
        };
        for seen in self.situation.others() {
            let ago = seen.ago.as_secs_f64();
            // Writing to a text does not fail.
            let _ = write!(
                says,
                "\nslot {}: {}, epoch {}, seen {ago:.1} s ago",
                seen.slot, seen.holder, seen.epoch
            );
        }
        text(StatusCode::SERVICE_UNAVAILABLE, &says)
    }

    fn metrics(&self) -> Answer {
        let mut out = String::new();
        // Writing to a text does not fail.
        let _ = encode(&mut out, &self.metrics);
        answer(StatusCode::OK, OPEN_METRICS, out.into())
    }

    fn status(&self) -> Answer {
        // A snapshot is an object with text keys, which there is no way to fail with.
        let mut status = serde_json::to_value(self.situation.snapshot()).unwrap_or_default();
        if let Value::Object(members) = &mut status {
            self.extras.iter().for_each(|extra| extra.status(members));
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
    // It holds for the moment of asking, and for no other.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}
