//! *Warm*: the shipped machine of a warm app, `vvm_cli::warm`, with two connections, in all orders. Socket, tree and
//! lease are modelled around it: one tree of processes, of which two connect. It takes for granted what other checks
//! show: the lease ends in time, and the keeper proves the end of a tree.

mod world;

use crate::{
    Args, Assumption, Check,
    search::{self, Part},
};
use vvm_cli::warm::machine::AfterStop;
use world::{What, World};

const LEADERSHIPS: [(What, u8); 5] =
    [(What::Wins, 2), (What::StepsDown, 1), (What::IsLost, 1), (What::Renews, 1), (What::Quits, 1)];
const APP: [(What, u8); 10] = [
    (What::TreeDies, 1),
    (What::IsUnready, 1),
    (What::Resigns, 1),
    (What::StopsUnasked, 1),
    (What::Dies, 1),
    (What::Closes, 1),
    (What::Garbles, 1),
    (What::SaysTwice, 1),
    (What::WinsLate, 1),
    (What::Hangs, 1),
];

/// What has to be reached in some scenario, besides each fault.
const REACHED: [&str; 18] = [
    "lead",
    "a release with proof",
    "a release by the app's word",
    "a release without lead",
    "a deadline that is not confirmed",
    "a kill at the deadline",
    "a second tree",
    "a second participant",
    "the second leadership of a kept tree",
    "no leading in time",
    "no alive in time",
    "no stopped in time",
    "asked to stop",
    "stopped unasked",
    "a lost connection",
    "a line that is no message",
    "a slot that is won while nothing is ready",
    "a state that recovers",
];

fn part(after_stop: AfterStop, dropped: Option<Assumption>, faults: u8, depth: usize) -> Part<World> {
    let name = match after_stop {
        AfterStop::Restart => "a warm app that is restarted",
        AfterStop::Keep => "a warm app that is kept",
    };
    let left = LEADERSHIPS.into_iter().chain(APP);
    // Of an app that is restarted, nothing is believed.
    let lies =
        (after_stop == AfterStop::Restart || dropped == Some(Assumption::Word)).then_some((What::Lies, 1));
    let foreign = (dropped == Some(Assumption::Sender)).then_some((What::ChildSays, 1));
    let left = left.chain(lies).chain(foreign).collect();
    Part { name, faults, depth, began: World::new(after_stop, left, faults, dropped) }
}

pub(crate) fn check(args: &Args) -> bool {
    let (faults, depth) = (args.faults.unwrap_or(2), args.depth.unwrap_or(14));
    let parts = [AfterStop::Restart, AfterStop::Keep].map(|stop| part(stop, args.drop, faults, depth));
    let reached = REACHED.into_iter().chain(APP.into_iter().map(|(what, _)| what.told()));
    let mut holds = args.search(parts, search::SAMPLE, reached);
    if args.is_whole() {
        holds &= crate::shows_what_each_assumption_is_for(Check::Warm, "I1, I4 or I6", |dropped| {
            let after_stop = match dropped {
                Assumption::Word | Assumption::Sender => AfterStop::Keep,
                _ => AfterStop::Restart,
            };
            search::length_of(&part(after_stop, Some(dropped), 1, 12))
        });
    }
    holds
}
