//! The server as its clients find it, on a socket of this machine.

use super::*;
use crate::status::{Candidate, HostStatus};
use ielections::{Holder, Ttl};
use prometheus_client::{collector::Collector, encoding::DescriptorEncoder, metrics::MetricType};
use serde_json::{Map, Value};
use std::num::NonZeroU32;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    runtime::Builder,
};
use vvm_clock::SystemClock;

#[derive(Debug)]
struct Instances;

impl Collector for Instances {
    fn encode(&self, mut out: DescriptorEncoder<'_>) -> fmt::Result {
        out.encode_descriptor("vvm_instances", "Instances.", None, MetricType::Gauge)?
            .encode_family(&[("service", "copy")])?
            .encode_gauge(&3)
    }
}

impl Extra for Instances {
    fn status(&self, out: &mut Map<String, Value>) {
        out.insert("instances".into(), 3.into());
    }
}

/// Runs `client` beside a server that shows a process which opens its storage.
fn beside<Client: Future<Output = ()>>(client: impl FnOnce(SocketAddr, Arc<HostStatus>) -> Client) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let clock = Arc::new(SystemClock::start().unwrap()) as Arc<dyn Clock>;
        let candidate = Candidate {
            name: "payroll \"1\"".into(),
            holder: Holder::new("here").unwrap(),
            slots: NonZeroU32::MIN,
            ttl: Ttl::DEFAULT,
        };
        let situation = Arc::new(HostStatus::new(candidate, Arc::clone(&clock)));
        let answers = Answers::new(Arc::clone(&situation)).with(Arc::new(Instances));
        let server = HttpServer::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let address = server.address();
        tokio::select! {
            biased;
            never = server.serve(&answers, &clock) => match never {},
            () = client(address, situation) => {}
        }
    });
}

/// Sends `request`, and returns all that comes back until the server closes.
async fn sent(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

async fn get(address: SocketAddr, path: &str) -> String {
    sent(address, &format!("GET {path} HTTP/1.1\r\nHost: here\r\n\r\n")).await
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or_default()
}

fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").unwrap().1
}

#[test]
fn each_path_answers_for_the_moment_of_asking() {
    beside(async |address, situation| {
        assert_eq!(status(&get(address, "/healthz").await), "200");
        let opening = get(address, "/readyz").await;
        assert_eq!((status(&opening), body(&opening)), ("503", "not ready: opening the storage\n"));
        situation.campaigns();
        let campaigning = get(address, "/readyz").await;
        assert_eq!((status(&campaigning), body(&campaigning)), ("200", "ready: waiting for leadership\n"));
        let leader = get(address, "/leader").await;
        assert_eq!((status(&leader), body(&leader)), ("503", "not leading: waiting for leadership\n"));
        situation.ends("the command has ended");
        let ended = get(address, "/readyz").await;
        assert_eq!((status(&ended), body(&ended)), ("503", "not ready: ended: the command has ended\n"));
    });
}

#[test]
fn metrics_and_status_show_what_else_a_host_has() {
    beside(async |address, _| {
        let metrics = get(address, "/metrics").await;
        let content_type = "content-type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n";
        assert!(metrics.contains(content_type), "{metrics}");
        assert!(metrics.contains("\nvvm_instances{service=\"copy\"} 3\n"), "{metrics}");
        assert!(metrics.ends_with("\n# EOF\n"), "{metrics}");
        assert!(
            metrics.contains("\nvvm_role{name=\"payroll \\\"1\\\"\",vvm_role=\"opening\"} 1\n"),
            "{metrics}"
        );
        assert!(
            !metrics.contains("\nvvm_margin_seconds{"),
            "without a leadership there is no margin: {metrics}"
        );
        let shown: Value = serde_json::from_str(body(&get(address, "/status").await)).unwrap();
        assert_eq!((&shown["role"], &shown["instances"]), (&"opening".into(), &3.into()));
        assert_eq!(shown["leadership"], Value::Null);
    });
}

