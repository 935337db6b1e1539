//! Permits spent, leases given. A [`Lease`] is the only thing a sink accepts; it exists only
//! after the log has recorded, durably, that its permit is spent.

use std::collections::BTreeSet;

use kernel::planted::{self, Bug};
use kernel::{Digest, EventId, Permit};

use crate::log::{Log, LogError};
use crate::record::Record;

/// Leave to carry out exactly one manifest, once. Not `Clone`; a sink takes it by value:
///
/// ```compile_fail
/// fn twice(lease: store::Lease) -> (store::Lease, store::Lease) {
///     (lease.clone(), lease)
/// }
/// ```
/// ```compile_fail
/// fn forge(event: kernel::EventId, manifest: kernel::Digest) -> store::Lease {
///     store::Lease { event, manifest }
/// }
/// ```
/// ```compile_fail
/// // A permit alone is not enough: the log has to have spent it.
/// fn skip(permit: kernel::Permit) -> store::Lease {
///     permit.into()
/// }
/// ```
#[derive(Debug)]
#[must_use = "a lease that is dropped is an effect that was promised and never happens"]
pub struct Lease {
    event: EventId,
    manifest: Digest,
    _sealed: Sealed,
}

#[derive(Debug)]
struct Sealed;

impl Lease {
    /// The event it belongs to.
    pub fn event(&self) -> EventId {
        self.event
    }

    /// Digest of the one manifest it is good for.
    pub fn manifest(&self) -> Digest {
        self.manifest
    }
}

/// The record of spent permits of one session.
#[derive(Debug, Default)]
pub struct Ledger {
    spent: BTreeSet<EventId>,
}

impl Ledger {
    /// Spends a permit: recorded and made durable first, so that a crash afterwards cannot let it
    /// be spent again.
    ///
    /// # Errors
    /// When the log cannot be written, or the event was spent before; there is no lease then.
    pub fn spend(&mut self, log: &mut Log, permit: Permit) -> Result<Lease, LogError> {
        let lease = self.spend_soon(log, permit)?;
        if planted::is(Bug::SpentSoon) {
            log.write_out()?;
        } else {
            log.sync()?;
        }
        Ok(lease)
    }

    /// As [`Ledger::spend`], recorded but not yet durable: for effects that can be undone, whose
    /// channel makes the log durable once for many before it acts.
    ///
    /// # Errors
    /// As [`Ledger::spend`].
    pub fn spend_soon(&mut self, log: &mut Log, permit: Permit) -> Result<Lease, LogError> {
        if self.spent.contains(&permit.event()) {
            return Err(LogError::SpentTwice(permit.event().0));
        }
        let record = Record::Spent {
            event: permit.event().0,
            manifest: permit.manifest().hex(),
            why: permit.why().to_string(),
        };
        if !planted::is(Bug::SpentUnrecorded) {
            log.append(&record)?;
        }
        self.spent.insert(permit.event());
        Ok(Lease {
            event: permit.event(),
            manifest: permit.manifest(),
            _sealed: Sealed,
        })
    }

    /// Whether an event's permit was spent.
    pub fn is_spent(&self, event: EventId) -> bool {
        self.spent.contains(&event)
    }

    pub(crate) fn recovered(spent: BTreeSet<EventId>) -> Self {
        Self { spent }
    }
}
