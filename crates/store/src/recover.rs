//! Folds a log back into the kernel's state, through the kernel's own [`kernel::step`], so that
//! every decision is derived again and compared with what was recorded.

use std::collections::{BTreeMap, BTreeSet};

use kernel::manifest::Nonce;
use kernel::planted::{self, Bug};
use kernel::policy::{Policy, Rules};
use kernel::scope::Hold;
use kernel::{
    Action, Content, Digest, EventId, HoldId, Incoming, Input, Level, Relabel, State, Verdict, step,
};

use crate::blobs::Blobs;
use crate::ledger::Ledger;
use crate::log::Entry;
use crate::record::{Parked, Record, WrittenLabel, leaves_read, read_channel, words};

/// The note with which another process goes on: what was cut off before it is held again.
pub const RESUMED: &str = "resumed";

/// What a log adds up to.
#[derive(Debug)]
pub struct Recovered {
    /// The kernel's state.
    pub state: State,
    /// Spent permits.
    pub ledger: Ledger,
    /// What channels parked for the holds that are open.
    pub parked: BTreeMap<HoldId, Parked>,
    /// Permits that were spent and of whose outcome nothing is known: it was cut off in between.
    pub unknown: Vec<EventId>,
    /// Holds that were refused or released but whose channel never said it was done with them.
    pub unfinished: Vec<EventId>,
    /// The next event's number.
    pub next_event: u64,
    /// Identity of the workspace.
    pub workspace: String,
    /// Records whose decision the policy at hand would not repeat, in words.
    pub differences: Vec<String>,
    /// Changes of labels that effects of this session made.
    pub relabelled: Vec<Relabel>,
    /// Contents that are not there any more; what derives from them is deferred.
    pub missing: u64,
    /// Whether one of them was sensitive: what carries it is not recognised any more.
    pub secrets_missing: bool,
}

/// Folds a log.
///
/// # Errors
/// A text that names the record that cannot be used.
pub fn recover(
    entries: &[Entry],
    blobs: &Blobs,
    policy: &Policy,
    rules: &dyn Rules,
) -> Result<Recovered, String> {
    let mut fold = Fold {
        recovers: true,
        ..Fold::default()
    };
    // Where the policy was replaced, manifests name the one that was in force then; what it said is
    // what the one at hand says.
    let mut policy = policy.clone();
    let replaced = |entry: &Entry| matches!(entry.record, Record::Policy { .. });
    let replaced = entries.iter().any(replaced);
    for entry in entries {
        if let Record::Header { epoch, .. } | Record::Policy { epoch, .. } = &entry.record
            && replaced
            && let Some(epoch) = Digest::from_hex(epoch)
        {
            policy.epoch = epoch;
        }
        let derived = fold
            .take(&entry.record, blobs, (&policy, rules), None)
            .map_err(|why| unusable(entry, &why))?;
        if let Some(derived) = derived {
            fold.agree(&entry.record, &derived, &policy, rules);
        }
        fold.settle(&entry.record, &policy, rules);
    }
    fold.cut_off(&policy);
    let unknown: Vec<EventId> = fold.spent.difference(&fold.done).copied().collect();
    let unfinished = fold.aborted.difference(&fold.done).copied().collect();
    fold.parked.retain(|hold, _| {
        fold.state.holds().find(*hold).is_some() || unknown.contains(&EventId(hold.0))
    });
    Ok(Recovered {
        state: fold.state,
        ledger: Ledger::recovered(fold.spent),
        parked: fold.parked,
        unknown,
        unfinished,
        next_event: fold.next_event,
        workspace: fold.workspace,
        differences: fold.differences,
        relabelled: fold.relabelled,
        missing: fold.missing,
        secrets_missing: fold.secrets_missing,
    })
}

pub(crate) fn unusable(entry: &Entry, why: &str) -> String {
    format!("record {} of the log cannot be used: {why}", entry.seq)
}

