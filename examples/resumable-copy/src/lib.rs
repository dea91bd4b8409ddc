//! A worked example of `primary-only`: a folder is copied by whichever process leads, and goes on where its
//! predecessor was killed.
//!
//! - [`plan`]: what there is to copy, in an order that every process finds the same.
//! - [`progress`]: the document, which is all that the next leader gets to know.
//! - [`step`](mod@step): one step: some bytes, and the document that says so.
//! - [`job`]: the service and its task, between the two.
//!
//! **Exactly once.** A step has two effects. Bytes at a place in a file may be written twice without harm,
//! since both times they are the same. The document may not, and is not: it lands only on the version before
//! it, and only under the leadership that holds the slot (I2). It carries a digest over all steps in their
//! order, so that a step left out, done twice, or out of order would show at the end: [`step::undisturbed`]
//! says what the digest must be.
#![forbid(unsafe_code)]

pub mod job;
pub mod plan;
pub mod progress;
pub mod step;
