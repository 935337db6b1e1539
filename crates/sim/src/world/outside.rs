//! What lies beyond the monitor: channels with their parked bytes and staged files, parties that receive, the owner's
//! files. It outlives crashes of the process, and its own acts can be cut off like everything else.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kernel::planted::{self, Bug};
use kernel::{Class, Digest, Effect, EventId, Notice, Object, Refusal};
use monitor::{Channel, Held};
use store::{Blobs, Disk, Lease, Parked};

use crate::seen::{Name, Observed, Seen, Witness, wording};
use crate::world::disk::SimDisk;

/// The outside; clones are the same one.
#[derive(Clone, Debug)]
pub struct Outside {
    disk: SimDisk,
    witness: Witness,
    dir: PathBuf,
    state: Arc<Mutex<Out>>,
}

#[derive(Debug, Default)]
struct Out {
    /// The owner's files.
    host: BTreeMap<String, Vec<u8>>,
    /// Staged changes that are neither on the host nor discarded: the channel's own durable state.
    staged: BTreeMap<Name, Staged>,
}

/// A staged change as its channel keeps it.
#[derive(Clone, Debug)]
pub struct Staged {
    /// The change.
    pub effect: Effect,
    /// Its content, also kept as a blob.
    pub parked: Parked,
}

impl Outside {
    /// An empty one.
    pub fn new(disk: SimDisk, witness: Witness, dir: PathBuf) -> Self {
        Self {
            disk,
            witness,
            dir,
            state: Arc::default(),
        }
    }

    /// What the owner's file holds.
    pub fn host(&self, path: &str) -> Option<Vec<u8>> {
        self.out().host.get(path).cloned()
    }

    /// The owner changes a file.
    pub fn edit(&self, path: &str, bytes: Vec<u8>) {
        self.out().host.insert(path.to_string(), bytes);
    }

    /// A channel stages a change durably before it proposes it.
    pub fn stage(&self, name: Name, staged: Staged) {
        self.out().staged.insert(name, staged);
    }

    /// A staged change is gone: committed, discarded or taken back.
    pub fn unstage(&self, name: &Name) {
        self.out().staged.remove(name);
    }

    /// Everything staged.
    pub fn staged(&self) -> Vec<(Name, Staged)> {
        let out = self.out();
        out.staged
            .iter()
            .map(|(name, staged)| (*name, staged.clone()))
            .collect()
    }

    /// Whether the bytes parked for an effect are there and right.
    pub fn is_parked(&self, effect: &Effect, parked: &Parked) -> bool {
        self.parked(effect, parked).is_ok()
    }

    /// Does what a lease permits; whether that happens is written down at the moment it does.
    ///
    /// # Errors
    /// Why it was not done, or not known to be done.
    pub fn act(
        &self,
        event: EventId,
        effect: &Effect,
        parked: &Parked,
        lease: Lease,
    ) -> Result<String, String> {
        let done = self.try_to(event, effect, parked, lease);
        if done.is_err() {
            self.witness.saw(Seen::NotDone(effect.payload.digest));
        }
        done
    }

    fn try_to(
        &self,
        event: EventId,
        effect: &Effect,
        parked: &Parked,
        lease: Lease,
    ) -> Result<String, String> {
        let bytes = self.parked(effect, parked)?;
        self.disk.tick().map_err(|error| error.to_string())?;
        let mut out = self.out();
        let mut over = None;
        if let Object::Location { path, .. } = &effect.object {
            let there = out.host.get(path).map(|bytes| Digest::of(bytes));
            if there != effect.base && !planted::is(Bug::OwnerOverwritten) {
                return Err("its owner changed it; both are kept".into());
            }
            over = Some((effect.base, there));
            out.host.insert(path.clone(), bytes.clone());
        }
        let name = Digest::of(&bytes);
        out.staged.remove(&name);
        drop(out);
        self.witness.saw(Seen::Observed(Observed {
            event,
            manifest: lease.manifest(),
            name,
            done: wording(effect),
            harmless: effect.class == Class::Stageable || effect.operation.reads_only(),
            over,
        }));
        self.disk.tick().map_err(|error| error.to_string())?;
        Ok("done".into())
    }

    fn parked(&self, effect: &Effect, parked: &Parked) -> Result<Vec<u8>, String> {
        let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
        let blobs = Blobs::open_dir_on(&disk, &self.dir).map_err(|error| error.to_string())?;
        let digest = parked
            .blob
            .as_deref()
            .and_then(Digest::from_hex)
            .ok_or("nothing is parked")?;
        let bytes = blobs.read(&digest).map_err(|error| error.to_string())?;
        if digest != effect.payload.digest || bytes.len() as u64 != effect.payload.bytes {
            return Err("what is parked is not what was approved".into());
        }
        Ok(bytes)
    }

    fn out(&self) -> MutexGuard<'_, Out> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Channel for Outside {
    fn commit(&self, held: &Held, lease: Lease) -> Result<String, String> {
        if lease.manifest() != held.manifest {
            return Err("the lease is for something else".into());
        }
        let event = lease.event();
        self.act(event, &held.effect, &held.parked, lease)
    }

    fn abort(&self, held: &Held, _: &Refusal, _: &Notice) {
        if self.disk.tick().is_ok() {
            self.unstage(&held.effect.payload.digest);
            self.witness.saw(Seen::Dropped(held.hold));
        }
    }
}
