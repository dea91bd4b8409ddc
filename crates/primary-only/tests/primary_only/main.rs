//! Primary-only services on `mem`, on a clock that only tests move.
//!
//! The tests of MongoDB's `primary_only_service_test.cpp` have these counterparts:
//!
//! - DoubleRegisterService: `instances::double_register_service`
//! - CancellationOnStepdown, ResetCancellationSourceOnStepupAndCompleteSuccessfully:
//!   `stepping::instance_completes_in_the_term_after_an_interruption`
//! - ResetCancellationSourceOnStepupAndStepDown: `rebuilding::recreate_instance_on_step_up`
//! - StepUpAfterShutdown: no counterpart: a registry is never shut down for good. See
//!   `stepping::terms_in_quick_succession_leave_no_runner`
//! - ShutdownDuringStepUp: `rebuilding::step_down_before_rebuilding_instances`
//! - BasicCreateInstance: `instances::basic_create_instance`
//! - LookupInstance: `instances::double_create_instance`
//! - LookupInstanceInterruptible: `service_handle::call_during_a_rebuild_is_dropped_or_ends_with_the_term`
//! - LookupInstanceHoldingISLock, …IXLock, …XLock: no counterpart: there are no database locks
//! - LookupInstanceAfterStepDownReturnsNone: `service_handle::calls_are_refused_before_and_after_a_term`
//! - LookupInstanceAfterShutDownReturnsNone: the same
//! - GetAllInstancesAfterStepDown, …AfterShutDown: the same
//! - GetOrCreateInstanceInterruptible: `service_handle::call_during_a_rebuild_is_dropped_or_ends_with_the_term`
//! - DoubleCreateInstance: `instances::double_create_instance`
//! - ReportServerStatusInfo: `orchestrated::report_service_status`
//! - CreateWhenNotPrimary: `service_handle::calls_are_refused_before_and_after_a_term`
//! - CreateInstanceWithoutIDFails: does not compile: the id is an argument
//! - StepDownBeforePersisted: `stepping::step_down_before_persisted`
//! - RecreateInstanceOnStepUp: `rebuilding::recreate_instance_on_step_up`
//! - StepDownBeforeRebuildingInstances: `rebuilding::step_down_before_rebuilding_instances`
//! - RecreateInstancesFails: `rebuilding::recreate_instances_fails`
//! - OpCtxInterruptedAfterStepdown and its two siblings: no counterpart: there are no operation contexts. `cx.stop`
//!   ends a run's waits (`stepping::instance_completes_in_the_term_after_an_interruption`), the fence its writes
//!   (`fencing`)
//! - ReportCurOpInfo: `orchestrated::report_of_each_instance`
//! - StateTransitionFromRebuildingShouldWakeUpConditionVariable: `service_handle::end_of_rebuild_wakes_waiting_calls`
//! - LogSlowServices: `orchestrated::report_service_status`
//! - RebuildServiceFails: `rebuilding::rebuild_service_fails`
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "clippy knows tests, but not their helpers"
)]

mod fencing;
mod instances;
mod orchestrated;
mod rebuilding;
mod rig;
mod service_handle;
mod stepping;
#[path = "../../../vvm-orch/tests/vvm/tasks.rs"]
mod tasks;
