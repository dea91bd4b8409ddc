//! [`Key`]: what identifies a slot.

use std::{
    fmt::{Debug, Display},
    hash::Hash,
};

/// A leadership key.
///
/// Logs and the deadman's last message display it. Keys are ordered so that an iteration over them is
/// reproducible in a simulation.
pub trait Key: Clone + Eq + Ord + Hash + Debug + Display + Send + Sync + 'static {}
impl<K: Clone + Eq + Ord + Hash + Debug + Display + Send + Sync + 'static> Key for K {}
