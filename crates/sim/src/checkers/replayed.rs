//! The log alone says what happened: folded by the policy it was written under, every decision is derived again, and
//! what is held is what was held.

use crate::checkers::{Checker, LogView};
use crate::seen::{HeldNow, Seen};

/// Reads along.
#[derive(Debug, Default)]
pub struct Replayed {
    held: Option<Vec<HeldNow>>,
}

impl Checker for Replayed {
    fn name(&self) -> &'static str {
        "replayed"
    }

    fn see(&mut self, seen: &Seen, _: &LogView) -> Result<(), String> {
        match seen {
            Seen::Holding(held) => self.held = Some(held.clone()),
            // What is read when it stops counts only if nothing came after.
            Seen::Stopping | Seen::Synced => {}
            Seen::Replayed { held, differences } => {
                if let Some(difference) = differences.first() {
                    return Err(format!("replayed, {difference}"));
                }
                if let Some(before) = self.held.take()
                    && before != *held
                {
                    return Err(format!("held: {before:?}\nreplayed: {held:?}"));
                }
            }
            Seen::Recovered(recovered) => {
                self.held = None;
                if let Some(difference) = recovered.differences.first() {
                    return Err(format!("recovered, {difference}"));
                }
            }
            _ => self.held = None,
        }
        Ok(())
    }
}
