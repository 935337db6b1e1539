//! The one entry. An input goes in, actions come out; nothing else changes the state.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::decision::{Decision, Permit, Question, Reason, Refusal};
use crate::event::{Class, Digest, Effect, EventId, HoldId, Incoming};
use crate::manifest::{Manifest, Nonce};
use crate::notice::Notice;
use crate::policy::{Policy, Rules, Speculation};
use crate::provenance::Provenance;
use crate::scope::{Hold, Holds};

/// What can happen.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "an input is made, stepped on and dropped: one at a time, never stored"
)]
pub enum Input {
    /// Content reached the agent.
    Incoming {
        /// The event's number.
        event: EventId,
        /// What it was.
        incoming: Incoming,
    },
    /// The agent proposes an effect.
    Propose {
        /// The event's number; a hold gets the same number.
        event: EventId,
        /// The effect.
        effect: Effect,
        /// From a source of chance the agent cannot guess; also the mark of the stub.
        nonce: Nonce,
        /// Found undecided after a crash: held, whatever the policy would vouch for.
        in_doubt: bool,
    },
    /// An oracle decided a hold.
    Verdict {
        /// The event's number.
        event: EventId,
        /// Which hold.
        hold: HoldId,
        /// Digest of the manifest that the oracle saw; any other is void.
        manifest: Digest,
        /// What it said.
        verdict: Verdict,
        /// Which oracle: `ask`, `deny`, `command:…`, ...
        oracle: String,
        /// Why, in the oracle's words.
        reason: String,
    },
    /// The agent took back what was held (a staged file is as it was before).
    Withdraw {
        /// The event's number.
        event: EventId,
        /// Which hold.
        hold: HoldId,
    },
    /// A blocking hold cannot wait any longer and nobody decided it.
    Expire {
        /// The event's number.
        event: EventId,
        /// Which hold.
        hold: HoldId,
    },
}

/// An oracle's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Let it happen.
    Release,
    /// It must not happen.
    Refuse,
}

/// What has to be done, in this order, once the input is in the log.
#[derive(Debug)]
pub enum Action {
    /// The proposed effect may happen now.
    Release(Permit),
    /// The proposed effect must not happen.
    Refuse {
        /// The event.
        event: EventId,
        /// Why.
        refusal: Refusal,
        /// What to tell the agent.
        notice: Notice,
    },
    /// The proposed effect is held.
    Hold(Question),
    /// A held effect may happen now.
    Commit {
        /// Which.
        hold: HoldId,
        /// Leave for it.
        permit: Permit,
    },
    /// A held effect must not happen; staged state and parked bytes are discarded.
    Abort {
        /// Which.
        hold: HoldId,
        /// Why.
        refusal: Refusal,
        /// What to tell the agent.
        notice: Notice,
    },
    /// A hold is gone because the agent took it back.
    Withdrawn(HoldId),
    /// The input was not acted upon, and why (an unknown hold, a stale digest).
    Ignored(String),
}

/// Everything the kernel remembers of a session.
#[derive(Clone, Debug, Default)]
pub struct State {
    provenance: Provenance,
    holds: Holds,
}

impl State {
    /// What the agent could know, and from where.
    pub fn provenance(&self) -> &Provenance {
        &self.provenance
    }

    /// What is held.
    pub fn holds(&self) -> &Holds {
        &self.holds
    }
}

/// Decides one input. Total: every input has an answer, and a doubtful one is never a release.
pub fn step(
    state: &mut State,
    policy: &Policy,
    rules: &dyn Rules,
    workspace: &str,
    input: Input,
) -> Vec<Action> {
    match input {
        Input::Incoming { event, incoming } => {
            state.provenance.learn(policy, event, &incoming);
            Vec::new()
        }
        Input::Propose {
            event,
            effect,
            nonce,
            in_doubt,
        } => propose(
            state,
            policy,
            rules,
            workspace,
            (event, effect, nonce, in_doubt),
        ),
        Input::Verdict {
            hold,
            manifest,
            verdict,
            oracle,
            reason,
            ..
        } => match state.holds.find(hold) {
            None => ignored(hold, "there is no such hold, or it is resolved"),
            Some(held) if held.manifest != manifest => ignored(
                hold,
                "it changed after the oracle saw it; the answer is void",
            ),
            Some(held) if !held.question.needs_oracle && verdict == Verdict::Release => {
                ignored(hold, "it only waits for what it depends on")
            }
            Some(_) => match verdict {
                Verdict::Release => {
                    state.holds.endorse(hold, oracle, reason);
                    commit_ready(state)
                }
                Verdict::Refuse => abort(state, hold, Refusal::Oracle { oracle, reason }),
            },
        },
        Input::Withdraw { hold, .. } => match state.holds.remove(hold) {
            None => ignored(hold, "there is no such hold, or it is resolved"),
            Some(_) => {
                let mut actions = alloc::vec![Action::Withdrawn(hold)];
                actions.extend(commit_ready(state));
                actions
            }
        },
        Input::Expire { hold, .. } => match state.holds.find(hold) {
            None => ignored(hold, "there is no such hold, or it is resolved"),
            Some(held) => {
                let reasons = held.question.reasons.clone();
                abort(state, hold, Refusal::NobodyThere(reasons))
            }
        },
    }
}

