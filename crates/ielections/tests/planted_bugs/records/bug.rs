//! The planted bugs.

/// The bug of a storage, described by its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Bug {
    None,
    ClaimNeedsEpoch,
    ClaimNeedsFreshSlot,
    ClaimOverwrites,
    ClaimIgnoresEpoch,
    ClaimLies,
    TakeOverByIncarnation,
    TakeOverIgnoresEpoch,
    TakeOverOfFirstVersionOnly,
    SwapByIncarnation,
    SwapByWrite,
    SwapIgnoresEpoch,
    SwapOnlyOnce,
    SwapLies,
    /// Answers one applied swap in ten as not applied.
    SwapDenies,
    ReleaseOfFirstVersionOnly,
    ReleaseByEpoch,
    ReleaseByIncarnation,
    ReleaseLies,
    ReleaseForgetsEpoch,
    RefusalShowsNothing,
    TtlInMilliseconds,
    WriteAsI32,
    SwapKeepsHolder,
    HolderEndsAtZero,
    HolderCut,
    EpochAsU32,
    /// Other handles than the writer's see the state before its last write.
    ReadIsStale,
    ScanSorts,
    ScanSkipsVacant,
    ScanStopsAfterBatch,
    Expires,
    ExpiresAndForgets,
    AgeIsGuessed,
    /// A renewal does not start the age anew.
    AgeIsOfTheClaim,
    RefusalAgeIsGuessed,
    KeyEndsAtZero,
    KeyIgnoresCase,
    KeyCut,
    /// A key that fills its folder's name meets the folder of longer keys.
    KeyMeetsFolder,
    LimitsAreIgnored,
    /// Other writes may come between the check and the write.
    ChecksThenWrites,
    /// Writes the holder first, then the rest.
    WritesInTwoSteps,
    CloseDoesNothing,
    CloseForgets,
    CloseClosesAll,
}