#[test]
fn a_latency_counts_in_each_bucket_that_reaches_as_far() {
    beside(async |address, situation| {
        for millis in [3, 60_000] {
            situation.telemetry().renewals().record(Duration::from_millis(millis));
        }
        let metrics = get(address, "/metrics").await;
        let labels = "name=\"payroll \\\"1\\\"\"";
        for (bound, count) in [("0.002", 0), ("0.005", 1), ("10.0", 1), ("+Inf", 2)] {
            let bucket = format!("\nvvm_renewal_latency_seconds_bucket{{{labels},le=\"{bound}\"}} {count}\n");
            assert!(metrics.contains(&bucket), "{bucket:?} in {metrics}");
        }
        assert!(metrics.contains(&format!("\nvvm_renewal_latency_seconds_sum{{{labels}}} 60.003\n")));
        assert!(metrics.contains(&format!("\nvvm_renewal_latency_seconds_count{{{labels}}} 2\n")));
        assert!(metrics.contains("\n# UNIT vvm_renewal_latency_seconds seconds\n"), "{metrics}");
    });
}

#[test]
fn the_page_asks_nobody_but_us() {
    beside(async |address, _| {
        let page = get(address, "/").await;
        assert!(page.contains("content-security-policy: default-src 'none';"), "{page}");
        let addresses = body(&page).match_indices("http").count() + body(&page).match_indices("//").count();
        // One comment of its script.
        assert_eq!(addresses, 1, "it names an address of somebody else");
    });
}

#[test]
fn what_is_not_served_is_refused_with_what_is() {
    beside(async |address, _| {
        let unknown = get(address, "/metric").await;
        assert_eq!(status(&unknown), "404");
        assert!(body(&unknown).contains("/metrics"), "{unknown}");
        let post = sent(address, "POST /leader HTTP/1.1\r\nHost: here\r\nContent-Length: 0\r\n\r\n").await;
        assert_eq!(status(&post), "405");
        assert!(post.contains("allow: GET, HEAD\r\n"), "{post}");
        let head = sent(address, "HEAD /healthz HTTP/1.1\r\nHost: here\r\n\r\n").await;
        assert_eq!((status(&head), body(&head)), ("200", ""));
        assert_eq!(status(&sent(address, "no request at all\r\n\r\n").await), "400");
        let long = format!("GET /{} HTTP/1.1\r\nHost: here\r\n\r\n", "x".repeat(2 * HEAD_BYTES));
        let refusal = get_or_nothing(address, &long).await;
        assert!(["431", ""].contains(&status(&refusal)), "{refusal}");
    });
}

/// A server that refuses while the client still sends may cut it off.
async fn get_or_nothing(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let _ = stream.write_all(request.as_bytes()).await;
    let mut answer = vec![0; 64];
    let read = stream.read(&mut answer).await.unwrap_or(0);
    String::from_utf8_lossy(&answer[..read]).into_owned()
}

/// Clients that connect and say nothing keep others waiting for as long as a head may take, and no longer.
#[test]
fn clients_that_say_nothing_do_not_keep_others_out() {
    beside(async |address, _| {
        let mut silent = Vec::new();
        for _ in 0..2 * CONNECTIONS {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        assert_eq!(status(&get(address, "/healthz").await), "200");
        let mut nothing = Vec::new();
        let _ = silent[0].read_to_end(&mut nothing).await;
        assert_eq!(nothing, b"", "it was hung up on");
    });
}

#[test]
fn an_address_that_is_taken_is_refused_with_the_way_out() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let _context = runtime.enter();
    let first = HttpServer::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let refusal = HttpServer::bind(first.address()).unwrap_err().to_string();
    assert!(refusal.contains("a port of its own"), "{refusal}");
    let refusal = HttpServer::bind(SocketAddr::from(([192, 0, 2, 1], 80))).unwrap_err().to_string();
    assert!(refusal.contains("an address of this machine"), "{refusal}");
}
