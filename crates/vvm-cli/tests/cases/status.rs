//! `vvm status`: the state of each slot, and `--exit-status` for monitoring. `vvm list`. `vvm history`: past leaderships and their
//! ends, recorded or not. `vvm watch`.

use crate::VVM;
use harness::{Attempt, Late, Trial, eventually, has};
use serde_json::Value;
use std::{
    io::{self, BufRead as _, BufReader, Write as _},
    process::Stdio,
    time::Duration,
};
use vvm_clock::SystemClock;

fn state(trial: &Trial, options: &[&str]) -> (i32, String) {
    let options = [&["--json", "--exit-status"], options].concat();
    let (code, out, said) = trial.about("status", &options);
    assert!(said.is_empty() || said.contains("waiting for the next renewal"), "{said}");
    let found: Value = serde_json::from_str(&out).unwrap();
    (code, found[0]["state"].as_str().unwrap().to_owned())
}

/// Free, led, stale, free; how long `vvm status` takes for it beside a healthy leader and after its machine's end.
fn follow_a_leader(attempt: &Attempt, trial: &Trial) -> Result<(), Late> {
    let is_on_a_server = Trial::is_on_a_server();
    let of = |code, state: &str| (code, state.to_owned());
    let leader = trial.run_forever().with(["--ttl", harness::SHORT_TTL]).up();
    // Only PostgreSQL and MariaDB show ages by a clock of their own.
    let by_a_clock = ["postgres", "mysql"].iter().any(|scheme| trial.storage().starts_with(scheme));
    let shows_ages = !is_on_a_server || by_a_clock;
    let at_once = if shows_ages { of(0, "led") } else { of(3, "held") };
    assert_eq!(state(trial, &["--no-wait"]), at_once);
    let ttl = Duration::from_millis(trial.slots()[0]["ttl_ms"].as_u64().unwrap());
    let asked = SystemClock::read();
    assert_eq!(state(trial, &[]), of(0, "led"));
    // A healthy leader renews within 0.35 TTL. Opening the storage comes before.
    let led_after = attempt.took("led", ttl / 2, asked)?;
    let (_, table, said) = trial.about("status", &[]);
    assert!(table.contains("led") && !table.contains("unknown") && !table.contains('\x1b'), "{table}");
    assert_eq!(said.contains("waiting for the next renewal of slot 1"), !shows_ages, "{said}");
    let says_whose_clock = said.contains("by the clock of the storage's server");
    assert_eq!(says_whose_clock, shows_ages && is_on_a_server, "{said}");

    leader.crash();
    trial.processes().kill();
    let dead = SystemClock::read();
    if shows_ages {
        eventually("the record is stale", || state(trial, &[]) == of(2, "stale"));
    } else {
        assert_eq!(state(trial, &[]), of(2, "stale"));
    }
    // One TTL from the first read. Opening the storage, and the pause between two reads, come on top.
    let stale_after = attempt.took("stale", ttl + ttl / 4, dead)?;
    leader.finish();
    show_figures(&trial.storage(), ttl, led_after, stale_after);

    trial.run(["true"]).finish();
    assert_eq!(state(trial, &[]), of(1, "free"));
    assert_eq!(trial.status(&[]).0, 0, "without --exit-status");
    Ok(())
}

fn show_figures(storage: &str, ttl: Duration, led_after: Duration, stale_after: Duration) {
    let (scheme, _) = storage.split_once(':').unwrap();
    let figures = format!(
        "vvm status on {scheme}: \"led\" after {:.2} s; \"stale\" {:.2} s after the end of the machine; TTL {} s\n",
        led_after.as_secs_f64(),
        stale_after.as_secs_f64(),
        ttl.as_secs_f64()
    );
    io::stdout().write_all(figures.as_bytes()).unwrap();
}

mod timed {
    use super::*;

    #[test]
    fn state_and_exit_status_follow_the_life_of_a_leader() {
        VVM.timed("status of a leader", follow_a_leader);
    }
}

fn history(trial: &Trial) -> Vec<Value> {
    let out = trial.must("history", &["--json"]);
    serde_json::from_str(&out).unwrap()
}

