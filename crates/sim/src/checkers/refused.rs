//! III. What is refused is never observable, nor what builds on it; and nothing else goes with it. The dependencies are
//! worked out here once more, from what the agent did: what it must wait for, and the most that it may wait for.

use std::collections::{BTreeMap, BTreeSet};

use kernel::{Class, HoldId};

use crate::checkers::{Checker, LogView, short};
use crate::seen::{Decided, Name, Seen, Trying};

/// Reads along.
#[derive(Debug, Default)]
pub struct Refused {
    trying: Option<Trying>,
    holds: BTreeMap<HoldId, Known>,
    refused: BTreeSet<Name>,
    /// Holds that somebody refused, or let run out.
    causes: BTreeSet<HoldId>,
}

#[derive(Debug)]
struct Known {
    name: Name,
    open: bool,
    irreversible: bool,
    builds_on: BTreeSet<HoldId>,
    must: BTreeSet<HoldId>,
    may: BTreeSet<HoldId>,
}

impl Refused {
    fn open(&self) -> impl Iterator<Item = (&HoldId, &Known)> {
        self.holds.iter().filter(|(_, known)| known.open)
    }

    /// What an effect has to wait for, and what it may wait for.
    fn depends(&self, trying: &Trying) -> (BTreeSet<HoldId>, BTreeSet<HoldId>) {
        let irreversible = trying.effect.class != Class::Stageable;
        let built_on = |hold: &HoldId| trying.builds_on.contains(hold);
        let must = |(hold, known): &(&HoldId, &Known)| {
            built_on(hold) || (irreversible && trying.conservative && known.irreversible)
        };
        let may =
            |(hold, _): &(&HoldId, &Known)| built_on(hold) || (irreversible && trying.conservative);
        (
            self.open().filter(must).map(|(hold, _)| *hold).collect(),
            self.holds
                .iter()
                .filter(may)
                .map(|(hold, _)| *hold)
                .collect(),
        )
    }

    fn closure<'a>(
        &'a self,
        of: &BTreeSet<HoldId>,
        edges: impl Fn(&'a Known) -> &'a BTreeSet<HoldId>,
    ) -> BTreeSet<HoldId> {
        let mut found = of.clone();
        loop {
            let more: Vec<HoldId> = self
                .holds
                .iter()
                .filter(|(hold, known)| {
                    !found.contains(hold) && edges(known).iter().any(|on| found.contains(on))
                })
                .map(|(hold, _)| *hold)
                .collect();
            if more.is_empty() {
                return found;
            }
            found.extend(more);
        }
    }

    fn refuse(&mut self, hold: HoldId) {
        // Through what is open only: what the agent took back stands between nothing any more.
        let nothing = BTreeSet::new();
        let doomed = self.closure(&BTreeSet::from([hold]), |known| {
            if known.open { &known.must } else { &nothing }
        });
        for hold in doomed {
            if let Some(known) = self.holds.get_mut(&hold)
                && known.open
            {
                known.open = false;
                self.refused.insert(known.name);
            }
        }
    }
}

