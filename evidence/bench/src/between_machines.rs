//! `--between-machines`: the next command after a clean stop, and after `kill -9` of the leader's host, with
//! each candidate in a network namespace of its own, with a TTL of 20 s. Notifications wake the standby.

mod forwarder;
mod machine;
mod place;

use crate::{
    figure::{Figure, Side, Statistic, Unit},
    process::{Candidate, CandidateError},
};
use forwarder::Forwarder;
use machine::{Machine, MachineError};
use place::Place;
use rustix::process::Signal;
use servers::{built::BuildError, etcd, kubernetes, postgres};
use std::io;

/// Why there is no figure.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BetweenMachinesError {
    #[error(transparent)]
    Machine(#[from] MachineError),
    #[error(transparent)]
    Candidate(#[from] CandidateError),
    #[error(transparent)]
    Postgres(#[from] postgres::StartError),
    #[error(transparent)]
    Etcd(#[from] etcd::StartError),
    #[error(transparent)]
    Kubernetes(#[from] kubernetes::StartError),
    #[error(transparent)]
    Build(#[from] BuildError),
    #[error("{0}")]
    System(#[from] io::Error),
    #[error("`vvm init-storage` failed; build vvm with the features `postgres`, `etcd` and `kubernetes`")]
    Init,
    #[error("the role of a candidate that may not watch was not created, or is not in force")]
    Role,
}

pub(crate) fn measure(quick: bool) -> Result<Vec<Figure>, BetweenMachinesError> {
    let rounds = if quick { 2 } else { 10 };
    let machines = [Machine::make(0)?, Machine::make(1)?];
    let forwarder = Forwarder::new()?;
    let mut figures = Vec::new();
    for start in Place::STARTS {
        let Some(mut place) = start()? else { continue };
        place.init()?;
        for (machine, server) in machines.iter().flat_map(|machine| {
            let servers = place.addresses();
            servers.into_iter().map(move |server| (machine, server))
        }) {
            forwarder.forward(machine.gateway(), server)?;
        }
        figures.extend(of_place(&mut place, &machines, rounds)?);
    }
    Ok(figures)
}

fn of_place(
    place: &mut Place,
    machines: &[Machine; 2],
    rounds: u32,
) -> Result<[Figure; 2], BetweenMachinesError> {
    let folder = tempfile::tempdir()?;
    let mut start = |at: usize| {
        let before = ["ip", "netns", "exec", machines[at].namespace()];
        let url = place.url(machines[at].gateway());
        Candidate::start(&before, &url, &folder.path().join(format!("local{at}")))
    };
    let mut leader = start(0)?;
    leader.leads()?;
    let mut leads_at = 0;
    let mut samples_of = |signal: Signal| -> Result<Vec<f64>, BetweenMachinesError> {
        let mut samples = Vec::new();
        for _ in 0..rounds {
            leads_at = 1 - leads_at;
            let mut standby = start(leads_at)?;
            standby.waits()?;
            let ended_at = leader.end(signal)?;
            samples.push(standby.leads()?.since(ended_at).as_secs_f64());
            leader.wait()?;
            leader = standby;
        }
        Ok(samples)
    };
    let (stopped, killed) = (samples_of(Signal::TERM)?, samples_of(Signal::KILL)?);
    // Without a notification, the standby's next look finds it: within a second.
    let goals = if place.has_notifications() { [0.2, 0.3] } else { [1.0, 1.1] };
    let figure = |what: &str, samples, goal| {
        let name = format!("next command on another machine after {what}, {}", place.name());
        Figure::new(name, Unit::Seconds, samples).with_goal(Statistic::Median, Side::AtMost, goal)
    };
    Ok([figure("a clean stop", stopped, goals[0]), figure("kill -9 of the host", killed, goals[1])])
}
