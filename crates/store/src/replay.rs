//! A log decided again: by the policy it was written under, which must lead to what was recorded,
//! and by another one, to see what that would have decided.

use kernel::policy::{Policy, Rules};

use crate::blobs::Blobs;
use crate::log::Entry;
use crate::record::{Record, WrittenEffect};
use crate::recover::{Fold, unusable};

/// A log decided again.
#[derive(Clone, Debug, Default)]
pub struct Replay {
    /// Every proposed effect, in order.
    pub decisions: Vec<Redecided>,
    /// Contents that the log names and that are not kept: what derives from them is deferred.
    pub missing: u64,
    /// What the log says that no decision leads to, or does not say that one does, in words.
    pub mismatches: Vec<String>,
}

/// A proposed effect, decided again.
#[derive(Clone, Debug)]
pub struct Redecided {
    /// The event.
    pub event: u64,
    /// What was proposed.
    pub effect: WrittenEffect,
    /// As it was recorded.
    pub recorded: Ruling,
    /// By the same policy now.
    pub again: Ruling,
    /// By the other policy.
    pub other: Option<Ruling>,
}

/// A decision and its reasons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ruling {
    /// `release`, `refuse` or `defer`.
    pub decision: String,
    /// Why, in words.
    pub why: Vec<String>,
    /// Digest of the manifest, hexadecimal; of nothing when it was refused.
    pub manifest: String,
}

impl Redecided {
    /// Whether the policy it was written under leads to what was recorded.
    pub fn holds(&self) -> bool {
        self.recorded.decision == self.again.decision
            && self.recorded.why == self.again.why
            && (self.recorded.decision == "refuse" || self.recorded.manifest == self.again.manifest)
    }

    /// Whether the other policy decides otherwise.
    pub fn differs(&self) -> bool {
        self.other
            .as_ref()
            .is_some_and(|other| other.decision != self.again.decision)
    }
}

/// Decides a log again.
///
/// # Errors
/// A text that names the record that cannot be used.
pub fn replay(
    entries: &[Entry],
    blobs: &Blobs,
    own: (&Policy, &dyn Rules),
    other: Option<(&Policy, &dyn Rules)>,
) -> Result<Replay, String> {
    let mut replay = Replay::default();
    let mut fold = Fold::default();
    let mut otherwise = other.map(|policy| (Fold::default(), policy));
    for entry in entries {
        let record = &entry.record;
        let unusable = |why: String| unusable(entry, &why);
        // The other one first: a verdict is matched with holds that it is about to resolve.
        let theirs = match &mut otherwise {
            Some((other, policy)) => other
                .take(record, blobs, *policy, Some(&fold))
                .map_err(unusable)?,
            None => None,
        };
        let ours = fold.take(record, blobs, own, None).map_err(unusable)?;
        if let (
            Some(ours),
            Record::Proposed {
                event,
                effect,
                decision,
                why,
                manifest,
                ..
            },
        ) = (ours, record)
        {
            let ruling = |derived: crate::recover::Derived| Ruling {
                decision: derived.decision.to_string(),
                why: derived.why,
                manifest: derived.manifest.hex(),
            };
            replay.decisions.push(Redecided {
                event: *event,
                effect: effect.clone(),
                recorded: Ruling {
                    decision: decision.clone(),
                    why: why.clone(),
                    manifest: manifest.clone(),
                },
                again: ruling(ours),
                other: theirs.map(ruling),
            });
        }
    }
    replay.missing = fold.missing;
    replay.mismatches = std::mem::take(&mut fold.mismatches);
    Ok(replay)
}
