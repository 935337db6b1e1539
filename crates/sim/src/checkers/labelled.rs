//! Labels stick for good only to places of effects that somebody let happen: what is refused or taken back leaves none.

use std::collections::BTreeSet;

use kernel::Place;

use crate::checkers::{Checker, LogView};
use crate::seen::{Decided, Name, Seen};

/// Reads along.
#[derive(Debug, Default)]
pub struct Labelled {
    places: Vec<(Name, Place)>,
    let_happen: BTreeSet<Name>,
    /// Another policy may have let any of them happen.
    policies: bool,
}

impl Checker for Labelled {
    fn name(&self) -> &'static str {
        "labels"
    }

    fn see(&mut self, seen: &Seen, _: &LogView) -> Result<(), String> {
        match seen {
            Seen::Trying(trying) => {
                if let Some(place) = Place::of(&trying.effect) {
                    self.places.push((trying.name, place));
                }
            }
            Seen::Decided {
                name,
                decision: Decided::Released { .. },
            }
            | Seen::Judging {
                name,
                release: true,
                ..
            } => {
                self.let_happen.insert(*name);
            }
            Seen::Decided {
                name,
                decision: Decided::Held(held),
            } if held.vouched => {
                self.let_happen.insert(*name);
            }
            Seen::Policy => self.policies = true,
            Seen::Observed(observed) => {
                self.let_happen.insert(observed.name);
            }
            Seen::Labels(places) if !self.policies => {
                for place in places {
                    let explained =
                        |(name, at): &(Name, Place)| at == place && self.let_happen.contains(name);
                    if !self.places.iter().any(explained) {
                        return Err(format!(
                            "a label sticks to `{}`, and nothing was let happen there",
                            place.path
                        ));
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}
