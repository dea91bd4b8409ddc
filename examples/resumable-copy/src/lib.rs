//! An example of `primary-only`: the leader copies a folder, and continues where its predecessor was killed.
//!
//! - [`plan`]: the files to copy, in the same order for every process.
//! - [`progress`]: the document, which is all that the next leader receives.
//! - [`step`](mod@step): one step: some bytes, and the next document.
//! - [`job`]: the service and its task.
//!
//! **Exactly once.** A step has two effects. Writing the same bytes to the same place twice does no harm. The
//! document is written once: only over its previous version, and only by the current leader (I2). It contains
//! a digest over all steps in their order, so that a missing, repeated or misplaced step would change it.
//! [`step::undisturbed`] returns the expected digest.
#![forbid(unsafe_code)]

pub mod job;
pub mod plan;
pub mod progress;
pub mod step;
