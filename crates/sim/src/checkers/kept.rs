//! V. Nothing is lost: whatever stops, every hold that somebody was told of is still there with its bytes, or the log
//! says what became of it; a file that its owner changed is never overwritten; a log can be gone on with.

use std::collections::BTreeMap;

use kernel::{Digest, HoldId};

use crate::checkers::{Checker, LogView, short};
use crate::seen::{Decided, HeldNow, Name, Seen};

/// Reads along.
#[derive(Debug, Default)]
pub struct Kept {
    /// With their manifests, as long as the policy is the same.
    held: BTreeMap<HoldId, (Name, Option<Digest>)>,
}

impl Kept {
    fn compare(
        &mut self,
        now: &[HeldNow],
        log: &LogView,
        resolved: impl Fn(HoldId) -> bool,
    ) -> Result<(), String> {
        for held in now {
            if !held.parked {
                return Err(format!("{} is held and its bytes are gone", held.hold));
            }
        }
        for (hold, (name, manifest)) in std::mem::take(&mut self.held) {
            match now.iter().find(|held| held.hold == hold) {
                Some(held)
                    if held.name != name
                        || manifest.is_some_and(|manifest| held.manifest != manifest) =>
                {
                    return Err(format!("{hold} is another than it was"));
                }
                Some(_) => {}
                None if log.resolved(hold.0) || resolved(hold) => {}
                None => {
                    return Err(format!(
                        "{hold} ({}) is lost: neither held nor resolved",
                        short(&name)
                    ));
                }
            }
        }
        self.held = now
            .iter()
            .map(|held| (held.hold, (held.name, Some(held.manifest))))
            .collect();
        Ok(())
    }
}

impl Checker for Kept {
    fn name(&self) -> &'static str {
        "V kept"
    }

    fn see(&mut self, seen: &Seen, log: &LogView) -> Result<(), String> {
        match seen {
            Seen::Decided {
                name,
                decision: Decided::Held(held),
            } => {
                self.held.insert(held.hold, (*name, Some(held.manifest)));
            }
            Seen::Policy => self
                .held
                .values_mut()
                .for_each(|(_, manifest)| *manifest = None),
            Seen::Holding(now) => return self.compare(now, log, |_| false),
            Seen::Recovered(recovered) => {
                let told = |hold: HoldId| {
                    recovered
                        .unfinished
                        .iter()
                        .chain(&recovered.unknown)
                        .any(|event| event.0 == hold.0)
                };
                return self.compare(&recovered.held, log, told);
            }
            Seen::Unrecoverable(why) => {
                return Err(format!("the session cannot be gone on with: {why}"));
            }
            Seen::Observed(observed) => {
                if let Some((base, there)) = &observed.over
                    && base != there
                {
                    return Err(format!(
                        "{} overwrote what its owner had changed",
                        short(&observed.name)
                    ));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