/// How the kernel decides a recorded proposal now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Derived {
    pub(crate) decision: &'static str,
    pub(crate) why: Vec<String>,
    pub(crate) manifest: Digest,
}

/// The state that records add up to, so far.
pub(crate) struct Fold {
    pub(crate) state: State,
    /// Contents that are not there any more.
    pub(crate) missing: u64,
    secrets_missing: bool,
    spent: BTreeSet<EventId>,
    done: BTreeSet<EventId>,
    aborted: BTreeSet<EventId>,
    parked: BTreeMap<HoldId, Parked>,
    next_event: u64,
    workspace: String,
    differences: Vec<String>,
    relabelled: Vec<Relabel>,
    /// Whether what the log says counts, whatever the policy at hand makes of it.
    recovers: bool,
    /// Holds whose end is not in the log so far, as they were held.
    unresolved: BTreeMap<HoldId, Hold>,
    /// What holds waited for that were carried out since.
    carried_out: BTreeMap<HoldId, Vec<HoldId>>,
    /// What the kernel said has to follow and was not recorded yet.
    due: BTreeSet<(EventId, Follows)>,
    /// What was recorded without the kernel having said so, or is missing, in words.
    pub(crate) mismatches: Vec<String>,
}

/// What follows from a decision: the log has to record each, and nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Follows {
    /// The permit is spent.
    Spent,
    /// The hold is discarded.
    Aborted,
}

impl Default for Fold {
    fn default() -> Self {
        Self {
            state: State::default(),
            missing: 0,
            secrets_missing: false,
            spent: BTreeSet::new(),
            done: BTreeSet::new(),
            aborted: BTreeSet::new(),
            parked: BTreeMap::new(),
            next_event: 1,
            workspace: String::new(),
            differences: Vec::new(),
            relabelled: Vec::new(),
            due: BTreeSet::new(),
            mismatches: Vec::new(),
            recovers: false,
            unresolved: BTreeMap::new(),
            carried_out: BTreeMap::new(),
        }
    }
}

