//! II. Nothing is irreversible before its release: its permit was spent in the log first, durably unless it can be
//! undone or changes nothing.

use crate::checkers::{Checker, LogView, short};
use crate::seen::Seen;

/// Reads along.
#[derive(Debug)]
pub struct Released;

impl Checker for Released {
    fn name(&self) -> &'static str {
        "II released"
    }

    fn see(&mut self, seen: &Seen, log: &LogView) -> Result<(), String> {
        let Seen::Observed(observed) = seen else {
            return Ok(());
        };
        let name = short(&observed.name);
        match log.spent.get(&observed.event.0) {
            None => Err(format!(
                "{name} became observable before its permit was spent"
            )),
            Some((_, manifest)) if *manifest != observed.manifest.hex() => Err(format!(
                "{name} became observable under another manifest than was spent"
            )),
            Some((index, _)) if !observed.harmless && *index >= log.durable => Err(format!(
                "{name} became observable and a power cut could still undo that its permit is spent"
            )),
            Some(_) => Ok(()),
        }
    }
}
