//! I. Every effect that leaves passed the monitor: the agent proposed it, and the log had it before.

use std::collections::BTreeMap;

use crate::checkers::{Checker, LogView, short};
use crate::seen::{Name, Seen, wording};

/// Reads along.
#[derive(Debug, Default)]
pub struct Mediated {
    tried: BTreeMap<Name, String>,
}

impl Checker for Mediated {
    fn name(&self) -> &'static str {
        "I mediated"
    }

    fn see(&mut self, seen: &Seen, log: &LogView) -> Result<(), String> {
        match seen {
            Seen::Trying(trying) => {
                self.tried.insert(trying.name, wording(&trying.effect));
            }
            Seen::Observed(observed) => {
                let name = short(&observed.name);
                let Some(tried) = self.tried.get(&observed.name) else {
                    return Err(format!(
                        "{name} became observable and nobody had proposed it"
                    ));
                };
                if *tried != observed.done {
                    return Err(format!(
                        "`{}` became observable in place of `{tried}`",
                        observed.done
                    ));
                }
                match log.proposed.get(&observed.event.0) {
                    Some((_, effect)) if wording(effect) == observed.done => {}
                    Some((_, effect)) => {
                        return Err(format!(
                            "the log has `{}`, and `{}` became observable",
                            wording(effect),
                            observed.done
                        ));
                    }
                    None => return Err(format!("{name} became observable and is not in the log")),
                }
            }
            _ => {}
        }
        Ok(())
    }
}
