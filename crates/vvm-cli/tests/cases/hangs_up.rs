//! A node that closes its connections, as one does while it starts or stops, is an outage. A server of
//! another protocol is a mistake, and refused. The node is a thread of the test.

use crate::VVM;
use rustix::net::sockopt::set_socket_linger;
use std::{
    io::{Read as _, Write as _},
    net::TcpListener,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

/// Starts a server that gives each client this answer and closes the connection. Returns its URL and the
/// number of clients so far.
fn node(answer: &'static [u8]) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("scylla://{}/elections", listener.local_addr().unwrap());
    let come = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&come);
    // The thread ends with the tests.
    thread::spawn(move || {
        for guest in listener.incoming() {
            let mut guest = guest.unwrap();
            count.fetch_add(1, Ordering::Relaxed);
            if answer.is_empty() {
                set_socket_linger(&guest, Some(Duration::ZERO)).unwrap();
            } else if guest.read(&mut [0; 512]).is_ok() {
                let _gone = guest.write_all(answer);
            }
        }
    });
    (url, come)
}

#[test]
fn node_that_closes_its_connections_is_tried_again() {
    let trial = VVM.trial();
    let (url, come) = node(b"");
    let run = trial.run(["true"]).with(["--storage", &url, "--acquire-timeout", "3s"]);
    let finished = run.finish();
    assert_eq!(finished.code(), 75, "{:#?}", finished.stderr);
    assert!(finished.says("closed the connection at the first request"), "{:#?}", finished.stderr);
    assert!(finished.says("trying again"), "{:#?}", finished.stderr);
    assert!(come.load(Ordering::Relaxed) > 1, "asked once");
    // Logs of the client library are not shown by default.
    let others: Vec<_> = finished.stderr.iter().filter(|line| !line.contains(" vvm: ")).collect();
    assert!(others.is_empty(), "{others:#?}");
}

#[test]
fn client_library_logs_are_shown_if_requested() {
    let trial = VVM.trial();
    let (url, _come) = node(b"");
    let run = trial.run(["true"]).with(["--storage", &url, "--try", "--ttl", "2s"]);
    let finished = run.environment("VVM_LOG", "scylla=debug").finish();
    assert!(finished.says("scylla::"), "{:#?}", finished.stderr);
}

#[test]
fn another_protocol_is_refused_with_status_69() {
    let trial = VVM.trial();
    let (url, _come) = node(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    let finished = trial.run(["true"]).with(["--storage", &url]).finish();
    assert_eq!(finished.code(), 69, "{:#?}", finished.stderr);
    assert!(finished.says("does not answer in CQL: name the port of CQL (9042)"), "{:#?}", finished.stderr);
    let others: Vec<_> = finished.stderr.iter().filter(|line| !line.contains(" vvm: ")).collect();
    assert!(others.is_empty(), "{others:#?}");
}
