//! IV. What was approved is exactly what happens, at most once: under the manifest that policy or an oracle vouched for,
//! and every protected field is part of that manifest.

use std::collections::{BTreeMap, BTreeSet};

use kernel::manifest::{Manifest, Nonce};
use kernel::{Digest, Effect, HoldId, Object, Operation};
use store::Record;

use crate::checkers::{Checker, LogView, short};
use crate::seen::{Decided, Name, Seen};

/// Reads along.
#[derive(Debug, Default)]
pub struct Exact {
    observed: BTreeSet<Name>,
    /// The manifest that was decided, and whether policy alone vouches for it.
    decided: BTreeMap<Name, (Digest, bool)>,
    names: BTreeMap<HoldId, Name>,
    /// Manifests that an oracle released.
    approved: BTreeSet<Digest>,
    manifests: BTreeMap<Digest, u64>,
    /// Policy decides again what is held; manifests change.
    deciding_again: bool,
    records: usize,
}

impl Exact {
    fn learn(&mut self, hold: HoldId, name: Name, manifest: Digest, vouched: bool) {
        self.names.insert(hold, name);
        self.decided.insert(name, (manifest, vouched));
    }
}

impl Checker for Exact {
    fn name(&self) -> &'static str {
        "IV exact"
    }

    fn see(&mut self, seen: &Seen, _: &LogView) -> Result<(), String> {
        match seen {
            Seen::Policy => {
                self.deciding_again = true;
                // An approval is good for the policy it was given under.
                self.approved.clear();
            }
            Seen::Holding(now) => {
                self.deciding_again = false;
                for held in now {
                    self.learn(held.hold, held.name, held.manifest, held.vouched);
                }
            }
            Seen::Logged(Record::Proposed {
                event,
                effect,
                nonce,
                manifest,
                decision,
                ..
            }) if decision == "defer" => {
                self.records += 1;
                let effect = effect.read()?;
                if let Some(other) = self
                    .manifests
                    .insert(Digest::from_hex(manifest).unwrap_or_default(), *event)
                    && other != *event
                {
                    return Err(format!("events {other} and {event} have the same manifest"));
                }
                let mut bytes = [0; 16];
                for (at, byte) in bytes.iter_mut().enumerate() {
                    *byte = u8::from_str_radix(&nonce[2 * at..2 * at + 2], 16).unwrap();
                }
                return tampered(&effect, Nonce(bytes), self.records);
            }
            Seen::Decided { name, decision } => match decision {
                Decided::Released { manifest } => {
                    self.decided.insert(*name, (*manifest, true));
                }
                Decided::Held(held) => self.learn(held.hold, *name, held.manifest, held.vouched),
                Decided::Refused | Decided::Failed => {
                    self.decided.remove(name);
                }
            },
            Seen::Recovered(recovered) => {
                self.deciding_again = false;
                for held in &recovered.held {
                    self.learn(held.hold, held.name, held.manifest, held.vouched);
                    if self.observed.contains(&held.name) {
                        return Err(format!("{} has happened and is held again", held.hold));
                    }
                }
            }
            Seen::Judging {
                manifest,
                release: true,
                ..
            } => {
                self.approved.insert(*manifest);
            }
            Seen::Judged {
                hold,
                manifest,
                accepted: true,
                ..
            } => {
                let meant = self.names.get(hold).and_then(|name| self.decided.get(name));
                if meant.is_none_or(|(decided, _)| decided != manifest) {
                    return Err(format!(
                        "an answer about another manifest was accepted for {hold}"
                    ));
                }
            }
            Seen::Observed(observed) => {
                let name = short(&observed.name);
                if !self.observed.insert(observed.name) {
                    return Err(format!("{name} happened twice"));
                }
                match self.decided.get(&observed.name) {
                    None => return Err(format!("{name} became observable and was not decided")),
                    // Policy vouches for it now.
                    Some(_) if self.deciding_again => {}
                    Some((manifest, _)) if *manifest != observed.manifest => {
                        return Err(format!(
                            "{name} became observable under another manifest than was decided"
                        ));
                    }
                    Some((manifest, vouched)) if !vouched && !self.approved.contains(manifest) => {
                        return Err(format!(
                            "{name} became observable and nobody had vouched for it"
                        ));
                    }
                    Some(_) => {}
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Changes one thing about an action: its digest has to be another.
fn tampered(effect: &Effect, nonce: Nonce, which: usize) -> Result<(), String> {
    let digest = |effect: &Effect, epoch: Digest, workspace: &str, nonce: Nonce| {
        Manifest {
            effect,
            epoch,
            workspace,
            task: Digest::default(),
            nonce,
        }
        .digest()
    };
    let epoch = Digest::default();
    let right = digest(effect, epoch, "w", nonce);
    let mut changed = effect.clone();
    let (what, wrong) = match which % 8 {
        0 => ("policy", digest(effect, Digest([1; 32]), "w", nonce)),
        1 => ("workspace", digest(effect, epoch, "v", nonce)),
        2 => ("nonce", digest(effect, epoch, "w", Nonce([7; 16]))),
        3 => {
            changed.payload.digest.0[31] ^= 1;
            ("content", digest(&changed, epoch, "w", nonce))
        }
        4 => {
            changed.base = match changed.base {
                None => Some(Digest::default()),
                Some(_) => None,
            };
            ("base", digest(&changed, epoch, "w", nonce))
        }
        5 => {
            match &mut changed.object {
                Object::Location { path, .. } | Object::Party { path, .. } => path.push('x'),
                Object::Tool { name } => name.push('x'),
            }
            ("object", digest(&changed, epoch, "w", nonce))
        }
        6 => {
            changed.fields.insert("serial".into(), "0".into());
            ("protected field", digest(&changed, epoch, "w", nonce))
        }
        _ => {
            changed.operation = Operation::Message;
            ("operation", digest(&changed, epoch, "w", nonce))
        }
    };
    if right == wrong {
        return Err(format!(
            "a permit is good for another {what} than it was made for"
        ));
    }
    Ok(())
}
