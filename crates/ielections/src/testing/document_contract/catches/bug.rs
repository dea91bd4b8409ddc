//! The bugs that are planted.

/// What is wrong with it. The names say it.
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
    /// A document that does not stand is taken for one of version 0.
    VersionOfAbsentIsNone,
    /// A document that was deleted is not absent.
    AbsentIsNeverPut,
    LastConditionIgnored,
    /// What comes before the condition that fails is written.
    HalfApplied,
    RefusedCounts,
    VersionStays,
    /// Documents count their own puts.
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
    /// A page begins at a place in the list, and not behind a document.
    ScanByPosition,
    ScanShowsDeleted,
    /// Other handles see the documents of the batch before.
    ReadIsStale,
    /// Others get their turn between the look and the write.
    ChecksThenWrites,
    /// The first document, then the rest.
    WritesInTwoSteps,
    /// Says of a batch that was refused that it was written.
    SaysWritten,
}
