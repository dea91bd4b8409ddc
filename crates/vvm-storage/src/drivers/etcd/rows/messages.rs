//! The messages of etcd's version 3 that this driver sends and reads, as far as it uses them. Numbers are
//! those of etcd's own definitions (`rpc.proto`, `kv.proto`).

use bytes::Bytes;
use prost::{Enumeration, Message, Oneof};

#[derive(Clone, Copy, PartialEq, Message)]
pub(in super::super) struct ResponseHeader {
    #[prost(uint64, tag = "1")]
    pub(in super::super) cluster_id: u64,
    #[prost(int64, tag = "3")]
    pub(in super::super) revision: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(in super::super) struct KeyValue {
    #[prost(bytes = "bytes", tag = "1")]
    pub(in super::super) key: Bytes,
    #[prost(bytes = "bytes", tag = "5")]
    pub(in super::super) value: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(in super::super) struct RangeRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(in super::super) key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(in super::super) range_end: Bytes,
    #[prost(int64, tag = "3")]
    pub(in super::super) limit: i64,
    #[prost(bool, tag = "7")]
    pub(in super::super) serializable: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(in super::super) struct RangeResponse {
    #[prost(message, repeated, tag = "2")]
    pub(in super::super) kvs: Vec<KeyValue>,
    #[prost(bool, tag = "3")]
    pub(in super::super) more: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(in super::super) struct PutRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(in super::super) key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(in super::super) value: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(in super::super) struct DeleteRangeRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(in super::super) key: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(in super::super) struct RequestOp {
    #[prost(oneof = "Operation", tags = "1, 2, 3")]
    pub(in super::super) request: Option<Operation>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(in super::super) enum Operation {
    #[prost(message, tag = "1")]
    Range(RangeRequest),
    #[prost(message, tag = "2")]
    Put(PutRequest),
    #[prost(message, tag = "3")]
    DeleteRange(DeleteRangeRequest),
}

/// The answer to an operation; only those of reads are looked at.
#[derive(Clone, PartialEq, Message)]
pub(in super::super) struct ResponseOp {
    #[prost(message, optional, tag = "1")]
    pub(in super::super) range: Option<RangeResponse>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Enumeration)]
#[repr(i32)]
pub(in super::super) enum CompareResult {
    Equal = 0,
    Greater = 1,
    Less = 2,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Enumeration)]
#[repr(i32)]
pub(in super::super) enum CompareTarget {
    Version = 0,
    Create = 1,
    Modified = 2,
    Value = 3,
}

#[derive(Clone, PartialEq, Message)]
pub(in super::super) struct Compare {
    #[prost(enumeration = "CompareResult", tag = "1")]
    pub(in super::super) result: i32,
    #[prost(enumeration = "CompareTarget", tag = "2")]
    pub(in super::super) target: i32,
    #[prost(bytes = "bytes", tag = "3")]
    pub(in super::super) key: Bytes,
    #[prost(oneof = "Operand", tags = "5, 7")]
    pub(in super::super) operand: Option<Operand>,
    #[prost(bytes = "bytes", tag = "64")]
    pub(in super::super) range_end: Bytes,
}

#[derive(Clone, PartialEq, Oneof)]
pub(in super::super) enum Operand {
    #[prost(int64, tag = "5")]
    CreateRevision(i64),
    #[prost(bytes = "bytes", tag = "7")]
    Value(Bytes),
}

#[derive(Clone, PartialEq, Message)]
pub(in super::super) struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub(in super::super) compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub(in super::super) success: Vec<RequestOp>,
    #[prost(message, repeated, tag = "3")]
    pub(in super::super) failure: Vec<RequestOp>,
}

#[derive(Clone, PartialEq, Message)]
pub(in super::super) struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    pub(in super::super) header: Option<ResponseHeader>,
    #[prost(bool, tag = "2")]
    pub(in super::super) succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub(in super::super) responses: Vec<ResponseOp>,
}

#[derive(Clone, PartialEq, Message)]
pub(in super::super) struct AuthenticateRequest {
    #[prost(string, tag = "1")]
    pub(in super::super) name: String,
    #[prost(string, tag = "2")]
    pub(in super::super) password: String,
}

#[derive(Clone, PartialEq, Message)]
pub(in super::super) struct AuthenticateResponse {
    #[prost(string, tag = "2")]
    pub(in super::super) token: String,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(in super::super) struct StatusRequest {}

#[derive(Clone, PartialEq, Message)]
pub(in super::super) struct StatusResponse {
    #[prost(message, optional, tag = "1")]
    pub(in super::super) header: Option<ResponseHeader>,
    #[prost(string, tag = "2")]
    pub(in super::super) version: String,
    #[prost(int64, tag = "3")]
    pub(in super::super) size: i64,
    #[prost(string, repeated, tag = "8")]
    pub(in super::super) errors: Vec<String>,
    /// Since 3.6; 0 before.
    #[prost(int64, tag = "12")]
    pub(in super::super) quota: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(in super::super) struct MemberListRequest {}

#[derive(Clone, PartialEq, Message)]
pub(in super::super) struct MemberListResponse {
    #[prost(message, repeated, tag = "2")]
    pub(in super::super) members: Vec<Member>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(in super::super) struct Member {
    #[prost(bool, tag = "5")]
    pub(in super::super) is_learner: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(in super::super) struct WatchRequest {
    #[prost(message, optional, tag = "1")]
    pub(in super::super) create: Option<WatchCreateRequest>,
}

#[derive(Clone, PartialEq, Message)]
pub(in super::super) struct WatchCreateRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(in super::super) key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(in super::super) range_end: Bytes,
    #[prost(int64, tag = "3")]
    pub(in super::super) start_revision: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(in super::super) struct WatchResponse {
    #[prost(bool, tag = "3")]
    pub(in super::super) created: bool,
    #[prost(bool, tag = "4")]
    pub(in super::super) canceled: bool,
    #[prost(int64, tag = "5")]
    pub(in super::super) compact_revision: i64,
    #[prost(string, tag = "6")]
    pub(in super::super) cancel_reason: String,
    #[prost(message, repeated, tag = "11")]
    pub(in super::super) events: Vec<Event>,
}

#[derive(Clone, PartialEq, Message)]
pub(in super::super) struct Event {
    #[prost(message, optional, tag = "2")]
    pub(in super::super) kv: Option<KeyValue>,
}