impl Fold {
    /// Takes a record. `written_by` is the fold of the same log so far under the policy that wrote
    /// it, when this one has another: numbers of tokens and digests of manifests are its own.
    pub(crate) fn take(
        &mut self,
        record: &Record,
        blobs: &Blobs,
        (policy, rules): (&Policy, &dyn Rules),
        written_by: Option<&Self>,
    ) -> Result<Option<Derived>, String> {
        let hold = |text: &str| {
            text.parse::<HoldId>()
                .map_err(|()| format!("hold `{text}`"))
        };
        match record {
            Record::Header { workspace, .. } => self.workspace.clone_from(workspace),
            Record::Incoming {
                event,
                channel,
                source,
                digest,
                kept,
                leaves,
                answers,
                layer,
                bytes,
            } => {
                let digest =
                    Digest::from_hex(digest).ok_or_else(|| format!("digest `{digest}`"))?;
                // Content that is gone teaches nothing: what is then not derivable is deferred.
                let known = if *kept {
                    blobs.read(&digest).ok()
                } else {
                    None
                };
                if known.is_none() && *bytes > 0 {
                    self.missing += 1;
                    self.secrets_missing |=
                        self.state.sensitivity(policy, &source.into()) > Level::Public;
                }
                let bytes = known.unwrap_or_default();
                let incoming = Incoming {
                    channel: read_channel(channel)?,
                    source: source.into(),
                    content: Content {
                        bytes: bytes.into(),
                        digest,
                    },
                    leaves: leaves
                        .as_deref()
                        .and_then(Digest::from_hex)
                        .and_then(|digest| blobs.read(&digest).ok())
                        .map(|bytes| leaves_read(&bytes))
                        .unwrap_or_default(),
                    answers: answers.map(EventId),
                    layer: layer.map(HoldId),
                };
                self.step(
                    *event,
                    policy,
                    rules,
                    Input::Incoming {
                        event: EventId(*event),
                        incoming,
                    },
                );
            }
            Record::Proposed {
                event,
                effect,
                nonce,
                parked,
                decision,
                why,
                in_doubt,
                ..
            } => {
                if *event < self.next_event {
                    return Err(format!("event {event} comes after a later one"));
                }
                // What a guard refused left no trace in the state; the policy alone would not
                // refuse it again, and must not hold it now.
                if decision == "refuse" && why.iter().any(|why| why.starts_with("rule `guard ")) {
                    self.next_event = event.saturating_add(1);
                    return Ok(None);
                }
                let mut bytes = [0; 16];
                hex::decode_to_slice(nonce, &mut bytes).map_err(|_| format!("nonce `{nonce}`"))?;
                let mut effect = effect.read()?;
                if let Some(written_by) = written_by {
                    let theirs = written_by.state.provenance();
                    let ours = self.state.provenance();
                    effect.carries = ours.translated(&effect.carries, theirs);
                }
                let input = Input::Propose {
                    event: EventId(*event),
                    effect,
                    nonce: Nonce(bytes),
                    in_doubt: *in_doubt,
                };
                let actions = self.step(*event, policy, rules, input);
                let derived = self.derived(*event, actions.first());
                if derived.decision == "defer" {
                    self.parked.insert(HoldId(*event), parked.clone());
                }
                return Ok(Some(derived));
            }
            Record::Verdict {
                event,
                hold: name,
                manifest,
                verdict,
                oracle,
                reason,
            } => {
                let hold = hold(name)?;
                let mut manifest =
                    Digest::from_hex(manifest).ok_or_else(|| format!("digest `{manifest}`"))?;
                // What was answered for the hold as it was recorded is answered for it here.
                let theirs = written_by.and_then(|fold| fold.state.holds().find(hold));
                if let (Some(theirs), Some(ours)) = (theirs, self.state.holds().find(hold))
                    && theirs.manifest == manifest
                {
                    manifest = ours.manifest;
                }
                let input = Input::Verdict {
                    event: EventId(*event),
                    hold,
                    manifest,
                    verdict: if verdict == "release" {
                        Verdict::Release
                    } else {
                        Verdict::Refuse
                    },
                    oracle: oracle.clone(),
                    reason: reason.clone(),
                };
                self.step(*event, policy, rules, input);
            }
            Record::Withdrawn { event, hold: name } => {
                let input = Input::Withdraw {
                    event: EventId(*event),
                    hold: hold(name)?,
                };
                self.step(*event, policy, rules, input);
            }
            Record::Expired { event, hold: name } => {
                let input = Input::Expire {
                    event: EventId(*event),
                    hold: hold(name)?,
                };
                self.step(*event, policy, rules, input);
            }
            Record::Overdue { event, hold: name } => {
                let input = Input::Overdue {
                    event: EventId(*event),
                    hold: hold(name)?,
                };
                self.step(*event, policy, rules, input);
            }
            Record::Policy { event, .. } => {
                let input = Input::Reconsider {
                    event: EventId(*event),
                };
                self.step(*event, policy, rules, input);
            }
            Record::Labels { labels } => {
                let labels = labels
                    .iter()
                    .map(WrittenLabel::read)
                    .collect::<Result<Vec<_>, _>>()?;
                self.step(0, policy, rules, Input::Labels(labels));
            }
            Record::Relabelled { relabel, .. } => self.relabelled.push(relabel.read()?),
            Record::Spent { .. } if planted::is(Bug::SpentForgotten) => {}
            Record::Spent { event, .. } => {
                self.followed(EventId(*event), Follows::Spent);
                if let Some(held) = self.unresolved.remove(&HoldId(*event)) {
                    self.carried_out
                        .insert(HoldId(*event), held.question.depends);
                }
                self.spent.insert(EventId(*event));
            }
            Record::Aborted { event, .. } => {
                self.followed(EventId(*event), Follows::Aborted);
                self.unresolved.remove(&HoldId(*event));
                self.aborted.insert(EventId(*event));
            }
            Record::Done { event, .. } => {
                self.done.insert(EventId(*event));
            }
            Record::Note { what, .. } if what == RESUMED => self.cut_off(policy),
            Record::Told { .. } | Record::Note { .. } => {}
        }
        Ok(None)
    }

