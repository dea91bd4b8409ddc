//! The bugs that are planted.

/// What is wrong with it. The names say it.
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
    /// Says of one applied swap in ten that it was not.
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
    /// Handles other than the writer's see the state before its last write.
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
    LimitsAreIgnored,
    /// Others get their turn between the look and the write.
    ChecksThenWrites,
    /// The holder first, then the rest.
    WritesInTwoSteps,
    CloseDoesNothing,
    CloseForgets,
    CloseClosesAll,
}
