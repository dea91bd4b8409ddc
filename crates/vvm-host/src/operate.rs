//! For operator commands: reading a host's storage, waking candidates, and the history.

pub use crate::{
    history::{PastLeadership, read},
    host_end::HostEnd,
    identity::or_own_name,
    left_behind::LeftBehind,
    local_wakeups::WakeSender,
    resource_limit::{ResourceLimit, way_out},
    stop_requests::{At, Request, StopRequests},
    storage_inspector::{InspectError, Purpose, StorageInspector},
};