    /// Where the policy at hand decides otherwise than was recorded, what was recorded counts, and
    /// of the two the one that lets less through.
    fn agree(&mut self, record: &Record, now: &Derived, policy: &Policy, rules: &dyn Rules) {
        let Record::Proposed {
            event,
            decision,
            parked,
            ..
        } = record
        else {
            return;
        };
        let (event, hold) = (EventId(*event), HoldId(*event));
        if now.decision != decision {
            let now = now.decision;
            self.differences
                .push(format!("event {}: recorded {decision}, now {now}", event.0));
        }
        match (decision.as_str(), now.decision) {
            ("defer", "release") => {
                if let Some(input) = self.proposal(record) {
                    self.step(event.0, policy, rules, input);
                    self.parked.insert(hold, parked.clone());
                }
            }
            // Forbidden by now: its channel is told to drop it.
            ("defer", "refuse") => {
                self.aborted.insert(event);
                self.state.refused_before(hold);
            }
            ("release" | "refuse", "defer") => {
                self.step(event.0, policy, rules, Input::Withdraw { event, hold });
            }
            _ => {}
        }
    }

    /// The proposal of a record once more, to be held in any case.
    fn proposal(&self, record: &Record) -> Option<Input> {
        let Record::Proposed {
            event,
            effect,
            nonce,
            ..
        } = record
        else {
            return None;
        };
        let mut bytes = [0; 16];
        hex::decode_to_slice(nonce, &mut bytes).ok()?;
        Some(Input::Propose {
            event: EventId(*event),
            effect: effect.read().ok()?,
            nonce: Nonce(bytes),
            in_doubt: true,
        })
    }

    /// What the log says of a hold counts, whatever the policy at hand makes of it: released is
    /// what was spent, and nothing that was refused is held. A hold whose release was cut off
    /// before its permit was spent is held again.
    fn settle(&mut self, record: &Record, policy: &Policy, rules: &dyn Rules) {
        let (event, happened) = match record {
            Record::Spent { .. } if planted::is(Bug::SpentForgotten) => return,
            Record::Spent { event, .. } => (*event, true),
            Record::Aborted { event, .. } => (*event, false),
            // Its channel was told to drop it, because a policy since then forbids it.
            Record::Done { event, .. } if !self.spent.contains(&EventId(*event)) => (*event, false),
            _ => return,
        };
        let (event, hold) = (EventId(event), HoldId(event));
        if self.state.holds().find(hold).is_none() {
            return;
        }
        // With what was refused goes what depends on it, recorded or cut off before.
        let input = if happened {
            Input::Withdraw { event, hold }
        } else {
            Input::Expire { event, hold }
        };
        self.step(event.0, policy, rules, input);
        self.unresolved.remove(&hold);
    }

    /// Here the log went on, or ended, and does not say that what was released was carried out: the
    /// process was cut off, or another policy would release what this log's did not. It has not
    /// happened, and is held again.
    fn cut_off(&mut self, policy: &Policy) {
        for (event, what) in std::mem::take(&mut self.due) {
            let hold = HoldId(event.0);
            if what == Follows::Aborted || planted::is(Bug::CutOffForgotten) {
                continue;
            }
            if let Some(held) = self.unresolved.get(&hold) {
                let waiting = self.waiting_for(hold);
                self.state
                    .reopen(held.clone(), &waiting, policy, &self.workspace);
            }
        }
    }

