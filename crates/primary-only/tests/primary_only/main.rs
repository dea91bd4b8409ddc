//! Primary-only services on `mem`, on a clock that only tests move.
//!
//! The cases of the original (`primary_only_service_test.cpp`), and where they are here:
//!
//! | original | here |
//! |---|---|
//! | DoubleRegisterService | `registering::double_register_service` |
//! | CancellationOnStepdown | `stepping::cancellation_on_step_down` |
//! | ResetCancellationSourceOnStepupAndCompleteSuccessfully | `stepping::a_new_term_is_not_cancelled_and_completes_successfully` |
//! | ResetCancellationSourceOnStepupAndStepDown | `stepping::a_new_term_is_not_cancelled_until_it_steps_down` |
//! | StepUpAfterShutdown | has no counterpart: nothing is shut down for good. `orchestrated::a_later_vvm_goes_on_with_the_same_registry` is what our shutdown is followed by |
//! | ShutdownDuringStepUp | `orchestrated::shutdown_during_step_up` |
//! | BasicCreateInstance | `instances::basic_create_instance` |
//! | LookupInstance | `asking::lookup_instance` |
//! | LookupInstanceInterruptible | `asking::lookup_instance_interruptible` |
//! | LookupInstanceHoldingISLock, …IXLock, …XLock | have no counterpart: no locks of a database are held |
//! | LookupInstanceAfterStepDownReturnsNone | `asking::lookup_instance_after_step_down` |
//! | LookupInstanceAfterShutDownReturnsNone | `orchestrated::lookup_and_get_all_after_shutdown` |
//! | GetAllInstancesAfterStepDown, …AfterShutDown | `asking::get_all_instances_after_step_down`, `orchestrated::lookup_and_get_all_after_shutdown` |
//! | GetOrCreateInstanceInterruptible | `asking::get_or_create_instance_interruptible` |
//! | DoubleCreateInstance | `instances::double_create_instance` |
//! | ReportServerStatusInfo | `reporting::report_service_status` |
//! | CreateWhenNotPrimary | `asking::create_when_not_primary` |
//! | CreateInstanceWithoutIDFails | does not compile: the id is an argument, and a type |
//! | StepDownBeforePersisted | `stepping::step_down_before_persisted` |
//! | RecreateInstanceOnStepUp | `rebuilding::recreate_instance_on_step_up` |
//! | StepDownBeforeRebuildingInstances | `rebuilding::step_down_before_rebuilding_instances` |
//! | RecreateInstancesFails | `rebuilding::recreate_instances_fails` |
//! | OpCtxInterruptedAfterStepdown and its two siblings | have no counterpart: no threads with a context of their own. What a run waits for ends by `cx.stop` (`stepping::cancellation_on_step_down`), what it writes by the fence (`fencing`) |
//! | ReportCurOpInfo | `reporting::report_of_each_instance` |
//! | StateTransitionFromRebuildingShouldWakeUpConditionVariable | `asking::leaving_rebuilding_wakes_who_waits` |
//! | LogSlowServices | `reporting::a_slow_rebuild_is_measured` |
//! | RebuildServiceFails | `rebuilding::rebuild_service_fails` |
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "clippy knows tests, but not their helpers"
)]

mod asking;
mod faults;
mod fencing;
mod instances;
mod joining;
mod orchestrated;
mod probe;
mod races;
mod rebuilding;
mod registering;
mod reporting;
mod rig;
mod stepping;
mod tasks;
