//! [`Reporter`]: reports leaderships and their ends to the operator, to programs, to the result file and to
//! the guardian.

use super::{
    exit_reason::{Cause, ExitReason, ExitStatuses},
    leadership_run::LeadershipRun,
};
use crate::{
    announce::{say, say_text},
    exit,
    leadership::Leadership,
    notes::{Farewell, ToGuardian},
    report::{Outcome, Report},
};
use ielections::{Holder, Standing};
use std::path::PathBuf;
use vvm_containment::{Guardian, Level};
use vvm_storage::ElectionKey;

/// Reports what this process does.
#[derive(Debug)]
pub(super) struct Reporter {
    pub(super) name: String,
    pub(super) holder: Holder,
    pub(super) level: Level,
    pub(super) statuses: ExitStatuses,
    pub(super) result_file: Option<PathBuf>,
    pub(super) guardian: Guardian,
}

impl Reporter {
    pub(super) fn waits(&self) {
        let Self { name, holder, level, .. } = self;
        say_text!("{name}: waiting for leadership as {holder}, containment: {level}");
    }

    /// Returns the leadership of this name and holder.
    pub(super) fn leadership(&self, slot: &ElectionKey, standing: &Standing) -> Leadership {
        Leadership::new(&self.name, &self.holder, slot, standing)
    }

    pub(super) fn leads(&self, leadership: &Leadership) {
        say_text!("{leadership}");
        // The guardian reports it if this process dies.
        self.guardian.note(ToGuardian::Leading(leadership.into()).into());
    }

    /// Reports the end of a campaign, and returns its exit reason.
    pub(super) fn campaign_ended(&self, run: &LeadershipRun, cause: &Cause) -> ExitReason {
        let reason = ExitReason::of(cause, run, self.statuses);
        self.announce(&reason, run);
        // After the guardian's death the next `vvm run` may write the same file already.
        if let Some(path) = &self.result_file
            && reason.outcome != Outcome::GuardianDied
        {
            let report = self.report(&reason, run);
            report.write(path).unwrap_or_else(|refusal| say!("{refusal}"));
        }
        reason
    }

    /// Tells the guardian how `vvm` is to end.
    pub(super) fn part(&self, farewell: Farewell) {
        self.guardian.note(ToGuardian::Farewell(farewell).into());
    }

    /// Tells the guardian that this process only has to exit: it is left behind if it hangs in the kernel.
    pub(super) fn finished(&self) {
        self.guardian.finished();
    }

    /// Reports `cause` and ends this process at once, without a release (I6): the guardian kills what is left
    /// of the command. After the keeper's death the guardian releases the record, else it expires.
    pub(super) fn end_process(&self, run: &LeadershipRun, cause: &Cause) -> ! {
        if matches!(cause, Cause::Unproven(_)) {
            // Before the farewell, which says that nothing is left to release.
            self.guardian.note(ToGuardian::Unproven.into());
        }
        self.part(self.campaign_ended(run, cause).farewell);
        // Unlike `exit`, it runs no handlers, which could wait for a thread that hangs.
        signal_hook::low_level::exit(exit::SYSTEM.into())
    }

    fn announce(&self, reason: &ExitReason, run: &LeadershipRun) {
        let name = self.name.as_str();
        let leadership = run.leadership.get();
        let (slot, epoch) = (leadership.map(|it| it.slot), leadership.map(|it| it.epoch.get()));
        say_text!("{name}{}: {reason}", slot.map(|slot| format!(" slot {slot}")).unwrap_or_default());
        let (event, holder) = ("concluded", self.holder.as_str());
        let (outcome, reason) = (reason.outcome.word(), reason.text.as_deref());
        tracing::info!(target: "vvm", event, name, holder, slot, epoch, outcome, reason);
    }

    fn report(&self, reason: &ExitReason, run: &LeadershipRun) -> Report {
        let mut report = Report::new(reason.outcome, &self.name, &self.holder);
        report.contained(self.level);
        report.ending(reason.farewell);
        report.reason.clone_from(&reason.text);
        if let Some(leadership) = run.leadership.get() {
            report.leading(leadership.slot, leadership.epoch, leadership.incarnation);
        }
        if let Some(ended) = run.worked.get().and_then(|worked| worked.last.ended) {
            report.of_worker(ended);
        }
        report
    }
}
