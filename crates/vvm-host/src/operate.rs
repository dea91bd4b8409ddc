//! What operator commands need of a host: a look into its storage, wake-ups, and the history.

pub use crate::{
    history::{PastLeadership, read},
    identity::or_own_name,
    local_wakeups::WakeSender,
    resource_limit::{ResourceLimit, way_out},
    stop_requests::{At, Request, StopRequests},
    storage_inspector::{InspectError, Purpose, StorageInspector},
};