fn propose(
    state: &mut State,
    policy: &Policy,
    rules: &dyn Rules,
    workspace: &str,
    (event, effect, nonce, in_doubt): (EventId, Effect, Nonce, bool),
) -> Vec<Action> {
    let depends = dependencies(state, policy, &effect);
    let manifest = Manifest {
        effect: &effect,
        epoch: policy.epoch,
        workspace,
        nonce,
    }
    .digest();
    let decision = match policy.decide(rules, &effect, &state.provenance, &depends) {
        Decision::Release(_) if in_doubt => Decision::Defer(alloc::vec![Reason::Recovered]),
        decision => decision,
    };
    match decision {
        Decision::Release(why) => {
            alloc::vec![Action::Release(Permit::new(
                event,
                manifest,
                why.to_string()
            ))]
        }
        Decision::Refuse(refusal) => {
            let notice = Notice::refused(event, &effect, &refusal);
            alloc::vec![Action::Refuse {
                event,
                refusal,
                notice
            }]
        }
        Decision::Defer(reasons) => {
            let needs_oracle = reasons
                .iter()
                .any(|reason| !matches!(reason, Reason::After(_)));
            let hold = HoldId(event.0);
            let question = Question {
                hold,
                reasons,
                depends,
                needs_oracle,
            };
            state.provenance.mark(hold, nonce.mark());
            state.holds.insert(Hold {
                question: question.clone(),
                effect,
                manifest,
                nonce,
                endorsed: None,
            });
            alloc::vec![Action::Hold(question)]
        }
    }
}

/// What an effect builds on: holds whose staged state or stub it saw, whose mark it carries, and,
/// when it is irreversible under conservative speculation, everything still open.
fn dependencies(state: &State, policy: &Policy, effect: &Effect) -> Vec<HoldId> {
    let irreversible = effect.class != Class::Stageable;
    if irreversible && policy.effect_is_internal(effect) {
        return Vec::new();
    }
    let mut depends: Vec<HoldId> = effect.saw.clone();
    depends.extend(effect.carries.marks());
    if irreversible && policy.speculation == Speculation::Conservative {
        depends.extend(
            state
                .holds
                .iter()
                .filter(|h| h.effect.class != Class::Stageable)
                .map(|h| h.question.hold),
        );
    }
    depends.retain(|hold| state.holds.find(*hold).is_some());
    depends.sort_unstable();
    depends.dedup();
    depends
}

/// Commits every hold that is endorsed, or vouched for, and waits for nothing any more.
fn commit_ready(state: &mut State) -> Vec<Action> {
    let mut actions = Vec::new();
    while let Some(hold) = state.holds.next_ready() {
        if let Some(held) = state.holds.remove(hold) {
            let why = match held.endorsed {
                Some((oracle, reason)) => alloc::format!("{oracle}: {reason}"),
                None => "policy, after what it waited for was released".to_string(),
            };
            let permit = Permit::new(EventId(hold.0), held.manifest, why);
            actions.push(Action::Commit { hold, permit });
        }
    }
    actions
}

/// Aborts a hold and everything that depends on it, then commits what waits for nothing any more.
fn abort(state: &mut State, hold: HoldId, refusal: Refusal) -> Vec<Action> {
    let mut actions = Vec::new();
    let mut reasons: BTreeMap<HoldId, Refusal> = BTreeMap::new();
    reasons.insert(hold, refusal);
    for doomed in state.holds.dependents(hold) {
        if let Some(held) = state.holds.remove(doomed) {
            let refusal = reasons.remove(&doomed).unwrap_or(Refusal::Depends(hold));
            let notice = Notice::refused(EventId(doomed.0), &held.effect, &refusal);
            actions.push(Action::Abort {
                hold: doomed,
                refusal,
                notice,
            });
        }
    }
    actions.extend(commit_ready(state));
    actions
}

fn ignored(hold: HoldId, why: &str) -> Vec<Action> {
    alloc::vec![Action::Ignored(alloc::format!("{hold}: {why}"))]
}
