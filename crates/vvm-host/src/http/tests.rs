use super::*;
use crate::status::{self, HostStatus};
use primary_only::{RegistryBuilder, RegistryConfig};
use serde_json::Value;
use testing_time::MockClock;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    runtime::Builder,
};

/// Runs `client` beside the server of a process that opens its storage. The server's clock stands still.
fn beside<Client: Future<Output = ()>>(client: impl FnOnce(SocketAddr, Arc<HostStatus>) -> Client) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mock = MockClock::new();
        let clock = Arc::new(mock.clone()) as Arc<dyn Clock>;
        let status = status::tests::status("payroll \"1\"", "here", &clock);
        let services = RegistryBuilder::new(RegistryConfig::new(&ielections::testing::env(&mock))).build();
        let answers = Answers::new(Arc::clone(&status), Some(services));
        let server = HttpServer::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let address = server.address;
        tokio::select! {
            biased;
            never = server.serve(&answers, &clock) => match never {},
            () = client(address, status) => {}
        }
    });
}

async fn sent(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let _ = stream.write_all(request.as_bytes()).await;
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer).await;
    answer
}

async fn get(address: SocketAddr, path: &str) -> String {
    sent(address, &format!("GET {path} HTTP/1.1\r\nHost: here\r\n\r\n")).await
}

async fn metrics_with(address: SocketAddr, lines: &[&str]) -> String {
    let metrics = get(address, "/metrics").await;
    for line in lines {
        assert!(metrics.contains(&format!("\n{line}\n")), "no {line:?} in {metrics}");
    }
    metrics
}

async fn shown(address: SocketAddr) -> Value {
    serde_json::from_str(body(&get(address, "/status").await)).unwrap()
}

const NAME: &str = "name=\"payroll \\\"1\\\"\"";

fn code(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or_default()
}

fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").unwrap().1
}

#[test]
fn each_path_answers_for_the_moment_of_the_request() {
    beside(async |address, status| {
        assert_eq!(code(&get(address, "/healthz").await), "200");
        let opening = get(address, "/readyz").await;
        assert_eq!((code(&opening), body(&opening)), ("503", "not ready: opening the storage\n"));
        status.campaigns();
        let campaigning = get(address, "/readyz").await;
        assert_eq!((code(&campaigning), body(&campaigning)), ("200", "ready: waiting for leadership\n"));
        let leader = get(address, "/leader").await;
        assert_eq!((code(&leader), body(&leader)), ("503", "not leading: waiting for leadership\n"));
        status.ends("the command has ended");
        let ended = get(address, "/readyz").await;
        assert_eq!((code(&ended), body(&ended)), ("503", "not ready: ended: the command has ended\n"));
    });
}

#[test]
fn metrics_and_status_include_primary_only_services() {
    beside(async |address, _| {
        let role = format!("vvm_role{{{NAME},vvm_role=\"opening\"}} 1");
        let metrics = metrics_with(address, &["# TYPE vvm_service_instances gauge", &role]).await;
        let content_type = "content-type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n";
        assert!(metrics.contains(content_type) && metrics.ends_with("\n# EOF\n"), "{metrics}");
        assert!(!metrics.contains("\nvvm_margin_seconds{"), "a margin without a leadership: {metrics}");
        let shown = shown(address).await;
        assert_eq!((&shown["role"], &shown["instances"]), (&"opening".into(), &Value::Array(vec![])));
        assert_eq!(shown["leadership"], Value::Null);
    });
}

#[test]
fn latency_counts_in_every_bucket_that_includes_it() {
    beside(async |address, status| {
        for millis in [1, 3, 700, 60_000] {
            status.telemetry.renewals.record(Duration::from_millis(millis));
        }
        let latency = "vvm_renewal_latency_seconds";
        let table =
            [("0.001", 1), ("0.002", 1), ("0.005", 2), ("0.5", 2), ("1.0", 3), ("10.0", 3), ("+Inf", 4)];
        let buckets =
            table.map(|(bound, count)| format!("{latency}_bucket{{{NAME},le=\"{bound}\"}} {count}"));
        metrics_with(address, &buckets.each_ref().map(String::as_str)).await;
        let (sum, count) =
            (format!("{latency}_sum{{{NAME}}} 60.704"), format!("{latency}_count{{{NAME}}} 4"));
        metrics_with(address, &[&sum, &count, &format!("# UNIT {latency} seconds")]).await;
    });
}

#[test]
fn page_loads_nothing_from_other_servers() {
    beside(async |address, _| {
        let page = get(address, "/").await;
        assert!(page.contains("content-security-policy: default-src 'none';"), "{page}");
        let addresses = body(&page).match_indices("http").count() + body(&page).match_indices("//").count();
        assert_eq!(addresses, 0, "it names an address of another server");
    });
}

