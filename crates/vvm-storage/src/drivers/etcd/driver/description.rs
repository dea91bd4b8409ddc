//! What a cluster reports about itself: version, members, and the room that is left.

use super::super::{
    errors::DriverError,
    open::{Connections, Path},
    rows::messages::{MemberListRequest, MemberListResponse, StatusRequest, StatusResponse},
};
use crate::Description;

const STATUS: Path = "/etcdserverpb.Maintenance/Status";
const MEMBERS: Path = "/etcdserverpb.Cluster/MemberList";

/// The quota of a server that is not configured otherwise.
const QUOTA: i64 = 2 << 30;

pub(super) async fn describe(connections: &Connections) -> Result<Description, DriverError> {
    let status: StatusResponse = connections.call(STATUS, &StatusRequest {}).await?;
    let revision = status.header.map_or(0, |header| header.revision);
    let mut description = Description::of(format!("etcd {}", status.version));
    // A login may lack the right to list them.
    let members: Result<MemberListResponse, _> = connections.call(MEMBERS, &MemberListRequest {}).await;
    description = match members {
        Ok(list) => {
            let voting = list.members.iter().filter(|member| !member.is_learner).count();
            description.with("members", voting)
        }
        Err(error) => description.concerned(format!("the members are not known: {error}")),
    };
    let quota = if status.quota > 0 { status.quota } else { QUOTA };
    description = description
        .with("revision", revision)
        .with("database", mebibytes(status.size))
        .with("quota", mebibytes(quota) + if status.quota > 0 { "" } else { " unless configured" });
    for error in status.errors {
        description = description.concerned(format!("etcd reports: {error}"));
    }
    if status.size > quota / 2 {
        description = description.concerned(
            "the database takes more than half of its quota, and at the quota etcd refuses all writes: start \
             etcd with --auto-compaction-retention=1h, and defragment it",
        );
    }
    Ok(connections.address().unencrypted().into_iter().fold(description, Description::concerned))
}

fn mebibytes(bytes: i64) -> String {
    format!("{} MiB", bytes >> 20)
}