#[test]
fn each_leadership_is_listed_with_its_end_which_the_next_leader_records_after_a_crash() {
    let trial = VVM.trial();
    assert_eq!(trial.about("history", &[]).0, 66);
    assert_eq!(trial.run_script("exit 3").with(["--holder", "a"]).finish().code(), 3);
    let killed = trial.run_forever().with(["--holder", "b", "--ttl", harness::SHORT_TTL]).up();
    eventually("the start is noted", || history(&trial).len() == 2);
    let found = history(&trial);
    has!(found[1], "holder" == "b", "ended_ms" == Value::Null, "end" == Value::Null);
    killed.crash();
    killed.finish();
    let _last = trial.run_forever().with(["--holder", "c"]).up();
    trial.must("pause", &["--by", "alice"]);

    let found = history(&trial);
    let column = |name: &str| found.iter().map(|reign| reign[name].clone()).collect::<Vec<_>>();
    assert_eq!(column("holder"), ["a", "b", "c"]);
    let followed = "its end was not recorded; followed by c";
    assert_eq!(column("end"), ["the command exited with status 3", followed, "paused by alice"]);
    let epochs = column("epoch").iter().map(|epoch| epoch.as_u64().unwrap()).collect::<Vec<_>>();
    assert!(epochs.is_sorted_by(|one, next| one < next), "{epochs:?}");
    assert_eq!(trial.slots()[0]["epoch"], epochs[2]);
    for reign in &found {
        assert!(reign["started_ms"].as_u64().unwrap() > 0, "{reign}");
        assert!(reign["ended_ms"].as_u64().is_some() && reign["slot"] == 1, "{reign}");
    }

    let table = trial.must("history", &["--slot", "1"]);
    assert_eq!(table.lines().count(), 4, "{table}");
    assert!(table.lines().nth(3).unwrap().contains("c                         paused by alice"), "{table}");
    assert_eq!(trial.about("history", &["--slot", "2"]).0, 64);
}

#[test]
fn name_led_without_a_host_has_no_history_and_the_command_gives_the_reason() {
    let trial = VVM.trial();
    let foreign = trial.usurp();
    let (code, out, error) = trial.about("history", &[]);
    assert_eq!((code, out.lines().count()), (0, 1), "{error}");
    assert!(error.contains("programs that lead without vvm or a vvm_host::Host write none"), "{error}");
    // Such a program with one slot never settled a slot count.
    let (code, out, error) = trial.status(&[]);
    assert!(code == 0 && !out.contains("free") && out.contains("usurper"), "{out}{error}");
    foreign.leave();
}

#[test]
fn each_name_is_listed_with_its_slots_holders_and_epochs() {
    let trial = VVM.trial();
    let mut leader = trial.run_forever().with(["--holder", "db1", "--slots", "2"]).up();
    let (code, json, said) = trial.ask("list", &["--json"]);
    if code == 64 {
        assert!(Trial::is_on_a_server() && said.contains("can't list the names of this kind"), "{said}");
        return;
    }
    let ours = |line: &Value| line["name"].as_str() == Some(&trial.name());
    let lines: Vec<Value> = serde_json::from_str(&json).unwrap();
    let lines: Vec<Value> = lines.into_iter().filter(ours).collect();
    assert_eq!(lines.len(), 2, "{json}");
    has!(lines[0], "slots" == 2, "slot" == 1);
    let held = lines.iter().find(|line| line["holder"] == "db1").unwrap();
    assert!(held["epoch"].as_u64().is_some() && held["state"] != "free", "{json}");
    assert_eq!(state(&trial, &[]).0, 1, "one of two slots is free");
    trial.must("pause", &["--by", "alice"]);
    let (code, out, _) = trial.status(&["--exit-status"]);
    assert!(code >= 1 && out.contains("paused by"), "{code}: {out}");
    leader.stderr.wait_for("waiting until it is resumed");
    let (_, table, _) = trial.ask("list", &[]);
    let is_ours = |line: &&str| line.starts_with(&trial.name());
    let ours = table.lines().filter(is_ours).filter(|line| line.contains("paused"));
    assert_eq!(ours.count(), 2, "{table}");
}

/// Without a change, no write would fail.
#[test]
fn watch_shows_a_leadership_and_ends_when_the_reader_of_its_pipe_is_gone() {
    let trial = VVM.trial();
    trial.run(["true"]).finish();
    let mut watch = VVM.command(&[]);
    watch.args(["watch", "--storage", &trial.storage(), "--name", &trial.name()]);
    let mut watching = watch.args(["--interval", "100ms", "--json"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    let mut event = |word: &str| {
        let mut events = lines.by_ref().map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
        events.find(|event| event["event"] == word).unwrap()
    };
    assert!(event("free")["says"].as_str().unwrap().starts_with("free, last epoch"));
    let first = trial.run_forever().with(["--holder", "first"]).up();
    let leads = event("leads");
    has!(leads, "holder" == "first", "slot" == 1);
    first.stop();
    assert_eq!(event("released")["epoch"], leads["epoch"]);
    drop(lines);
    let mut status = None;
    eventually("the watch has ended", || {
        status = watching.try_wait().unwrap();
        status.is_some()
    });
    assert_eq!(status.unwrap().code(), Some(0));
}
