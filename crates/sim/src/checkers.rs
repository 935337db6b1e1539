//! The guarantees as checkers: each reads along in the witness's book and says where it was broken. They share only a
//! reading of the log.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use kernel::{Digest, Effect};
use serde::Deserialize;
use store::Record;

use crate::seen::Seen;

/// I: every effect that leaves passed the monitor.
pub mod mediated;
/// II: nothing is irreversible before its release.
pub mod released;
/// III: what is refused is never observable.
pub mod refused;
/// IV: what was approved is exactly what happens, at most once.
pub mod exact;
/// V: nothing is lost.
pub mod kept;
/// VI: in doubt, hold.
pub mod doubt;
/// The log alone says what happened.
pub mod replayed;
/// Only what happens leaves labels.
pub mod labelled;

/// One guarantee.
pub trait Checker {
    /// Its name.
    fn name(&self) -> &'static str;

    /// Reads on.
    ///
    /// # Errors
    /// How the guarantee was broken.
    fn see(&mut self, seen: &Seen, log: &LogView) -> Result<(), String>;
}

/// A broken guarantee.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which checker says so.
    pub checker: &'static str,
    /// What happened.
    pub what: String,
}

/// All checkers over one run.
pub struct Checkers {
    log: LogView,
    all: Vec<Box<dyn Checker>>,
}

impl Default for Checkers {
    fn default() -> Self {
        Self {
            log: LogView::default(),
            all: vec![
                Box::new(mediated::Mediated::default()),
                Box::new(released::Released),
                Box::new(refused::Refused::default()),
                Box::new(exact::Exact::default()),
                Box::new(kept::Kept::default()),
                Box::new(doubt::Doubt::default()),
                Box::new(replayed::Replayed::default()),
                Box::new(labelled::Labelled::default()),
            ],
        }
    }
}

impl Checkers {
    /// Reads on.
    ///
    /// # Errors
    /// The first guarantee that was broken.
    pub fn see(&mut self, seen: Seen) -> Result<(), Violation> {
        let seen = self.log.follow(seen);
        for checker in &mut self.all {
            let result = checker.see(&seen, &self.log);
            result.map_err(|what| Violation {
                checker: checker.name(),
                what,
            })?;
        }
        Ok(())
    }
}

/// The log as it is now.
#[derive(Debug, Default)]
pub struct LogView {
    /// Number of records.
    pub records: usize,
    /// How many of them survive whatever happens.
    pub durable: usize,
    /// Proposals by event: which record, and what was written.
    pub proposed: BTreeMap<u64, (usize, Effect)>,
    /// Spent permits by event: which record, and the manifest.
    pub spent: BTreeMap<u64, (usize, String)>,
    /// Holds that are recorded as aborted or taken back.
    pub gone: BTreeSet<u64>,
}

#[derive(Deserialize)]
struct Line {
    body: Record,
}

impl LogView {
    /// Whether the log says what became of a hold.
    pub fn resolved(&self, event: u64) -> bool {
        self.spent.contains_key(&event) || self.gone.contains(&event)
    }

    fn follow(&mut self, seen: Seen) -> Seen {
        match seen {
            Seen::Wrote(bytes) => match serde_json::from_slice::<Line>(&bytes) {
                Ok(line) => {
                    self.take(&line.body);
                    Seen::Logged(line.body)
                }
                Err(error) => panic!("the log wrote what cannot be read: {error}"),
            },
            Seen::Synced => {
                self.durable = self.records;
                Seen::Synced
            }
            Seen::Survived(bytes) => {
                *self = Self::default();
                if let Ok(reading) = store::log::read_from(&bytes[..], Path::new("log")) {
                    for entry in &reading.entries {
                        self.take(&entry.record);
                    }
                }
                self.durable = self.records;
                Seen::Survived(bytes)
            }
            seen => seen,
        }
    }

    fn take(&mut self, record: &Record) {
        let index = self.records;
        self.records += 1;
        match record {
            Record::Proposed { event, effect, .. } => {
                let effect = effect.read().expect("a recorded effect can be read");
                self.proposed.insert(*event, (index, effect));
            }
            Record::Spent {
                event, manifest, ..
            } => {
                self.spent.insert(*event, (index, manifest.clone()));
            }
            Record::Aborted { event, .. } => {
                self.gone.insert(*event);
            }
            Record::Withdrawn { hold, .. } => {
                if let Ok(hold) = hold.parse::<kernel::HoldId>() {
                    self.gone.insert(hold.0);
                }
            }
            _ => {}
        }
    }
}

/// A name short enough for a message.
pub(crate) fn short(digest: &Digest) -> String {
    digest.hex()[..8].to_string()
}
