//! The one entry. An input goes in, actions come out; nothing else changes the state.

use alloc::collections::BTreeSet;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::decision::{Decision, Limit, Permit, Question, Reason, Refusal};
use crate::event::{Class, Digest, Effect, EventId, HoldId, Incoming, Object, Source};
use crate::label::Level;
use crate::labels::{self, Label, Labels, Place, Relabel};
use crate::manifest::Nonce;
use crate::notice::Notice;
use crate::planted::{self, Bug};
use crate::policy::{Policy, Rules, Speculation, ToolEffect};
use crate::provenance::{Provenance, Values};
use crate::scope::{Hold, Holds, Waits};
use crate::value::KindSet;

/// What can happen.
#[derive(Clone, Debug)]
pub enum Input {
    /// Content reached the agent.
    Incoming {
        /// The event's number.
        event: EventId,
        /// What it was.
        incoming: Incoming,
    },
    /// The same, of a text whose values somebody has looked for already.
    Looked {
        /// The event's number.
        event: EventId,
        /// What it was.
        incoming: Incoming,
        /// The values of its text; looked for once more when they are not for everything that it is trusted for.
        values: Values,
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
    /// A hold was open for longer than the policy allows and is still not decided.
    Overdue {
        /// The event's number.
        event: EventId,
        /// Which hold.
        hold: HoldId,
    },
    /// Labels that stick to the workspace from before.
    Labels(Vec<(Place, Label)>),
    /// The policy was replaced: what is open is decided again, under the one at hand.
    Reconsider {
        /// The event's number.
        event: EventId,
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
    /// The effect released or committed with it changes a label, to be kept with the workspace
    /// before the effect happens.
    Label(Relabel),
    /// A limit is reached: these holds have to be resolved now, not at the end.
    Due {
        /// Which, oldest first.
        holds: Vec<HoldId>,
        /// Which limit.
        limit: Limit,
    },
    /// The input was not acted upon, and why (an unknown hold, a stale digest).
    Ignored(String),
}

/// Everything the kernel remembers of a session.
#[derive(Clone, Debug)]
pub struct State {
    provenance: Provenance,
    holds: Holds,
    labels: Labels,
    made_from: KindSet,
    task: Digest,
    /// Holds, and staged changes, that were refused: nothing that builds on one is released.
    refused: BTreeSet<HoldId>,
    /// Holds whose staged state was read inside.
    seen: BTreeSet<HoldId>,
    /// Places that the agent wrote in this session: its own words are trusted for nothing.
    written: BTreeSet<Place>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            provenance: Provenance::default(),
            holds: Holds::default(),
            labels: Labels::default(),
            made_from: KindSet::ALL,
            task: Digest::default(),
            refused: BTreeSet::new(),
            seen: BTreeSet::new(),
            written: BTreeSet::new(),
        }
    }
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

    /// Which labels stick to which places.
    pub fn labels(&self) -> &Labels {
        &self.labels
    }

    /// Level of what comes from a source: by the policy, and by what sticks to its place.
    pub fn sensitivity(&self, policy: &Policy, source: &Source) -> Level {
        policy.sensitivity(source).join(self.label_of(source).level)
    }

    /// Holds that an input may resolve, oldest first: the one it names with what depends on it, or
    /// all of them.
    pub fn touched(&self, input: &Input) -> Vec<HoldId> {
        match input {
            Input::Verdict { hold, .. }
            | Input::Withdraw { hold, .. }
            | Input::Expire { hold, .. }
            | Input::Overdue { hold, .. } => self.holds.dependents(*hold),
            Input::Reconsider { .. } => self.holds.iter().map(|held| held.question.hold).collect(),
            Input::Incoming { .. }
            | Input::Looked { .. }
            | Input::Propose { .. }
            | Input::Labels(_) => Vec::new(),
        }
    }

    fn label_of(&self, source: &Source) -> Label {
        match source {
            Source::Location { tree, path } => self.labels.of(tree, path),
            _ => Label::CLEAN,
        }
    }

    /// Takes over a label from before; the same as [`Input::Labels`].
    pub fn stick(&mut self, place: Place, label: Label) {
        self.labels.apply(&Relabel::Stick(place, label));
    }

