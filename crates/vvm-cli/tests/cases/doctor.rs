//! `vvm doctor`: what it finds, and that it leaves everybody else alone.

use crate::VVM;
use harness::Trial;
use rustix::process::Signal;
use serde_json::Value;
use std::process::{Command, Output};

fn doctor(trial: &Trial, options: &[&str]) -> Output {
    let mut doctor = Command::new(VVM.path());
    doctor.args(["doctor", "--storage", &trial.storage(), "--name", &trial.name()]).args(options);
    doctor.output().unwrap()
}

fn finding<'json>(found: &'json Value, about: &str) -> &'json Value {
    found["findings"].as_array().unwrap().iter().find(|finding| finding["about"] == about).unwrap()
}

#[test]
fn it_measures_and_disturbs_nobody() {
    let trial = VVM.trial();
    let mut running = trial.run_script("echo up; sleep 60").start();
    running.stdout.wait_for("up");
    let slots = trial.slots();
    // Twice, and at once: each has a record of its own.
    std::thread::scope(|scope| {
        let both = [(); 2].map(|()| scope.spawn(|| doctor(&trial, &["--ttl", "1m", "--json"])));
        for output in both.map(|one| one.join().unwrap()) {
            let found: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(output.status.code(), Some(0), "{found:#}");
            for about in ["reads", "writes"] {
                let trips = finding(&found, about);
                assert_eq!((&trips["count"], &trips["health"]), (&50.into(), &"good".into()), "{trips:#}");
                let ranks =
                    ["p50_ms", "p90_ms", "p99_ms", "slowest_ms"].map(|name| trips[name].as_f64().unwrap());
                assert!(ranks[0] > 0.0 && ranks.is_sorted(), "{trips:#}");
            }
            assert_eq!(finding(&found, "margins")["attempt_ms"], 6_000.0);
            assert_eq!(finding(&found, "containment")["levels"]["guardian"], true);
            let software = finding(&found, "storage")["software"].as_str().unwrap();
            // Which one, and how it is set: `files.rs`, and the tests of each driver.
            assert!(!software.is_empty(), "{found:#}");
            assert!(finding(&found, "suspend")["since_start_ms"].as_f64().unwrap() > 0.0);
            // Wherever tests run, clocks go at the rate of their hardware, within what NTP corrects and a
            // little more.
            assert!(finding(&found, "clock rate")["ppm"].as_f64().unwrap().abs() < 100_000.0);
            assert!(finding(&found, "wall clock")["behind_ms"].as_f64().unwrap() < 10_000.0);
            assert_eq!(
                (&finding(&found, "storage")["held"], &finding(&found, "storage")["slots"]),
                (&1.into(), &1.into())
            );
        }
    });
    assert_eq!(trial.slots(), slots, "the doctor changed the slots of the name");
    running.signal(Signal::TERM);
    assert_eq!(running.finish().signal(), Signal::TERM.as_raw());
}

#[test]
fn what_is_wrong_is_said_with_the_way_out_and_status_1() {
    let trial = VVM.trial();
    trial.run(["true"]).finish();
    let short = doctor(&trial, &["--ttl", "300ms"]);
    let said = String::from_utf8(short.stdout).unwrap();
    assert_eq!(short.status.code(), Some(1), "{said}");
    assert!(said.contains("problem  margins") && said.contains("choose a longer one"), "{said}");
    assert!(said.ends_with("Not fit to lead: see what is marked problem.\n"), "{said}");
}
