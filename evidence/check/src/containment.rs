//! *Containment*: what keeper, supervisor and guardian decide, `vvm_containment`, and when the guardian releases,
//! `vvm_host`, in all orders. The loops around them, the kernel and a command of two processes are modelled. It shows
//! what *warm* takes for granted: all is killed by the deadline, and the keeper says that nothing is left only then.
//! Level pidns is left out: there, the kernel ends all with process 1, and process 1 with the process outside. The
//! keeper of this model is ready from the beginning, and process 1 is ready only once it ends with that process.

mod world;

use crate::{
    Args, Assumption, Check,
    search::{self, Part},
};
use world::{What, World};

const GUARDIAN: &str = "a command at level guardian";
const GROUP: &str = "a command in a control group";

/// What may happen, and how often. The first two are no faults.
const HAPPENS: [(What, u8); 16] = [
    (What::Forks, 1),
    (What::CommandEnds, 1),
    (What::Renews, 1),
    (What::IsAsked, 1),
    (What::HostCrashes, 1),
    (What::KeeperCrashes, 1),
    (What::GuardianCrashes, 1),
    (What::HostIsStopped, 1),
    (What::KeeperIsStopped, 1),
    (What::GuardianIsStopped, 1),
    (What::HostHangs, 1),
    (What::KeeperLacks, 1),
    (What::LosesOrder, 1),
    (What::LosesNotice, 1),
    (What::LosesClaim, 1),
    (What::Leaves, 1),
];

/// What has to be reached in some scenario, besides each event above.
const REACHED: [&str; 20] = [
    "a release by the host",
    "a release by the guardian",
    "no release, for want of proof",
    "no release, after an orderly end",
    "no release, for want of the claim",
    "a proof of the keeper",
    "a keeper that ended without proof",
    "a keeper that kills by order",
    "a keeper that kills without supervisor",
    "a keeper that kills without guardian",
    "a keeper that kills at the deadline, without order",
    "a keeper that its own timer kills",
    "a keeper that disarms its timer and waits",
    "a stopped keeper that the host continues",
    "a host that its deadman kills",
    "a guardian that kills at the deadline",
    "a guardian that kills after the end of the host",
    "a host that is left behind",
    "a group with a member that is no descendant",
    "a state that recovers",
];

fn part(name: &'static str, dropped: Option<Assumption>, faults: u8, depth: usize) -> Part<World> {
    let has_group = name == GROUP;
    let may =
        |(what, _): &(What, u8)| *what != What::Leaves || has_group || dropped == Some(Assumption::Contained);
    let left = HAPPENS.into_iter().filter(may).collect();
    Part { name, faults, depth, began: World::new(has_group, left, faults, dropped) }
}

pub(crate) fn check(args: &Args) -> bool {
    let (faults, depth) = (args.faults.unwrap_or(3), args.depth.unwrap_or(26));
    let parts = [GUARDIAN, GROUP].map(|name| part(name, args.drop, faults, depth));
    let reached = REACHED.into_iter().chain(HAPPENS.into_iter().map(|(what, _)| what.told()));
    let mut holds = args.search(parts, search::SAMPLE, reached);
    if args.is_whole() {
        holds &= crate::shows_what_each_assumption_is_for(Check::Containment, "I4 or I6", |dropped| {
            search::length_of(&part(GUARDIAN, Some(dropped), 2, 20))
        });
    }
    holds
}
