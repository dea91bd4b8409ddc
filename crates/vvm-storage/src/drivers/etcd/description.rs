//! What a cluster reports about itself: version, members, and the room that is left.

use super::{
    connections::Connections,
    errors::DriverError,
    messages::{MemberListRequest, MemberListResponse, StatusRequest, StatusResponse, WatchCreateRequest},
    session::Path,
};
use crate::sysvvm::Description;
use bytes::Bytes;

const STATUS: Path = "/etcdserverpb.Maintenance/Status";
const MEMBERS: Path = "/etcdserverpb.Cluster/MemberList";

/// So many renewals are nothing; a cluster that compacts has done so long before.
const MANY_REVISIONS: i64 = 100_000;

/// The quota of a server that is not configured otherwise.
const QUOTA: i64 = 2 << 30;

pub(super) async fn describe(connections: &Connections, own: Bytes) -> Result<Description, DriverError> {
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
    match compacted(connections, own).await {
        Ok(up_to) => {
            description = description.with("compacted up to revision", up_to);
            if revision - up_to > MANY_REVISIONS {
                description = description.concerned(format!(
                    "etcd keeps {} revisions, and more with each renewal, until the quota is reached: start \
                     it with --auto-compaction-retention=1h, or compact it regularly",
                    revision - up_to
                ));
            }
        }
        Err(error) => {
            description = description.concerned(format!("when etcd was compacted is not known: {error}"));
        }
    }
    Ok(connections.address().unencrypted().into_iter().fold(description, Description::concerned))
}

/// The last revision that was removed from the history of keys; 0 if none was. Only a watch that begins there
/// tells it.
async fn compacted(connections: &Connections, own: Bytes) -> Result<i64, DriverError> {
    let from_the_first = WatchCreateRequest { key: own, range_end: Bytes::new(), start_revision: 1 };
    let mut watch = connections.watch(vec![from_the_first]).await?;
    let told = async {
        loop {
            let answer = watch.next().await?;
            // Otherwise it tells of the creation of the key.
            if answer.canceled || !answer.events.is_empty() {
                return Ok(answer.compact_revision);
            }
        }
    };
    tokio::select! {
        biased;
        told = told => told,
        () = connections.pause(connections.address().request_timeout) => {
            Err(DriverError::NotBegun("no answer in time".into()))
        }
    }
}

fn mebibytes(bytes: i64) -> String {
    format!("{} MiB", bytes >> 20)
}
