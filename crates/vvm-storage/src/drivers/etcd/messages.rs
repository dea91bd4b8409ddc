//! The messages of etcd 3, with the fields used here. Tags are those of its own definitions (`rpc.proto`, `kv.proto`).

use bytes::Bytes;
use prost::{Message, Oneof};

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct ResponseHeader {
    #[prost(uint64, tag = "1")]
    pub(super) cluster_id: u64,
    #[prost(int64, tag = "3")]
    pub(super) revision: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct KeyValue {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) key: Bytes,
    #[prost(bytes = "bytes", tag = "5")]
    pub(super) value: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RangeRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) range_end: Bytes,
    #[prost(int64, tag = "3")]
    pub(super) limit: i64,
    #[prost(bool, tag = "7")]
    pub(super) serializable: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RangeResponse {
    #[prost(message, repeated, tag = "2")]
    pub(super) kvs: Vec<KeyValue>,
    #[prost(bool, tag = "3")]
    pub(super) more: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PutRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) value: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct DeleteRangeRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) key: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RequestOp {
    #[prost(oneof = "Operation", tags = "1, 2, 3")]
    pub(super) request: Option<Operation>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Operation {
    #[prost(message, tag = "1")]
    Range(RangeRequest),
    #[prost(message, tag = "2")]
    Put(PutRequest),
    #[prost(message, tag = "3")]
    DeleteRange(DeleteRangeRequest),
}

/// The answer to an operation. Answers to writes have other fields, which nothing reads.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ResponseOp {
    #[prost(message, optional, tag = "1")]
    pub(super) range: Option<RangeResponse>,
}

const EQUAL: i32 = 0;

const GREATER: i32 = 1;

const LESS: i32 = 2;

const CREATE: i32 = 1;

const VALUE: i32 = 3;

#[derive(Clone, PartialEq, Message)]
pub(super) struct Compare {
    #[prost(int32, tag = "1")]
    pub(super) result: i32,
    #[prost(int32, tag = "2")]
    pub(super) target: i32,
    #[prost(bytes = "bytes", tag = "3")]
    pub(super) key: Bytes,
    #[prost(oneof = "Operand", tags = "5, 7")]
    pub(super) operand: Option<Operand>,
    #[prost(bytes = "bytes", tag = "64")]
    pub(super) range_end: Bytes,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Operand {
    #[prost(int64, tag = "5")]
    CreateRevision(i64),
    #[prost(bytes = "bytes", tag = "7")]
    Value(Bytes),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub(super) compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub(super) success: Vec<RequestOp>,
    #[prost(message, repeated, tag = "3")]
    pub(super) failure: Vec<RequestOp>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<ResponseHeader>,
    #[prost(bool, tag = "2")]
    pub(super) succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub(super) responses: Vec<ResponseOp>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct AuthenticateRequest {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) password: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct AuthenticateResponse {
    #[prost(string, tag = "2")]
    pub(super) token: String,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct StatusRequest {}

#[derive(Clone, PartialEq, Message)]
pub(super) struct StatusResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<ResponseHeader>,
    #[prost(string, tag = "2")]
    pub(super) version: String,
    #[prost(int64, tag = "3")]
    pub(super) size: i64,
    #[prost(string, repeated, tag = "8")]
    pub(super) errors: Vec<String>,
    /// Since 3.6; 0 before.
    #[prost(int64, tag = "12")]
    pub(super) quota: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchRequest {
    #[prost(message, optional, tag = "1")]
    pub(super) create: Option<WatchCreateRequest>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchCreateRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) range_end: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchResponse {
    #[prost(bool, tag = "3")]
    pub(super) created: bool,
    #[prost(bool, tag = "4")]
    pub(super) canceled: bool,
    #[prost(string, tag = "6")]
    pub(super) cancel_reason: String,
    #[prost(message, repeated, tag = "11")]
    pub(super) events: Vec<Event>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Event {
    #[prost(message, optional, tag = "2")]
    pub(super) kv: Option<KeyValue>,
}

pub(super) fn absent(key: Bytes) -> Compare {
    let operand = Some(Operand::CreateRevision(0));
    Compare { result: EQUAL, target: CREATE, key, operand, range_end: Bytes::new() }
}

pub(super) fn equal(key: Bytes, value: Bytes) -> Compare {
    compared(key, EQUAL, value)
}

/// Both hold if the key's value begins with `start`, and is longer.
pub(super) fn begins_with(key: &Bytes, start: &[u8]) -> [Compare; 2] {
    // etcd compares values byte by byte. Of two values of which one begins with the other, the longer is larger.
    [
        compared(key.clone(), GREATER, Bytes::copy_from_slice(start)),
        compared(key.clone(), LESS, end_of(start)),
    ]
}

/// Fails if there is no such key.
fn compared(key: Bytes, result: i32, value: Bytes) -> Compare {
    Compare { result, target: VALUE, key, operand: Some(Operand::Value(value)), range_end: Bytes::new() }
}

pub(super) fn put(key: Bytes, value: Bytes) -> RequestOp {
    RequestOp { request: Some(Operation::Put(PutRequest { key, value })) }
}

pub(super) fn delete(key: Bytes) -> RequestOp {
    RequestOp { request: Some(Operation::DeleteRange(DeleteRangeRequest { key })) }
}

pub(super) fn range(key: Bytes) -> RequestOp {
    read_range(RangeRequest { key, ..RangeRequest::default() })
}

/// Reads a key as this member has it. A transaction whose reads are all of this kind is not linearizable.
pub(super) fn stale_range(key: Bytes) -> RequestOp {
    read_range(RangeRequest { key, serializable: true, ..RangeRequest::default() })
}

pub(super) fn read_range(request: RangeRequest) -> RequestOp {
    RequestOp { request: Some(Operation::Range(request)) }
}

/// Returns the end of the range of all byte strings that begin with `prefix`, in which some byte is below 255.
pub(super) fn end_of(prefix: &[u8]) -> Bytes {
    let mut end = prefix.to_vec();
    while end.pop_if(|last| *last == u8::MAX).is_some() {}
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end.into()
}
