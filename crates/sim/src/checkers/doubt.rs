//! VI. In doubt, hold: a log that fails, an oracle that fails, no chance to be had, and what was found after a crash
//! never lead to a release.

use std::collections::BTreeSet;

use crate::checkers::{Checker, LogView, short};
use crate::seen::{Decided, Name, Seen};

/// Reads along.
#[derive(Debug, Default)]
pub struct Doubt {
    /// The number of records when the log failed.
    fault: Option<usize>,
    /// What was found after a crash: needs an oracle's release before it may be observed.
    doubtful: BTreeSet<Name>,
    /// What an oracle failed to judge: needs its release, or another policy's.
    unjudged: BTreeSet<Name>,
    no_chance: bool,
}

impl Checker for Doubt {
    fn name(&self) -> &'static str {
        "VI doubt"
    }

    fn see(&mut self, seen: &Seen, log: &LogView) -> Result<(), String> {
        match seen {
            Seen::LogFault => {
                self.fault.get_or_insert(log.records);
            }
            Seen::Survived(_) | Seen::Recovered(_) => self.fault = None,
            Seen::OracleFailed(names) => self.unjudged.extend(names),
            Seen::Policy => self.unjudged.clear(),
            Seen::Trying(trying) if trying.in_doubt => {
                self.doubtful.insert(trying.name);
            }
            Seen::ChanceFailed => self.no_chance = true,
            Seen::Decided { name, decision } => {
                let no_chance = std::mem::take(&mut self.no_chance);
                if no_chance && *decision != Decided::Failed {
                    return Err(format!(
                        "{} was decided without chance for its mark",
                        short(name)
                    ));
                }
                if matches!(decision, Decided::Released { .. }) && self.doubtful.contains(name) {
                    return Err(format!(
                        "{} was in doubt and was released at once",
                        short(name)
                    ));
                }
            }
            Seen::Judging {
                name,
                release: true,
                ..
            } => {
                self.doubtful.remove(name);
                self.unjudged.remove(name);
            }
            Seen::Observed(observed) => {
                let name = short(&observed.name);
                if self.doubtful.contains(&observed.name) {
                    return Err(format!(
                        "{name} was in doubt and became observable without an oracle's release"
                    ));
                }
                if self.unjudged.contains(&observed.name) {
                    return Err(format!(
                        "{name} became observable although its oracle had failed"
                    ));
                }
                let spent = log.spent.get(&observed.event.0).map(|(index, _)| *index);
                if let Some(records) = self.fault
                    && spent.is_none_or(|index| index >= records)
                {
                    return Err(format!("{name} became observable after the log had failed"));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
