//! `--check`: a leader with an unhealthy command gives up its leadership.

use crate::VVM;
use harness::{Running, Trial};
use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::TcpListener,
    sync::{Arc, Mutex},
    thread,
};

/// A server that gives these answers in order, and then always the last one. With an empty answer it keeps
/// the connection open and sends nothing.
struct Server {
    url: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn answering(answers: &'static [&'static str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://localhost:{}/ready?x=1", listener.local_addr().unwrap().port());
        let asked = Arc::new(Mutex::new(Vec::new()));
        thread::spawn({
            let asked = Arc::clone(&asked);
            move || {
                let mut kept = Vec::new();
                for stream in listener.incoming() {
                    let mut stream = stream.unwrap();
                    let request = BufReader::new(&stream).lines().map_while(Result::ok);
                    let request = request.take_while(|line| !line.is_empty()).collect::<Vec<_>>();
                    let number = {
                        let mut asked = asked.lock().unwrap();
                        asked.push(request.join("\n"));
                        asked.len() - 1
                    };
                    let answer = answers.get(number).or(answers.last()).unwrap();
                    let _ = stream.write_all(answer.as_bytes());
                    if answer.is_empty() {
                        kept.push(stream);
                    }
                }
            }
        });
        Self { url, asked }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

const GOOD: &str = "HTTP/1.1 204 No Content\r\n\r\n";
const BAD: &str = "HTTP/1.1 503 Service Unavailable\r\n\r\nno";

fn start(trial: &Trial, url: &str, options: &[&str]) -> Running {
    let worker = "echo up $VVM_LEADER_EPOCH; exec sleep 1000";
    let often = ["--check", url, "--check-interval", "20ms"];
    trial.run_script(worker).with(often).with(options.iter().copied()).up()
}

#[test]
fn page_that_fails_three_times_in_a_row_ends_the_leadership() {
    let trial = VVM.trial();
    let server = Server::answering(&[GOOD, BAD, BAD, GOOD, BAD, BAD, BAD]);
    let finished = start(&trial, &server.url, &["--result-file", &trial.result_file()]).finish();
    assert_eq!(finished.code(), 81, "{:#?}", finished.stderr);
    let found = trial.result();
    assert_eq!((&found["outcome"], &found["exit_status"]), (&"unhealthy".into(), &81.into()), "{found}");
    assert!(finished.says("failed 3 times in a row: it answers 503"), "{:#?}", finished.stderr);
    let asked = server.asked();
    assert_eq!(asked.len(), 7, "{asked:#?}");
    assert!(asked[0].starts_with("GET /ready?x=1 HTTP/1.1\nHost: localhost:"), "{}", asked[0]);
    assert_eq!(trial.run(["true"]).with(["--acquire-timeout", "0"]).finish().code(), 0);
}

#[test]
fn page_that_never_answers_fails_after_the_check_timeout() {
    let trial = VVM.trial();
    let server = Server::answering(&[""]);
    let options = ["--check-timeout", "50ms", "--check-failures", "2"];
    let finished = start(&trial, &server.url, &options).finish();
    assert_eq!(finished.code(), 81, "{:#?}", finished.stderr);
    assert!(finished.says("failed 2 times in a row: no answer within 50ms"), "{:#?}", finished.stderr);
    assert_eq!(server.asked().len(), 2);
}

#[test]
fn page_without_a_server_fails() {
    let trial = VVM.trial();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("http://127.0.0.1:{port}/");
    let finished = start(&trial, &url, &["--check-failures", "1"]).finish();
    assert_eq!(finished.code(), 81, "{:#?}", finished.stderr);
    assert!(finished.says("failed once: 127.0.0.1"), "{:#?}", finished.stderr);
}

/// Otherwise it would lead again before a standby notices the release.
#[test]
fn unhealthy_leader_campaigns_again_after_the_others() {
    let trial = VVM.trial();
    let server = Server::answering(&[BAD, BAD, BAD, GOOD]);
    let mut unhealthy = start(&trial, &server.url, &["--on-loss", "rejoin"]);
    let mut other = trial.run_script("echo other; exec sleep 1000").start();
    other.stdout.wait_for("other");
    unhealthy.stderr.wait_for("unhealthy, the command has been stopped");
    // It defers to the other candidate before it campaigns.
    unhealthy.stderr.wait_for("waiting for leadership");
    other.stop();
    let again = unhealthy.stdout.wait_for("up");
    assert!(again.len() > "up ".len(), "{again}");
    assert_eq!(unhealthy.stop().signal(), 15);
}

/// The check has the command's environment, and its output is separate from the command's.
#[test]
fn failing_shell_check_ends_the_leadership() {
    let trial = VVM.trial();
    let bad = trial.folder().join("bad").display().to_string();
    let line = format!("echo looked; test -n \"$VVM_LEADER_EPOCH\" && test ! -e '{bad}'");
    let mut running = start(&trial, &line, &[]);
    for _ in 0..5 {
        running.stderr.wait_for("looked");
    }
    std::fs::write(bad, "").unwrap();
    let finished = running.finish();
    assert_eq!(finished.code(), 81, "{:#?}", finished.stderr);
    assert!(finished.says("failed 3 times in a row: it exited with status 1"), "{:#?}", finished.stderr);
    assert_eq!(finished.stdout.len(), 1, "{:#?}", finished.stdout);
}

#[test]
fn hanging_check_fails_and_is_killed_with_its_children() {
    let trial = VVM.trial();
    let line = "echo looked; trap '' TERM; sleep 1001 & sleep 1002; :";
    let options = ["--check-timeout", "100ms", "--check-failures", "8"];
    let mut running = start(&trial, line, &options);
    for _ in 0..7 {
        running.stderr.wait_for("looked");
        let left = |command: &str| trial.processes().of(command).len();
        assert!(left("sleep 1001") <= 1 && left("sleep 1002") <= 1, "{:?}", trial.processes().describe());
    }
    let finished = running.finish();
    assert_eq!(finished.code(), 81, "{:#?}", finished.stderr);
    assert!(finished.says("failed 8 times in a row: no answer within 100ms"), "{:#?}", finished.stderr);
    assert!(trial.processes().0.is_empty(), "{:?}", trial.processes().describe());
}

/// It ends before the leadership is released.
#[test]
fn hanging_check_ends_with_the_command() {
    let trial = VVM.trial();
    let line = "echo looked; trap '' TERM; (setsid sleep 1001 &); while :; do sleep 1002; done";
    let mut running = start(&trial, line, &["--check-timeout", "1h"]);
    running.stderr.wait_for("looked");
    assert_eq!(running.stop().signal(), 15);
    assert!(trial.processes().0.is_empty(), "{:?}", trial.processes().describe());
}
