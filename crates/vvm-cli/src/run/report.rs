//! What a `vvm run` reports: to people, to programs that read its events, to its result file and to its guardian.

use super::{
    command::CommandRunner,
    outcome::{Cause, ExitReason, LeadershipRun},
};
use crate::{
    announce::{is_quiet, say_text},
    exit,
    leadership::{ExitWish, Leadership, ToGuardian},
    once::OnceEnd,
    result_file::{Outcome, Report},
};
use ielections::Standing;
use rustix::process::getppid;
use vvm_storage::ElectionKey;

impl CommandRunner {
    pub(super) fn waits(&self) {
        let (name, holder, level) = (self.election_name(), &self.holder, self.starter.containment.level());
        let trouble = self.status.storage_trouble().map(|trouble| format!("; {trouble}")).unwrap_or_default();
        say_text!("{name}: waiting for leadership as {holder}, containment: {level}{trouble}");
    }

    pub(super) fn leadership(&self, slot: &ElectionKey, standing: &Standing) -> Leadership {
        Leadership::new(self.election_name(), &self.holder, slot, standing)
    }

    pub(super) fn leads(&self, leadership: &Leadership) {
        say_text!("{leadership}");
        // The guardian reports it if this process dies.
        self.guardian.note(ToGuardian::Leading(leadership.into()).into());
    }

    pub(super) fn campaign_ended(&self, run: &LeadershipRun, cause: &Cause) -> ExitReason {
        let reason = ExitReason::from_cause(cause, run);
        let is_skipped = matches!(run.once.get(), Some(OnceEnd::Skipped(_)));
        if !is_quiet() || reason.farewell != ExitWish::Exit(0) || is_skipped {
            self.announce(&reason, run);
        }
        // After the guardian's death the next `vvm run` may write the same file already.
        if reason.outcome != Outcome::GuardianDied {
            self.report(&reason, run).write(self.args.result_file.as_deref());
        }
        reason
    }

    pub(super) fn part(&self, farewell: ExitWish) {
        self.guardian.note(ToGuardian::Farewell(farewell).into());
    }

    /// Reports `cause` and ends this process at once, without a release (I6): the guardian kills what is left
    /// of the command. After the keeper's death the guardian releases the record, else it expires.
    pub(super) fn end_process(&self, run: &LeadershipRun, cause: &Cause) -> ! {
        let is_unproven = matches!(cause, Cause::Unproven(_));
        if is_unproven {
            // Before the farewell, which says that nothing is left to release.
            self.guardian.note(ToGuardian::Unproven.into());
        }
        self.part(self.campaign_ended(run, cause).farewell);
        if !is_unproven {
            // No process of the command is left, and this one can't end while a thread of it hangs in the kernel.
            self.guardian.finished();
        }
        // Unlike `exit`, it runs no handlers, which could wait for a thread that hangs.
        signal_hook::low_level::exit(exit::SYSTEM.into())
    }

    fn announce(&self, reason: &ExitReason, run: &LeadershipRun) {
        let name = self.election_name();
        let leadership = run.leadership.get();
        let (slot, epoch) = (leadership.map(|it| it.slot), leadership.map(|it| it.epoch.get()));
        let of_slot = slot.map(|slot| format!(" slot {slot}")).unwrap_or_default();
        let line = format!("{name}{of_slot}: {reason}");
        let (event, holder) = ("concluded", self.holder.as_str());
        let (outcome, reason) = (reason.outcome.word(), reason.text.as_deref());
        tracing::info!(target: "vvm", event, name, holder, slot, epoch, outcome, reason, "{line}");
    }

    fn report(&self, reason: &ExitReason, run: &LeadershipRun) -> Report {
        let (level, of) = (self.starter.containment.level(), (self.election_name(), &self.holder));
        let ExitReason { outcome, farewell, text } = reason;
        let mut report = Report::new((*outcome, *farewell, text.clone()), (getppid(), Some(level)), of);
        if let Some(leadership) = run.leadership.get() {
            report.leading(leadership.into());
        }
        if let Some(ended) = run.worked.get().and_then(|worked| worked.last.ended) {
            report.of_worker(ended);
        }
        report
    }
}
