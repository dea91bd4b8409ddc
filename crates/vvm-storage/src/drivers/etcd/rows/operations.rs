//! The parts of a transaction: comparisons, reads and writes of one key.

use super::messages::{
    Compare, CompareResult, CompareTarget, DeleteRangeRequest, Operand, Operation, PutRequest, RangeRequest,
    RequestOp,
};
use bytes::Bytes;

/// There is no such key.
pub(in super::super) fn absent(key: Bytes) -> Compare {
    let (result, target) = (CompareResult::Equal.into(), CompareTarget::Create.into());
    let operand = Some(Operand::CreateRevision(0));
    Compare { result, target, key, operand, range_end: Bytes::new() }
}

/// The key has exactly this value.
pub(in super::super) fn equal(key: Bytes, value: Bytes) -> Compare {
    compared(key, CompareResult::Equal, value)
}

/// The key has a value that begins with `start`, and more bytes than that.
pub(super) fn begins_with(key: &Bytes, start: &[u8]) -> [Compare; 2] {
    // Values are compared byte by byte, and a value that begins with another one is the larger.
    [
        compared(key.clone(), CompareResult::Greater, Bytes::copy_from_slice(start)),
        compared(key.clone(), CompareResult::Less, super::end_of(start)),
    ]
}

/// False where there is no such key.
fn compared(key: Bytes, result: CompareResult, value: Bytes) -> Compare {
    let (result, target) = (result.into(), CompareTarget::Value.into());
    Compare { result, target, key, operand: Some(Operand::Value(value)), range_end: Bytes::new() }
}

pub(in super::super) fn put(key: Bytes, value: Bytes) -> RequestOp {
    RequestOp { request: Some(Operation::Put(PutRequest { key, value })) }
}

pub(in super::super) fn delete(key: Bytes) -> RequestOp {
    RequestOp { request: Some(Operation::DeleteRange(DeleteRangeRequest { key })) }
}

/// Reads a key; linearizable.
pub(in super::super) fn range(key: Bytes) -> RequestOp {
    page(RangeRequest { key, ..RangeRequest::default() })
}

/// Reads a key as the member has it. A transaction is linearizable unless all its reads are such.
pub(super) fn stale_range(key: Bytes) -> RequestOp {
    page(RangeRequest { key, serializable: true, ..RangeRequest::default() })
}

pub(super) fn page(request: RangeRequest) -> RequestOp {
    RequestOp { request: Some(Operation::Range(request)) }
}
