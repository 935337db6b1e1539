//! Bugs planted on purpose, one at a time, so that tests can show that the simulation's checkers find them. Only with
//! the feature `planted`, which no part of the program switches on; without it [`is`] is the constant `false`.

/// One bug, named for what goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Bug {
    /// Refusing a hold leaves what depends on it.
    AbortsAlone = 1,
    /// Refusing a hold takes along what does not depend on it.
    AbortsAll,
    /// A refusing verdict carries the hold out.
    RefusalCommits,
    /// A hold that ran out of time is carried out.
    ExpiryCommits,
    /// A verdict about another manifest counts.
    StaleCounts,
    /// A hold does not wait for what it depends on.
    ReadyEarly,
    /// The mark of a stub makes no dependency.
    MarksForgotten,
    /// What was found after a crash is released when policy vouches for it.
    DoubtForgotten,
    /// The manifest leaves the content out.
    ContentForgotten,
    /// The manifest leaves the base out.
    BaseForgotten,
    /// A permit is spent before that is durable.
    SpentSoon,
    /// A permit is spent without a record.
    SpentUnrecorded,
    /// Recovery does not read which permits were spent.
    SpentForgotten,
    /// Recovery loses a hold whose release was cut off.
    CutOffForgotten,
    /// The log goes on after a failed write, and says nothing.
    LogSwallows,
    /// A torn end is left in the log.
    TornKept,
    /// Parked bytes are not made durable.
    ParkedSoon,
    /// A released effect is not recorded.
    ProposalUnrecorded,
    /// An effect is recorded as another than it is.
    ProposalMisrecorded,
    /// A hold is shown before it is durable.
    HoldSoon,
    /// An oracle that failed counts as a release.
    FailureReleases,
    /// Without chance, the nonce is zero.
    NonceZero,
    /// A request that changes something counts as one that only asks.
    PostOnlyAsks,
    /// A staged file is written over what its owner changed.
    OwnerOverwritten,
}

impl Bug {
    /// All of them.
    pub const ALL: [Self; 24] = [
        Self::AbortsAlone,
        Self::AbortsAll,
        Self::RefusalCommits,
        Self::ExpiryCommits,
        Self::StaleCounts,
        Self::ReadyEarly,
        Self::MarksForgotten,
        Self::DoubtForgotten,
        Self::ContentForgotten,
        Self::BaseForgotten,
        Self::SpentSoon,
        Self::SpentUnrecorded,
        Self::SpentForgotten,
        Self::CutOffForgotten,
        Self::LogSwallows,
        Self::TornKept,
        Self::ParkedSoon,
        Self::ProposalUnrecorded,
        Self::ProposalMisrecorded,
        Self::HoldSoon,
        Self::FailureReleases,
        Self::NonceZero,
        Self::PostOnlyAsks,
        Self::OwnerOverwritten,
    ];
}

#[cfg(feature = "planted")]
static PLANTED: core::sync::atomic::AtomicU8 = core::sync::atomic::AtomicU8::new(0);

/// Plants one, in place of the one before.
#[cfg(feature = "planted")]
pub fn plant(bug: Option<Bug>) {
    let number = bug.map_or(0, |bug| bug as u8);
    PLANTED.store(number, core::sync::atomic::Ordering::Relaxed);
}

/// Whether this one is planted.
#[cfg(feature = "planted")]
pub fn is(bug: Bug) -> bool {
    PLANTED.load(core::sync::atomic::Ordering::Relaxed) == bug as u8
}

/// Nothing is planted.
#[cfg(not(feature = "planted"))]
#[inline(always)]
pub const fn is(_: Bug) -> bool {
    false
}
