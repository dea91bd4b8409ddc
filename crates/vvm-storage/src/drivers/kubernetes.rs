//! Driver `kubernetes`: Leases in a namespace of Kubernetes. Several machines, on the API server that is
//! there already.
//!
//! Tried on kube-apiserver 1.36.3 with etcd 3.4: the suites of records, elections and documents; roles;
//! Leases that are deleted by hand, and Leases that other programs write.
//!
//! **How the contract is kept.** One Lease (`coordination.k8s.io/v1`) for each slot, setting and request, as
//! a cell of [`Cells`](crate::cells::Cells). A claim, a renewal, a release or a batch is one request: POST
//! creates a Lease that does not exist, PUT replaces exactly the `resourceVersion` and `uid` that were seen.
//! A read is a GET without `resourceVersion`, which the quorum of etcd answers. `peek` says
//! `resourceVersion=0`, so the API server answers from memory. Nothing is sent twice.
//!
//! **What a Lease shows.** `kubectl get lease` and client-go see the truth:
//!
//! | field | value |
//! |---|---|
//! | name | the name of slot 1; `NAME.2`, `NAME.slots`, `NAME.pause`, `NAME.step-down`; `vvm.` and a digest for a name that is no DNS label of up to 200 characters |
//! | `holderIdentity` | the holder, `""` when vacant |
//! | `leaseDurationSeconds` | the TTL, rounded up; 1 when vacant |
//! | `renewTime` | later with each write, even if the wall clock goes back |
//! | `acquireTime`, `leaseTransitions` | of the last claim; how many claims |
//! | annotation `vvm/cell` | the value: epoch, incarnation, TTL, documents, and the whole key, which is compared |
//! | annotations `vvm/spec`, `vvm/epoch` | a digest of the spec that was written with the value; the last epoch |
//! | label `vvm/name` | the name, on all its Leases |
//!
//! Labels, annotations, owners and finalizers of other programs are kept. Without an owner a Lease stays for
//! ever: a deleted Lease loses the epoch, so set `ownerReferences` only if that is wanted.
//!
//! **Beside client-go.** client-go observes the spec and keeps annotations. A spec that does not match its
//! digest was written by another program. Then the holder is the one in the spec, for `leaseDurationSeconds`
//! without a change. No fence of ours stands on such a record, and the next epoch is larger than ours. If
//! the other program overwrote a record under which a leader of ours may still work, a claim waits for the
//! longest TTL of the name. client-go has no kill deadline: it stops its work when it notices. So two
//! programs lead at most one at a time only if client-go's does stop.
//!
//! A candidate of client-go waits for as long as the record's `leaseDurationSeconds` says, from v0.27.0 on (that
//! of Kubernetes 1.27). In all releases before, up to v0.26.15, it waits for its own `LeaseDuration`, whatever the
//! record says. With a shorter one than our TTL it takes the Lease over while our leader works. So give it a
//! `LeaseDuration` of at least the TTL.
//!
//! **Never early.** Nothing ends a record but a write. No age is ever proven, so a standby that comes anew
//! waits one TTL of its own. A Lease that was deleted by hand is not vacant: a claim waits for the longest
//! TTL of the name, and its leader is lost (`Replaced`).
//!
//! **Hints.** A candidate watches the Leases with the name's label, on a connection of its own. A release, a
//! pause or a request brings a look forward, and nothing else follows from it. Each renewal crosses the
//! network as well, with the documents of its slot; it is dropped here. Without the right to watch,
//! candidates poll.
//!
//! **Where.** `k8s://namespace?option=value&…`. The server and the login are those of a kubeconfig if one is
//! named; else, in a Pod, of its service account; else of the kubeconfig that `KUBECONFIG` names, or
//! `~/.kube/config`.
//!
//! | option | meaning |
//! |---|---|
//! | `context=name` | this context of the kubeconfig. Default: the current one |
//! | `kubeconfig=path` | this file. A user logs in by `token`, `tokenFile` or client certificate; `exec` plug-ins, passwords, proxies and `insecure-skip-tls-verify` are refused |
//! | `server=https://host:6443` | this server instead of the one that is configured |
//! | `service_account=path` | a folder with `token` and `ca.crt`. Default: where Kubernetes mounts the service account. A token is read again after a minute, and after it was refused |
//! | `request_timeout=5s` | how long a request may take, from 100 ms to 60 s: 2 s unless given, half of it for connecting |
//!
//! **Rights.** `get`, `create`, `update` and `watch` on leases of `coordination.k8s.io` in the namespace:
//! `packaging/kubernetes/base/rbac.yaml`. [`init_storage`](crate::init_storage) creates nothing; it checks
//! the rights, and by a dry run that a Lease can be created.
//!
//! **Errors.**
//!
//! | what went wrong | to a write | to a read | because |
//! |---|---|---|---|
//! | no connection: network, or not within half the request timeout | `NotApplied` | `Unavailable` | nothing was sent |
//! | no connection: certificate, or a file of the login | `Fatal` | `Fatal` | nothing was sent |
//! | 401 | `NotApplied` | `Unavailable` | refused before anything else; a token may be replaced |
//! | 403, 400, 413, 422 with a reason | `Fatal` | `Fatal` | refused, and will be again |
//! | 404 of the namespace | `Fatal` | – | nothing can be created there |
//! | 404 of a Lease | refused, or `Replaced` if it was held | absent | |
//! | 409 | refused, or `Replaced` if another object has the name of one that was held | – | |
//! | 429 | `NotApplied` | `Unavailable` | refused by priority and fairness before it began |
//! | 5xx, 504 above all; any answer that no API server writes | `Unknown` | `Unavailable` | 9 of 15 writes that were answered by 504 had been applied |
//! | connection broken, or no answer within the request timeout | `Unknown` | `Unavailable` | the server may have begun |
//! | a held Lease without a duration, or one with another key | `Fatal` | `Fatal` | another program writes it |
//!
//! **Limits.** Annotations of an object take 256 KiB, so record and documents of a slot take 176 KiB
//! together. Keys take up to 2,048 bytes. Two clusters whose etcd was copied have a leader each. An etcd
//! that is restored from a backup forgets writes: stop all candidates before.

mod cluster;
mod connections;
mod driver;
mod errors;
mod kubeconfig;
mod names;
mod open;
mod rows;
mod session;

pub use driver::LeaseStorage;
pub(crate) use open::init;