#[test]
fn picture_of_the_page_is_served_as_one() {
    beside(async |address, _| {
        let picture = get(address, "/timeline.svg?7").await;
        assert!(picture.contains("content-type: image/svg+xml\r\n"), "{picture}");
        assert!(
            body(&picture).starts_with("<svg ") && body(&picture).contains("payroll &quot;1&quot;"),
            "{picture}"
        );
        assert!(get(address, "/").await.contains("img-src 'self'"), "the page may not show it");
    });
}

#[test]
fn client_that_ends_its_side_after_the_request_gets_the_answer() {
    beside(async |address, _| {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /healthz HTTP/1.0\r\n\r\n").await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert_eq!(code(&answer), "200");
    });
}

#[test]
fn refusal_names_what_is_served() {
    beside(async |address, _| {
        let unknown = get(address, "/metric").await;
        assert_eq!(code(&unknown), "404");
        assert!(body(&unknown).contains("/metrics"), "{unknown}");
        let post = sent(address, "POST /leader HTTP/1.1\r\nHost: here\r\nContent-Length: 0\r\n\r\n").await;
        assert_eq!(code(&post), "405");
        assert!(post.contains("allow: GET, HEAD\r\n"), "{post}");
        let head = sent(address, "HEAD /healthz HTTP/1.1\r\nHost: here\r\n\r\n").await;
        assert_eq!((code(&head), body(&head)), ("200", ""));
        assert_eq!(code(&sent(address, "no request at all\r\n\r\n").await), "400");
        let long = format!("GET /{} HTTP/1.1\r\nHost: here\r\n\r\n", "x".repeat(2 * HEAD_BYTES));
        let refusal = sent(address, &long).await;
        assert!(["431", ""].contains(&code(&refusal)), "{refusal}");
    });
}

#[test]
fn slow_clients_do_not_keep_a_probe_waiting() {
    beside(async |address, _| {
        let mut slow = Vec::new();
        for number in 0..3 * CONNECTIONS {
            let mut stream = TcpStream::connect(address).await.unwrap();
            if number % 2 == 0 {
                stream.write_all(b"GET /healthz HTTP/1.1\r\nHos").await.unwrap();
            }
            slow.push(stream);
        }
        assert_eq!(code(&get(address, "/healthz").await), "200");
        let mut received = Vec::new();
        let _ = slow[0].read_to_end(&mut received).await;
        assert_eq!(received, b"", "the oldest connection is closed");
    });
}

/// What the thread of the host does besides has its turn after few answers. Shows I11.
#[test]
fn clients_without_a_pause_leave_other_work_its_turns() {
    use std::{
        io::{Read as _, Write as _},
        net::TcpStream,
        sync::atomic::{AtomicUsize, Ordering::SeqCst},
    };
    static ANSWERED: AtomicUsize = AtomicUsize::new(0);
    const ENOUGH: usize = 1000;
    beside(async |address, _| {
        let flood = move || {
            while ANSWERED.load(SeqCst) < ENOUGH {
                let mut stream = TcpStream::connect(address).unwrap();
                let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n");
                let _ = stream.read_to_end(&mut Vec::new());
                ANSWERED.fetch_add(1, SeqCst);
            }
        };
        let clients =
            [(); 4].map(|()| std::thread::Builder::new().name("client".into()).spawn(flood).unwrap());
        let mut before = 0;
        while clients.iter().any(|client| !client.is_finished()) {
            tokio::task::yield_now().await;
            let answered = ANSWERED.load(SeqCst);
            // So many calls a task has in one turn (`tokio::task::coop`), and an answer takes several.
            assert!(answered - before <= 128, "{before} {answered}");
            before = answered;
        }
        clients.into_iter().for_each(|client| client.join().unwrap());
    });
}

#[test]
fn metrics_of_the_work_are_counted() {
    beside(async |address, status| {
        let metrics = get(address, "/metrics").await;
        assert!(!metrics.contains("\nvvm_last_exit_status{"), "no run has ended yet: {metrics}");
        status.exited(3);
        status.check_failed();
        for (name, count) in [("last_exit_status", 3), ("check_failures_total", 1), ("restarts_total", 0)] {
            metrics_with(address, &[&format!("vvm_{name}{{{NAME}}} {count}")]).await;
        }
        let shown = shown(address).await;
        assert_eq!((&shown["last_exit_status"], &shown["check_failures"]), (&3.into(), &1.into()));
    });
}

#[test]
fn refusal_of_an_address_names_the_way_out() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let _context = runtime.enter();
    let first = HttpServer::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let refusal = HttpServer::bind(first.address).unwrap_err().to_string();
    assert!(refusal.contains("a port of its own"), "{refusal}");
    let refusal = HttpServer::bind(SocketAddr::from(([192, 0, 2, 1], 80))).unwrap_err().to_string();
    assert!(refusal.contains("an address of this machine"), "{refusal}");
}
