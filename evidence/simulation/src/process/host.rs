//! A process with a [`Host`], which campaigns again after a loss and heeds pauses.

use super::{NAME, Started, command::Command, guardian::send_ticket, service::Worker};
use ielections::{Holder, Loss};
use std::{sync::Arc, time::Duration};
use vvm_host::{Ended, Host, HostSettings, Next};
use vvm_orch::{Problem, Service};

pub(super) async fn run(started: &Started) {
    let Started { world, process, profile, env, storage, stop, .. } = started;
    let mut settings = HostSettings::new("simulated", NAME);
    settings.slots = profile.slots;
    settings.ttl = profile.ttl;
    settings.holder = Holder::new("10.0.0.9").ok();
    let Ok(mut host) = Host::on_storage(settings, env.clone(), Arc::clone(storage)) else { return };
    let (told, claimant) = (Arc::clone(world), *process);
    host.report_claims(move |claim| send_ticket(&told, claimant, claim));
    let token = host.stop();
    let stops = async {
        stop.notified().await;
        world.count(|counts| counts.stops += 1);
        token.cancel();
        std::future::pending::<()>().await;
    };
    let services = || {
        let work: Box<dyn Service<_>> = match profile.service.is_command {
            true => Box::new(Command::of(started)),
            false => Box::new(Worker::of(started)),
        };
        vec![work]
    };
    let runs = host.run_then(services, |ended| {
        let problem = match ended {
            Ended::Problem(problem) => problem,
            _ => return Next::Stop,
        };
        world.note(format_args!("{process} has a problem: {problem:?}"));
        world.count(|counts| counts.problems += 1);
        match problem {
            Problem::Lost(Loss::Stolen { by }) => {
                world.lost_to(*process, by.incarnation());
                Next::CampaignAfter(Duration::ZERO)
            }
            Problem::Lost(_) => Next::CampaignAfter(Duration::ZERO),
            _ => Next::Stop,
        }
    });
    tokio::select! {
        biased;
        ended = runs => world.note(format_args!("{process}: {ended}")),
        () = stops => {}
    }
}