    /// What the agent is told of a refusal; what carries nothing cannot name it either.
    fn notice(&self, event: EventId, effect: &Effect, refusal: &Refusal) -> Notice {
        if effect.carries.tokens().next().is_none() {
            return Notice::refused(event, effect, refusal);
        }
        let scanner = self.provenance.scanner();
        Notice::refused_unseen(event, effect, refusal, &scanner)
    }

    fn refuse(&self, event: EventId, effect: &Effect, refusal: Refusal) -> Vec<Action> {
        let notice = self.notice(event, effect, &refusal);
        alloc::vec![Action::Refuse {
            event,
            refusal,
            notice
        }]
    }

    /// A refused hold whose stub or staged state an effect was made from.
    fn builds_on_refused(&self, policy: &Policy, effect: &Effect) -> Option<HoldId> {
        if self.refused.is_empty() || policy.effect_is_internal(effect) {
            return None;
        }
        let marks = effect.carries.marks();
        let mut built_on = effect.saw.iter().copied().chain(marks);
        built_on.find(|hold| self.refused.contains(hold))
    }

    /// Takes note that a hold was refused before, by another process: nothing that builds on it is
    /// released.
    pub fn refused_before(&mut self, hold: HoldId) {
        self.refused.insert(hold);
    }

    /// Puts back a hold that was resolved and whose release was cut off before its permit was
    /// spent: it is held again, for an oracle, whoever vouched for it before, and these wait for it.
    pub fn reopen(&mut self, mut held: Hold, waiting: &[HoldId], policy: &Policy, workspace: &str) {
        held.endorsed = None;
        held.question.needs_oracle = true;
        if !held.question.reasons.contains(&Reason::Recovered) {
            held.question.reasons.push(Reason::Recovered);
        }
        let open = |on: &HoldId| self.holds.find(*on).is_some();
        held.question.depends.retain(open);
        held.manifest = held.digest(policy, workspace);
        let level = self.provenance.level_of(&held.effect.carries);
        if let Some(relabel) = labels::relabel(&held.effect, self.made_from, level) {
            self.labels.hold(held.question.hold, relabel);
        }
        let on = held.question.hold;
        self.holds.insert(held);
        for name in waiting {
            self.holds.wait(*name, on);
        }
    }

    /// The kinds that everything read so far was trusted for: integrity of what the agent makes.
    pub fn made_from(&self) -> KindSet {
        self.made_from
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
            learn(state, policy, event, &incoming, None);
            Vec::new()
        }
        Input::Looked {
            event,
            incoming,
            values,
        } => {
            learn(state, policy, event, &incoming, Some(&values));
            Vec::new()
        }
        Input::Propose {
            event,
            effect,
            nonce,
            in_doubt,
        } => {
            let proposal = Proposal {
                event,
                effect,
                nonce,
                in_doubt,
            };
            propose(state, policy, rules, workspace, proposal)
        }
        Input::Verdict {
            hold,
            manifest,
            verdict,
            oracle,
            reason,
            ..
        } => match state.holds.find(hold) {
            None => ignored(hold, UNKNOWN),
            Some(held) if held.manifest != manifest && !planted::is(Bug::StaleCounts) => ignored(
                hold,
                "it changed after the oracle saw it; the answer is void",
            ),
            // An approval is good for one policy and one workspace.
            Some(held)
                if verdict == Verdict::Release
                    && manifest != held.digest(policy, workspace)
                    && !planted::is(Bug::StaleCounts) =>
            {
                ignored(
                    hold,
                    "it was held under another policy or in another workspace; the answer is void",
                )
            }
            Some(held) if !held.question.needs_oracle && verdict == Verdict::Release => ignored(
                hold,
                "it only waits for what it depends on; decide that, and it follows",
            ),
            Some(_) => match verdict {
                Verdict::Release => {
                    if let Some(held) = state.holds.find_mut(hold) {
                        held.endorsed = Some((oracle, reason));
                    }
                    commit_ready(state, [hold])
                }
                Verdict::Refuse if planted::is(Bug::RefusalCommits) => carry_out(state, hold),
                Verdict::Refuse => abort(state, hold, Refusal::Oracle { oracle, reason }),
            },
        },
        Input::Withdraw { hold, .. } => {
            let waiting = state.holds.waiting_for(hold);
            match state.holds.withdraw(hold) {
                None => ignored(hold, UNKNOWN),
                Some(_) => {
                    state.labels.discard(hold);
                    let mut actions = alloc::vec![Action::Withdrawn(hold)];
                    actions.extend(commit_ready(state, waiting));
                    actions
                }
            }
        }
        Input::Expire { hold, .. } => match state.holds.find(hold) {
            None => ignored(hold, UNKNOWN),
            Some(_) if planted::is(Bug::ExpiryCommits) => carry_out(state, hold),
            Some(held) => {
                let reasons = held.question.reasons.clone();
                abort(state, hold, Refusal::NobodyThere(reasons))
            }
        },
        Input::Overdue { hold, .. } => match state.holds.find(hold) {
            None => ignored(hold, UNKNOWN),
            Some(_) => abort(state, hold, Refusal::Limit(Limit::Age)),
        },
        Input::Labels(labels) => {
            for (place, label) in labels {
                state.stick(place, label);
            }
            Vec::new()
        }
        Input::Reconsider { .. } => reconsider(state, policy, rules, workspace),
    }
}

