//! A [`World`] on servers of which standbys are promoted: what the driver of PostgreSQL does with a call. A call is carried out
//! at once when it arrives, by as many messages as it takes; a late write is its first message.

use super::{
    message::{Answer, Failure, Request},
    servers::Servers,
    settings::{Context, Surroundings},
    world::World,
};
use ielections::Slot;
use std::mem;
use vvm_storage::{
    CurrentState, Step, StepOutcome,
    testing::fail_over::{RefusalCause, claim_after_adoption, unwritten},
};

impl World {
    pub(super) fn arrive_at_servers(
        &mut self,
        number: usize,
        request: &Request,
        cx: &mut Context<'_>,
    ) -> Result<Answer, Failure> {
        let Some(servers) = &mut self.servers else { return Err(Failure::Unanswered) };
        let server = servers.connect(number);
        let Some(step) = request.step() else {
            // No slot of another history is shown.
            if !servers.is_ours(number, server) {
                servers.adopts(number, *request == Request::Get, cx);
            }
            return Ok(Answer(Some(servers.servers[server].slot.clone())));
        };
        match self.carry_out(number, server, request, step, cx) {
            None => Ok(Answer(None)),
            Some(RefusalCause::Refused(stands)) => Ok(Answer(Some(stands))),
            Some(RefusalCause::NotShown) => Err(Failure::NotApplied),
            Some(RefusalCause::OtherHistory) => {
                let (Step::Claim { from, .. }, Some(servers)) = (step, &mut self.servers) else {
                    return Err(Failure::Replaced);
                };
                servers.adopts(number, true, cx);
                match claim_after_adoption(from, servers.servers[server].slot.clone()) {
                    Some(StepOutcome::Refused(CurrentState::Slot(stands))) => Ok(Answer(Some(stands))),
                    Some(StepOutcome::Applied) => Ok(Answer(None)),
                    Some(StepOutcome::Refused(_)) | None => Err(Failure::NotApplied),
                }
            }
        }
    }

    /// Writes a step, and returns `None`. Or returns why it is not written.
    fn carry_out(
        &mut self,
        number: usize,
        server: usize,
        request: &Request,
        step: &Step,
        cx: &mut Context<'_>,
    ) -> Option<RefusalCause> {
        let servers = self.servers.as_ref()?;
        let (witness, is_ours) = (servers.handles[number].witness, servers.is_ours(number, server));
        let Some(witness) = witness else { return Some(RefusalCause::OtherHistory) };
        if self.write_at(server, witness, request, cx) {
            return None;
        }
        let stands = self.servers.as_ref()?.servers[server].slot.clone();
        Some(unwritten(step, stands, is_ours))
    }

    fn write_at(&mut self, at: usize, witness: u64, request: &Request, cx: &mut Context<'_>) -> bool {
        let is_admitted = |servers: &Servers, around: &Surroundings| {
            request.step().is_some_and(|step| servers.servers[at].admits(step, witness, around))
        };
        let Some(servers) = self.servers.as_mut().filter(|servers| is_admitted(servers, cx.around)) else {
            cx.notes
                .tell(|| format!("    server {} has another history than {} names", at + 1, request.told()));
            return false;
        };
        let is_adopted = servers.servers[at].history.adopted;
        let before = servers.servers[at].slot.clone();
        self.slot = before;
        let is_applied = self.arrive(request, cx).0.is_none();
        let after = mem::replace(&mut self.slot, Slot::Vacant(Default::default()));
        self.servers.iter_mut().for_each(|servers| servers.servers[at].slot = after.clone());
        if is_applied && is_adopted && matches!(request, Request::Write(Step::Claim { .. })) {
            cx.notes.reach("a claim after an adoption");
        }
        is_applied
    }

    /// A write that was under way arrives, through a proxy that leads to the primary. A server that was stopped gets none.
    pub(super) fn lands_at_servers(&mut self, late: usize, request: &Request, cx: &mut Context<'_>) {
        let Some(servers) = &mut self.servers else { return };
        let (witness, primary) = (servers.late.remove(late), servers.primary);
        let Some(witness) = witness else { return };
        if servers.servers[primary].history.witness != witness || !servers.servers[primary].is_adopted() {
            cx.notes.reach("a late write to a deposed primary");
        }
        if self.write_at(primary, witness, request, cx) {
            cx.notes.reach("a late write that applies");
        }
    }

    pub(super) fn promoted(&mut self, standby: usize, cx: &mut Context<'_>) {
        let Some(servers) = &mut self.servers else { return };
        for forgotten in servers.promote(standby, cx.around) {
            cx.notes.reach(forgotten);
            cx.notes.tell(|| format!("    {forgotten}"));
        }
    }

    /// Whether a process leads by a claim on the primary, after a fail-over.
    pub(super) fn observe_servers(&self, cx: &mut Context<'_>) {
        let Some(servers) = &self.servers else { return };
        let primary = &servers.servers[servers.primary];
        let Some(stands) = primary.slot.entry().filter(|_| primary.history.adopted) else { return };
        let leads = |held: &ielections::Entry| held.incarnation() == stands.incarnation();
        if self.processes.iter().any(|process| process.leading().is_some_and(|by| leads(by.lease.held()))) {
            cx.notes.reach("a leader after a fail-over");
        }
    }
}

impl Servers {
    fn adopts(&mut self, handle: usize, has_key: bool, cx: &mut Context<'_>) {
        if let Some(adoption) = self.adopt(handle, has_key, cx.around) {
            cx.notes.reach(adoption);
            let server = self.handles[handle].server;
            cx.notes
                .tell(|| format!("    {adoption} on server {}: {}", server + 1, self.servers[server].slot));
        }
    }
}
