//! The store: one append-only, hash-chained log per session that is both write-ahead log and
//! trace; parked bytes beside it. Nothing acts before its record is in the log, and only the log
//! turns a permit into a lease.
//!
//! Modules in reading order:

/// The written form of what happened, versioned.
pub mod record;
/// The log file.
pub mod log;
/// Permits spent, leases given.
pub mod ledger;
/// Labels that stick to a workspace's places.
pub mod labels;
/// Parked bytes, by digest.
pub mod blobs;
/// Where sessions lie on disk.
pub mod place;
/// Folds a log back into the kernel's state.
pub mod recover;
/// A log decided again, also by another policy.
pub mod replay;
/// The trait all of it writes through.
pub mod disk;

pub use blobs::{BlobWriter, Blobs};
pub use disk::{Disk, MemoryDisk, OsDisk};
pub use labels::{LabelsError, WorkspaceLabels};
pub use ledger::Lease;
pub use log::{Due, Log, LogError};
pub use place::{Place, SessionDir};
pub use record::{Parked, Record};
pub use recover::{Recovered, recover};
pub use replay::replay;
