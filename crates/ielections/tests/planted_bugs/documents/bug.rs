//! The planted bugs.

/// The bug of a storage, described by its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Bug {
    None,
    NothingIsWritten,
    EpochIgnored,
    IncarnationIgnored,
    /// Only the count is compared.
    RecordIgnored,
    AfterIgnored,
    AfterMayBeOlder,
    AfterMayBeNewer,
    FenceOfFirstVersionOnly,
    FenceOutlivesRelease,
    PutConditionIgnored,
    DeleteConditionIgnored,
    /// A missing document counts as one of version 0.
    VersionOfAbsentIsNone,
    /// A document that was deleted is not absent.
    AbsentIsNeverPut,
    LastConditionIgnored,
    /// The writes before the failing condition are applied.
    HalfApplied,
    RefusedCounts,
    VersionStays,
    /// Each document counts its own puts.
    VersionOfDocument,
    EmptyDoesNotCount,
    CountIsShared,
    CountStartsAnewAtRelease,
    CountStartsAnewAtTakeOver,
    RenewalCounts,
    ReleaseDeletes,
    BatchRenews,
    CloseForgets,
    CloseDoesNothing,
    IdEndsAtZero,
    IdCut,
    BodyEndsAtZero,
    BodyCut,
    BodyOfNothingIsNone,
    KeyRunsIntoId,
    LimitsIgnored,
    LimitsAreLess,
    ScanUnsorted,
    ScanToPrefixAndFf,
    ScanFromAfter,
    ScanEndsWithPage,
    ScanSkipsBetweenPages,
    /// A page begins at an index, not after a document.
    ScanByPosition,
    ScanShowsDeleted,
    /// Other handles see the documents of the batch before.
    ReadIsStale,
    /// Other writes may come between the check and the write.
    ChecksThenWrites,
    /// Writes the first document, then the rest.
    WritesInTwoSteps,
    /// Answers a refused batch as written.
    SaysWritten,
}