impl Checker for Refused {
    fn name(&self) -> &'static str {
        "III refused"
    }

    fn see(&mut self, seen: &Seen, _: &LogView) -> Result<(), String> {
        match seen {
            Seen::Trying(trying) => {
                // What was staged and then cut off is proposed again.
                self.trying = Some(trying.clone());
            }
            Seen::Decided { name, decision } => {
                let Some(trying) = self.trying.take().filter(|trying| trying.name == *name) else {
                    return Err(format!("{} was decided out of turn", short(name)));
                };
                let (must, may) = self.depends(&trying);
                match decision {
                    Decided::Refused => {
                        self.refused.insert(*name);
                    }
                    Decided::Failed => {}
                    Decided::Released { .. } => {
                        if let Some(on) = must.first() {
                            return Err(format!(
                                "{} was released at once, and {on} on which it builds is open",
                                short(name)
                            ));
                        }
                    }
                    Decided::Held(held) => {
                        let irreversible = trying.effect.class != Class::Stageable;
                        let known = Known {
                            name: *name,
                            open: true,
                            irreversible,
                            builds_on: must
                                .iter()
                                .filter(|on| trying.builds_on.contains(on))
                                .copied()
                                .collect(),
                            must,
                            may,
                        };
                        self.holds.insert(held.hold, known);
                    }
                }
            }
            Seen::Judging {
                hold,
                release: false,
                ..
            }
            | Seen::Expiring(hold) => {
                self.causes.insert(*hold);
            }
            Seen::OracleFailed(names) => {
                let failed = self
                    .holds
                    .iter()
                    .filter(|(_, known)| names.contains(&known.name));
                let failed: Vec<HoldId> = failed.map(|(hold, _)| *hold).collect();
                self.causes.extend(failed);
            }
            Seen::Judged {
                hold,
                release: false,
                accepted: true,
                ..
            } => self.refuse(*hold),
            Seen::Dropped(hold) => {
                let explained = self.closure(&self.causes, |known| &known.may);
                if self.holds.contains_key(hold) && !explained.contains(hold) {
                    return Err(format!(
                        "{hold} was aborted, and nothing that it may depend on was refused"
                    ));
                }
                self.refuse(*hold);
            }
            Seen::Policy => {
                // Read again from the log, holds may wait for more or for less than the policy in force then said; and
                // it may forbid any of them.
                let all: BTreeSet<HoldId> = self.holds.keys().copied().collect();
                for known in self.holds.values_mut() {
                    known.must = known.builds_on.clone();
                    known.may = all.clone();
                }
                let open: Vec<HoldId> = self.open().map(|(hold, _)| *hold).collect();
                self.causes.extend(open);
            }
            Seen::Holding(now) => {
                for (hold, known) in &mut self.holds {
                    known.open = now
                        .iter()
                        .any(|held| held.hold == *hold && held.name == known.name);
                }
                if let Some(held) = now.iter().find(|held| self.refused.contains(&held.name)) {
                    return Err(format!("{} had been refused and is held", held.hold));
                }
            }
            Seen::NotDone(name) => {
                for known in self.holds.values_mut().filter(|known| known.name == *name) {
                    known.open = false;
                }
            }
            Seen::Withdrawing(hold) => {
                if let Some(known) = self.holds.get_mut(hold) {
                    known.open = false;
                }
            }
            Seen::Observed(observed) => {
                let name = short(&observed.name);
                if self.refused.contains(&observed.name) {
                    return Err(format!("{name} became observable and had been refused"));
                }
                let hold = HoldId(observed.event.0);
                if let Some(known) = self
                    .holds
                    .get(&hold)
                    .filter(|known| known.name == observed.name)
                    && let Some(on) = known
                        .must
                        .iter()
                        .find(|on| self.holds.get(on).is_some_and(|known| known.open))
                {
                    return Err(format!(
                        "{name} became observable while {on}, on which it builds, is open"
                    ));
                }
                if let Some(known) = self.holds.get_mut(&hold) {
                    known.open = false;
                }
            }
            Seen::Recovered(recovered) => {
                let held: BTreeMap<HoldId, &_> = recovered
                    .held
                    .iter()
                    .map(|held| (held.hold, held))
                    .collect();
                for (hold, known) in &mut self.holds {
                    known.open = held.get(hold).is_some_and(|held| held.name == known.name);
                }
                // Numbers whose records were lost are given out again.
                self.causes
                    .retain(|hold| held.contains_key(hold) || self.holds.contains_key(hold));
                for held in recovered.held.iter() {
                    let same = self
                        .holds
                        .get(&held.hold)
                        .is_some_and(|known| known.name == held.name);
                    if !same {
                        // Held, and cut off before anybody heard of it.
                        let on: BTreeSet<HoldId> = held.depends.iter().copied().collect();
                        let known = Known {
                            name: held.name,
                            open: true,
                            irreversible: false,
                            builds_on: BTreeSet::new(),
                            must: BTreeSet::new(),
                            may: on,
                        };
                        self.holds.insert(held.hold, known);
                    }
                }
                if let Some(held) = recovered
                    .held
                    .iter()
                    .find(|held| self.refused.contains(&held.name))
                {
                    return Err(format!("{} had been refused and is held again", held.hold));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