const UNKNOWN: &str = "there is no such hold, or it is resolved";

/// Content reached the agent: what its source is trusted for, and what sticks to its place, say
/// what it adds to what is known.
fn learn(
    state: &mut State,
    policy: &Policy,
    event: EventId,
    incoming: &Incoming,
    values: Option<&Values>,
) {
    if let Some(layer) = incoming.layer {
        // The agent's own words, which it was told nothing new by.
        let holds = &state.holds;
        state.seen.retain(|seen| holds.find(*seen).is_some());
        state.seen.insert(layer);
        return;
    }
    let label = state.label_of(&incoming.source);
    let own_words = Place::at(&incoming.source).is_some_and(|at| state.written.contains(&at));
    let kinds = if own_words {
        KindSet::NONE
    } else {
        policy
            .trusted_kinds(&incoming.source)
            .intersection(label.trusted)
    };
    let level = state.sensitivity(policy, &incoming.source);
    if incoming.source == Source::Task {
        let mut both = [0; 64];
        let (before, words) = both.split_at_mut(32);
        before.copy_from_slice(&state.task.0);
        words.copy_from_slice(&incoming.content.digest.0);
        state.task = Digest::of(&both);
    }
    // What a model says is made from what it was shown, and what the agent wrote from what it had
    // read: that was counted then.
    if !own_words && !matches!(incoming.source, Source::Model(_)) {
        state.made_from = state.made_from.intersection(kinds);
    }
    state
        .provenance
        .learn(policy, (kinds, level), event, incoming, values);
}

struct Proposal {
    event: EventId,
    effect: Effect,
    nonce: Nonce,
    in_doubt: bool,
}