    /// What waits for a hold: directly, or for something that was carried out before it, as it could
    /// be under the policy of then.
    fn waiting_for(&self, hold: HoldId) -> Vec<HoldId> {
        let mut reached = BTreeSet::from([hold]);
        // A hold waits for older ones only, so one pass from the oldest finds them all.
        for (name, on) in &self.carried_out {
            if on.iter().any(|on| reached.contains(on)) {
                reached.insert(*name);
            }
        }
        let waits = |held: &&Hold| held.question.depends.iter().any(|on| reached.contains(on));
        let waiting = self.unresolved.values().filter(waits);
        waiting.map(|held| held.question.hold).collect()
    }

    fn derived(&self, event: u64, action: Option<&Action>) -> Derived {
        match action {
            Some(Action::Release(permit)) => Derived {
                decision: "release",
                why: vec![permit.why().to_string()],
                manifest: permit.manifest(),
            },
            Some(Action::Refuse { refusal, .. }) => Derived {
                decision: "refuse",
                why: vec![refusal.to_string()],
                manifest: Digest::default(),
            },
            Some(Action::Hold(question)) => Derived {
                decision: "defer",
                why: words(&question.reasons),
                manifest: self
                    .state
                    .holds()
                    .find(HoldId(event))
                    .map(|held| held.manifest)
                    .unwrap_or_default(),
            },
            _ => Derived {
                decision: "refuse",
                why: vec!["the kernel did not answer".to_string()],
                manifest: Digest::default(),
            },
        }
    }

    /// The log says that something followed; the kernel has to have said so.
    fn followed(&mut self, event: EventId, what: Follows) {
        if !self.due.remove(&(event, what)) {
            let word = match what {
                Follows::Spent => "was carried out",
                Follows::Aborted => "was discarded",
            };
            self.mismatches.push(format!(
                "event {}: the log says that it {word}, and no decision says so",
                event.0
            ));
        }
    }

    /// What the decision before asked for has to be in the log by now. After the last one it may
    /// not be, when the session was cut off there.
    fn all_followed(&mut self) {
        for (event, what) in std::mem::take(&mut self.due) {
            self.mismatches.push(match what {
                Follows::Spent => format!(
                    "event {}: it was released, and the log does not say that it was carried out",
                    event.0
                ),
                Follows::Aborted => format!(
                    "event {}: it was refused, and the log does not say that it was discarded",
                    event.0
                ),
            });
        }
    }

    /// What the holds wait for that an input may resolve, as it is before that.
    fn remember(&mut self, input: &Input) {
        let holds = self.state.holds();
        for name in self.state.touched(input) {
            if let (Some(now), Some(then)) = (holds.find(name), self.unresolved.get_mut(&name)) {
                then.question.depends.clone_from(&now.question.depends);
            }
        }
    }

    fn step(
        &mut self,
        event: u64,
        policy: &Policy,
        rules: &dyn Rules,
        input: Input,
    ) -> Vec<Action> {
        self.next_event = self.next_event.max(event.saturating_add(1));
        if self.recovers {
            self.cut_off(policy);
        } else {
            self.all_followed();
        }
        self.remember(&input);
        let actions = step(&mut self.state, policy, rules, &self.workspace, input);
        for action in &actions {
            match action {
                Action::Hold(question) => {
                    if let Some(held) = self.state.holds().find(question.hold) {
                        self.unresolved.insert(question.hold, held.clone());
                    }
                }
                // Refused, and cut off before that was recorded: its channel has to drop it.
                Action::Abort { hold, .. } => {
                    self.aborted.insert(EventId(hold.0));
                }
                _ => {}
            }
            let due = match action {
                Action::Release(permit) | Action::Commit { permit, .. } => {
                    (permit.event(), Follows::Spent)
                }
                Action::Abort { hold, .. } => (EventId(hold.0), Follows::Aborted),
                _ => continue,
            };
            self.due.insert(due);
        }
        actions
    }
}