fn propose(
    state: &mut State,
    policy: &Policy,
    rules: &dyn Rules,
    workspace: &str,
    proposal: Proposal,
) -> Vec<Action> {
    let Proposal {
        event,
        effect,
        nonce,
        in_doubt,
    } = proposal;
    let depends = dependencies(state, policy, &effect);
    if let Some(hold) = state.builds_on_refused(policy, &effect) {
        return state.refuse(event, &effect, Refusal::Depends(hold));
    }
    let mut held = Hold {
        question: Question {
            hold: HoldId(event.0),
            reasons: Vec::new(),
            depends,
            needs_oracle: true,
        },
        effect,
        manifest: Digest::default(),
        nonce,
        task: state.task,
        endorsed: None,
        waits: Waits::Nothing,
    };
    held.manifest = held.digest(policy, workspace);
    let depends = &held.question.depends;
    state.provenance.called(policy, event, &held.effect);
    let in_doubt = in_doubt && !planted::is(Bug::DoubtForgotten);
    let decision = policy.decide(rules, &held.effect, &state.provenance, depends);
    let decision = match decision.bound(policy.unbound) {
        Decision::Release(_) if in_doubt => Decision::Defer(alloc::vec![Reason::Recovered]),
        Decision::Defer(mut reasons) => match full(state, policy, 1, held.effect.payload.bytes) {
            Some(limit) => Decision::Refuse(Refusal::Limit(limit)),
            None => {
                // That policy would vouch for it after what it waits for is not enough either.
                if in_doubt {
                    reasons.push(Reason::Recovered);
                }
                Decision::Defer(reasons)
            }
        },
        decision => decision,
    };
    let level = state.provenance.level_of(&held.effect.carries);
    let relabel = labels::relabel(&held.effect, state.made_from, level)
        .map(|relabel| state.labels.merged(relabel));
    if !matches!(decision, Decision::Refuse(_))
        && let Some(Relabel::Stick(place, _)) = &relabel
    {
        state.written.insert(place.clone());
    }
    match decision {
        Decision::Release(why) => {
            state.provenance.carried_out(event);
            let mut actions = alloc::vec![Action::Release(Permit::new(event, held.manifest, why))];
            if let Some(relabel) = relabel {
                state.labels.apply(&relabel);
                actions.push(Action::Label(relabel));
            }
            actions
        }
        Decision::Refuse(refusal) => {
            if held.effect.class == Class::Stageable {
                // It was staged, and something may have been made from it.
                state.refused.insert(HoldId(event.0));
            }
            state.refuse(event, &held.effect, refusal)
        }
        Decision::Defer(reasons) => {
            held.question.needs_oracle = need_oracle(&reasons);
            held.question.reasons = reasons;
            held.waits = waits(policy, &held.effect);
            let question = held.question.clone();
            state.provenance.mark(question.hold, nonce.mark());
            if let Some(relabel) = relabel {
                state.labels.hold(question.hold, relabel);
            }
            state.holds.insert(held);
            let mut actions = alloc::vec![Action::Hold(question)];
            if let Some(limit) = full(state, policy, 1, 1) {
                let holds = state.holds.iter().map(|held| held.question.hold).collect();
                actions.push(Action::Due { holds, limit });
            }
            actions
        }
    }
}

/// Whether more would be held than the policy allows, with so many holds and bytes besides.
fn full(state: &State, policy: &Policy, holds: u64, bytes: u64) -> Option<Limit> {
    let limits = &policy.limits;
    if (state.holds.len() as u64).saturating_add(holds) > limits.holds_max {
        Some(Limit::Holds)
    } else if state.holds.bytes().saturating_add(bytes) > limits.bytes_max {
        Some(Limit::Bytes)
    } else {
        None
    }
}

fn need_oracle(reasons: &[Reason]) -> bool {
    reasons
        .iter()
        .any(|reason| !matches!(reason, Reason::After(_)))
}

/// Another policy: it may forbid what is held, vouch for it, or ask again. No approval given
/// under the old one counts.
fn reconsider(
    state: &mut State,
    policy: &Policy,
    rules: &dyn Rules,
    workspace: &str,
) -> Vec<Action> {
    let mut actions = Vec::new();
    let open: Vec<HoldId> = state.holds.iter().map(|held| held.question.hold).collect();
    for hold in open {
        let Some(held) = state.holds.find(hold) else {
            continue;
        };
        let waits: Vec<HoldId> = held
            .question
            .depends
            .iter()
            .copied()
            .filter(|on| state.holds.find(*on).is_some())
            .collect();
        let in_doubt = held.question.reasons.contains(&Reason::Recovered);
        let mut reasons = match policy.decide(rules, &held.effect, &state.provenance, &waits) {
            Decision::Refuse(refusal) => {
                actions.extend(abort(state, hold, refusal));
                continue;
            }
            Decision::Release(_) => Vec::new(),
            Decision::Defer(reasons) => reasons,
        };
        if in_doubt {
            reasons.push(Reason::Recovered);
        }
        if let Some(held) = state.holds.find_mut(hold) {
            held.question.needs_oracle = need_oracle(&reasons);
            held.question.reasons = reasons;
            held.endorsed = None;
            held.manifest = held.digest(policy, workspace);
        }
    }
    let open: Vec<HoldId> = state.holds.iter().map(|held| held.question.hold).collect();
    actions.extend(commit_ready(state, open));
    actions
}

/// What an effect builds on: holds whose staged state or stub it saw, whose mark it carries, and,
/// under conservative speculation, what it waits for by coming later.
fn dependencies(state: &State, policy: &Policy, effect: &Effect) -> Vec<HoldId> {
    if state.holds.is_empty() || policy.effect_is_internal(effect) {
        return Vec::new();
    }
    let mut depends: Vec<HoldId> = effect.saw.clone();
    if !planted::is(Bug::MarksForgotten) {
        depends.extend(effect.carries.marks());
    }
    depends.extend(state.holds.before(waits(policy, effect)));
    if effect.class != Class::Stageable && reach(policy, effect) == Waits::Everything {
        // Who inside acts is not known; somebody who has read this may.
        depends.extend(state.seen.iter().copied());
    }
    depends.retain(|hold| state.holds.find(*hold).is_some());
    depends.sort_unstable();
    depends.dedup();
    depends
}

/// What an effect waits for by coming later: what changes something out there for every hold, what
/// only asks for held requests and calls.
fn waits(policy: &Policy, effect: &Effect) -> Waits {
    match policy.speculation {
        Speculation::Matched => Waits::Nothing,
        Speculation::Conservative => reach(policy, effect),
    }
}

/// Which holds an effect could make matter out there.
fn reach(policy: &Policy, effect: &Effect) -> Waits {
    if effect.class == Class::Stageable {
        return Waits::Nothing;
    }
    let tool = match &effect.object {
        Object::Tool { name } => policy.tool(name).map(|rule| rule.effect),
        _ => None,
    };
    match tool {
        Some(ToolEffect::Read) => Waits::Nothing,
        Some(ToolEffect::Fetch) => Waits::Calls,
        Some(ToolEffect::Act) => Waits::Everything,
        None if effect.operation.reads_only() => Waits::Calls,
        None => Waits::Everything,
    }
}

/// Commits those of the holds that are decided and wait for nothing any more, and then what waited
/// for them, oldest first.
fn commit_ready(state: &mut State, holds: impl IntoIterator<Item = HoldId>) -> Vec<Action> {
    let mut actions = Vec::new();
    let mut ahead: BTreeSet<HoldId> = holds.into_iter().collect();
    while let Some(hold) = ahead.pop_first() {
        if !state.holds.is_ready(hold) && !planted::is(Bug::ReadyEarly) {
            continue;
        }
        ahead.extend(state.holds.waiting_for(hold));
        if let Some(held) = state.holds.remove(hold) {
            let why = match held.endorsed {
                Some((oracle, reason)) => alloc::format!("{oracle}: {reason}"),
                None => "policy, after what it waited for was released".to_string(),
            };
            let permit = Permit::new(EventId(hold.0), held.manifest, why);
            actions.extend(state.labels.commit(hold).map(Action::Label));
            state.provenance.carried_out(EventId(hold.0));
            actions.push(Action::Commit { hold, permit });
        }
    }
    actions
}

/// Aborts a hold and everything that depends on it, and nothing else. What is left depended on
/// none of them, so nothing becomes ready by this.
fn abort(state: &mut State, hold: HoldId, refusal: Refusal) -> Vec<Action> {
    let mut own = Some(refusal);
    let mut actions = Vec::new();
    let doomed = if planted::is(Bug::AbortsAlone) {
        alloc::vec![hold]
    } else if planted::is(Bug::AbortsAll) {
        state.holds.iter().map(|held| held.question.hold).collect()
    } else {
        state.holds.dependents(hold)
    };
    for doomed in doomed {
        if let Some(held) = state.holds.remove(doomed) {
            state.labels.discard(doomed);
            state.refused.insert(doomed);
            // Dependents are younger, so the first one is the hold itself.
            let refusal = own.take().unwrap_or(Refusal::Depends(hold));
            let notice = state.notice(EventId(doomed.0), &held.effect, &refusal);
            actions.push(Action::Abort {
                hold: doomed,
                refusal,
                notice,
            });
        }
    }
    actions
}

/// What two planted bugs do with a hold that must not happen.
fn carry_out(state: &mut State, hold: HoldId) -> Vec<Action> {
    if let Some(held) = state.holds.find_mut(hold) {
        held.question.needs_oracle = false;
    }
    commit_ready(state, [hold])
}

fn ignored(hold: HoldId, why: &str) -> Vec<Action> {
    alloc::vec![Action::Ignored(alloc::format!("{hold}: {why}"))]
}
