//! One effect's whole life, top to bottom: proposed, decided, recorded, and then released,
//! refused or held; a held one is decided again when a verdict comes, by the same kernel and
//! through the same log. There is no second path.

use std::sync::MutexGuard;

use kernel::manifest::Nonce;
use kernel::planted::{self, Bug};
use kernel::provenance::Values;
use kernel::{
    Action, Class, Digest, Effect, EventId, HoldId, Incoming, Input, Level, Notice, Policy,
    Refusal, Source, Verdict, step,
};
use store::record::leaves_written;
use store::{Due, Lease, Parked, Record};

use crate::ports::Happening;
use crate::session::{Core, Held, Outcome, Session};

/// Content larger than this is recorded by digest only.
const KEPT_BYTES_MAX: usize = 1 << 20;

pub(crate) fn incoming(session: &Session, incoming: Incoming) -> EventId {
    taken_in(session, incoming, false).1
}

/// Content reached the agent, and with it ended the effect whose answer it is.
pub(crate) fn answered(
    session: &Session,
    incoming: Incoming,
    event: EventId,
    result: Result<String, String>,
) {
    let (mut core, _) = taken_in(session, incoming, true);
    ended(&mut core, event, result);
    let due = core.log.hand_over();
    drop(core);
    // What cannot be recorded has happened all the same; nothing is released from then on.
    let _ = write(session, due);
}

/// Writes records while others decide already.
fn write(session: &Session, due: Due) -> Result<(), String> {
    due.write().map_err(|error| {
        let why = error.to_string();
        session.core().failed.get_or_insert_with(|| why.clone());
        why
    })
}

/// Records content and learns from it. When the log gathers, whoever asked for that writes it out.
fn taken_in(
    session: &Session,
    incoming: Incoming,
    gather: bool,
) -> (MutexGuard<'_, Core>, EventId) {
    let bytes = incoming.content.bytes.len();
    // Evidence need not survive a power cut, but what is secret does: without it, another process
    // would let it out.
    let policy = session.policy();
    let level = match &incoming.source {
        // Labels stick to places only.
        Source::Location { .. } => session.core().state.sensitivity(&policy, &incoming.source),
        source => policy.sensitivity(source),
    };
    let keep = |bytes: &[u8]| {
        let kept = if level > Level::Public {
            session.blobs().put(bytes)
        } else {
            session.blobs().put_soon(bytes)
        };
        kept.is_ok()
    };
    let kept = bytes > 0 && bytes <= KEPT_BYTES_MAX && keep(&incoming.content.bytes);
    let leaves = (!incoming.leaves.is_empty())
        .then(|| leaves_written(&incoming.leaves))
        .filter(|written| kept && keep(written))
        .map(|written| Digest::of(&written).hex());
    let rules = session.rules();
    let values = values_of(&policy, level, &incoming);
    let mut record = Record::Incoming {
        event: 0,
        channel: incoming.channel.name().to_string(),
        source: (&incoming.source).into(),
        digest: incoming.content.digest.hex(),
        bytes: bytes as u64,
        kept,
        leaves,
        answers: incoming.answers.map(|event| event.0),
        layer: incoming.layer.map(|hold| hold.0),
    };

    // Whatever can be done before is: others wait for the lock.
    let mut core = session.core();
    if matches!(incoming.source, Source::Location { .. }) {
        core.news();
    }
    if gather {
        core.log.gather();
    }
    let event = core.next_event();
    if let Record::Incoming { event: number, .. } = &mut record {
        *number = event.0;
    }
    // When it cannot be recorded the log has failed, and nothing is released from then on.
    let _ = core.append(&record);
    if incoming.source == Source::Task {
        core.task
            .push(String::from_utf8_lossy(&incoming.content.bytes).into_owned());
    }
    core.tell(match incoming.layer {
        Some(hold) => format!("{} in: {} as {hold} has it", event.0, incoming.source),
        None => format!("{} in: {} ({bytes} bytes)", event.0, incoming.source),
    });
    let known = core.state.provenance().sensitive_tokens();
    let input = match values {
        Some(values) => Input::Looked {
            event,
            incoming,
            values,
        },
        None => Input::Incoming { event, incoming },
    };
    step(
        &mut core.state,
        &policy,
        &*rules,
        session.workspace(),
        input,
    );
    session.knows_more(&core, known);
    (core, event)
}

/// The values of public text; only in fields of their own some may be secret.
fn values_of(policy: &Policy, level: Level, incoming: &Incoming) -> Option<Values> {
    if level > Level::Public || incoming.layer.is_some() || !incoming.leaves.is_empty() {
        return None;
    }
    let text = std::str::from_utf8(&incoming.content.bytes).ok()?;
    Some(Values::of(policy.trusted_kinds(&incoming.source), text))
}

pub(crate) fn propose(
    session: &Session,
    effect: Effect,
    parked: Parked,
    in_doubt: bool,
    on_hold: &mut dyn FnMut(&Held),
) -> Outcome {
    let policy = session.policy();
    let rules = session.rules();
    let nonce = session.nonce();
    // Whatever can be done before is: others wait for the lock.
    let written = store::record::WrittenEffect::from(&effect);
    let proposed = effect.clone();
    let mut core = session.core();
    let known = core.state.provenance().sensitive_tokens();
    let event = core.next_event();
    if let Some(why) = &core.failed {
        return failed(why, event, &effect);
    }
    let nonce = match nonce {
        Ok(nonce) => nonce,
        Err(_) if planted::is(Bug::NonceZero) => Nonce([0; 16]),
        Err(why) => return failed(&why, event, &effect),
    };

    // Decide. A hold that the log then cannot record must not be seen: it is taken back.
    let take_back = |core: &mut Core| {
        let input = Input::Withdraw {
            event,
            hold: HoldId(event.0),
        };
        step(
            &mut core.state,
            &policy,
            &*rules,
            session.workspace(),
            input,
        );
    };
    let in_doubt = in_doubt || core.forgetful;
    let input = Input::Propose {
        event,
        effect: proposed,
        nonce,
        in_doubt,
    };
    let actions = step(
        &mut core.state,
        &policy,
        &*rules,
        session.workspace(),
        input,
    );
    let mut actions = actions.into_iter();
    let Some(action) = actions.next() else {
        return failed("the kernel did not answer", event, &effect);
    };
    let mut due = None;
    let mut relabel = None;
    for more in actions {
        match more {
            Action::Label(change) => relabel = Some(change),
            Action::Due { holds, limit } => due = Some((holds, limit)),
            _ => {}
        }
    }

    // Record. Nothing acts before this.
    let manifest = match &action {
        Action::Release(permit) => permit.manifest(),
        _ => core
            .state
            .holds()
            .find(HoldId(event.0))
            .map(|h| h.manifest)
            .unwrap_or_default(),
    };
    let (decision, why) = match &action {
        Action::Release(permit) => ("release", vec![permit.why().to_string()]),
        Action::Hold(question) => ("defer", store::record::words(&question.reasons)),
        Action::Refuse { refusal, .. } => ("refuse", vec![refusal.to_string()]),
        _ => ("refuse", Vec::new()),
    };
    let record = Record::Proposed {
        event: event.0,
        effect: written,
        nonce: nonce.hex(),
        parked: parked.clone(),
        decision: decision.to_string(),
        why,
        manifest: manifest.hex(),
        in_doubt,
        origins: match &action {
            Action::Hold(question) => store::record::origins(&question.reasons),
            _ => Vec::new(),
        },
    };
    let mut record = record;
    if planted::is(Bug::ProposalMisrecorded)
        && let Record::Proposed { effect, .. } = &mut record
    {
        effect.operation = "message".to_string();
    }
    let unrecorded = planted::is(Bug::ProposalUnrecorded) && decision == "release";
    // A decision and the permit that it spends are one write.
    let releases = matches!(action, Action::Release(_)) && relabel.is_none();
    if releases {
        core.log.gather();
    }
    if !unrecorded && let Err(error) = core.append(&record) {
        take_back(&mut core);
        return failed(&error.to_string(), event, &effect);
    }
    if let Some(relabel) = &relabel
        && let Err(why) = core.relabel(event, relabel)
    {
        return failed(&why, event, &effect);
    }
    core.tell(format!(
        "{} out: {} {}: {decision}",
        event.0,
        effect.operation.name(),
        effect.object
    ));

    // Act.
    match action {
        Action::Release(permit) => {
            let Core { ledger, log, .. } = &mut *core;
            // A file change can be undone, so one sync a batch is enough: the channel's. What
            // only asks changes nothing that a lost record would hide.
            let only_asks = effect.operation.reads_only() || planted::is(Bug::PostOnlyAsks);
            let spent = if effect.class == Class::Stageable || only_asks {
                ledger.spend_soon(log, permit)
            } else {
                ledger.spend(log, permit)
            };
            let spent = spent.map(|lease| (lease, log.hand_over()));
            match spent {
                Ok((lease, due)) => {
                    drop(core);
                    if let Err(why) = write(session, due) {
                        return failed(&why, event, &effect);
                    }
                    session.tell(|| Happening::Released { event, effect });
                    Outcome::Released(lease)
                }
                Err(error) => {
                    core.failed.get_or_insert_with(|| error.to_string());
                    core.write_out();
                    failed(&error.to_string(), event, &effect)
                }
            }
        }
        Action::Hold(question) => {
            // A hold has to survive this process.
            if !planted::is(Bug::HoldSoon)
                && let Err(error) = core.log.sync()
            {
                core.failed.get_or_insert_with(|| error.to_string());
                take_back(&mut core);
                return failed(&error.to_string(), event, &effect);
            }
            core.parked.insert(question.hold, parked);
            core.opened_ms.insert(question.hold, session.now_ms());
            session.knows_more(&core, known);
            let Some(held) = core.state.holds().find(question.hold).map(|h| core.held(h)) else {
                return failed("the kernel lost a hold", event, &effect);
            };
            on_hold(&held);
            drop(core);
            session.tell(|| Happening::Held(Box::new(held.clone())));
            if let Some((holds, limit)) = due {
                session.tell(|| Happening::Due { holds, limit });
            }
            Outcome::Held(held)
        }
        Action::Refuse {
            event,
            refusal,
            notice,
        } => {
            drop(core);
            session.tell(|| Happening::Refused {
                event,
                effect,
                refusal: refusal.clone(),
                notice: notice.clone(),
            });
            Outcome::Refused {
                event,
                refusal,
                notice,
            }
        }
        _ => failed("the kernel answered out of turn", event, &effect),
    }
}

pub(crate) fn verdict(
    session: &Session,
    hold: HoldId,
    manifest: Digest,
    verdict: Verdict,
    oracle: &str,
    reason: &str,
) -> Result<(), String> {
    let word = match verdict {
        Verdict::Release => "release",
        Verdict::Refuse => "refuse",
    };
    resolve(session, |event| {
        let record = Record::Verdict {
            event: event.0,
            hold: hold.to_string(),
            manifest: manifest.hex(),
            verdict: word.to_string(),
            oracle: oracle.to_string(),
            reason: reason.to_string(),
        };
        let input = Input::Verdict {
            event,
            hold,
            manifest,
            verdict,
            oracle: oracle.to_string(),
            reason: reason.to_string(),
        };
        (record, input)
    })
}

pub(crate) fn withdraw(session: &Session, hold: HoldId) {
    // What is unknown or resolved by now needs no withdrawing.
    let _ = resolve(session, |event| {
        let record = Record::Withdrawn {
            event: event.0,
            hold: hold.to_string(),
        };
        (record, Input::Withdraw { event, hold })
    });
}

pub(crate) fn expire(session: &Session, hold: HoldId) {
    let _ = resolve(session, |event| {
        let record = Record::Expired {
            event: event.0,
            hold: hold.to_string(),
        };
        (record, Input::Expire { event, hold })
    });
}

pub(crate) fn overdue(session: &Session, hold: HoldId) {
    let _ = resolve(session, |event| {
        let record = Record::Overdue {
            event: event.0,
            hold: hold.to_string(),
        };
        (record, Input::Overdue { event, hold })
    });
}

pub(crate) fn reconsider(session: &Session) -> Result<(), String> {
    let epoch = session.policy().epoch.hex();
    resolve(session, |event| {
        let record = Record::Policy {
            event: event.0,
            epoch,
        };
        (record, Input::Reconsider { event })
    })
}

pub(crate) fn done(session: &Session, event: EventId, result: Result<String, String>) {
    ended(&mut session.core(), event, result);
}

fn ended(core: &mut Core, event: EventId, result: Result<String, String>) {
    let (ok, what) = match result {
        Ok(what) => (true, what),
        Err(what) => (false, what),
    };
    core.tell(format!("{} done: {what}", event.0));
    // The effect has happened; that its outcome cannot be recorded stops what comes after.
    let _ = core.append(&Record::Done {
        event: event.0,
        ok,
        what,
    });
}

/// What has to be carried out once the lock is gone.
enum Carry {
    Commit(Held, Lease),
    Abort(Held, Refusal, Notice),
    Withdrawn(HoldId),
}

/// Records an input about holds, steps, spends what is permitted, and then acts without the lock.
fn resolve(session: &Session, make: impl FnOnce(EventId) -> (Record, Input)) -> Result<(), String> {
    let policy = session.policy();
    let rules = session.rules();
    let mut core = session.core();
    if let Some(why) = &core.failed {
        return Err(why.clone());
    }
    let event = core.next_event();
    let (record, input) = make(event);
    core.append(&record).map_err(|e| e.to_string())?;
    // Only the hold itself and what depends on it can be resolved by this.
    let before: Vec<Held> = core
        .state
        .touched(&input)
        .iter()
        .filter_map(|hold| core.state.holds().find(*hold))
        .map(|hold| core.held(hold))
        .collect();
    let find = |hold: HoldId| before.iter().find(|held| held.hold == hold).cloned();
    let actions = step(
        &mut core.state,
        &policy,
        &*rules,
        session.workspace(),
        input,
    );

    let mut ignored = None;
    let mut carry = Vec::new();
    for action in actions {
        match action {
            Action::Label(relabel) => core.relabel(event, &relabel)?,
            Action::Commit { hold, permit } => {
                let Core { ledger, log, .. } = &mut *core;
                let lease = ledger.spend(log, permit).map_err(|error| {
                    core.failed.get_or_insert_with(|| error.to_string());
                    error.to_string()
                })?;
                core.forget(hold);
                if let Some(held) = find(hold) {
                    carry.push(Carry::Commit(held, lease));
                }
            }
            Action::Abort {
                hold,
                refusal,
                notice,
            } => {
                core.append(&Record::Aborted {
                    event: hold.0,
                    why: refusal.to_string(),
                })
                .map_err(|e| e.to_string())?;
                core.forget(hold);
                if let Some(held) = find(hold) {
                    carry.push(Carry::Abort(held, refusal, notice));
                }
            }
            Action::Withdrawn(hold) => {
                core.forget(hold);
                carry.push(Carry::Withdrawn(hold));
            }
            Action::Ignored(why) => ignored = Some(why),
            Action::Release(_) | Action::Refuse { .. } | Action::Hold(_) | Action::Due { .. } => {}
        }
    }
    core.sync()?;
    drop(core);

    for item in carry {
        match item {
            Carry::Commit(held, lease) => {
                let result = match session.channel(held.effect.channel) {
                    Some(channel) => channel.commit(&held, lease),
                    None => Err(format!(
                        "no {} channel is attached",
                        held.effect.channel.name()
                    )),
                };
                done(session, EventId(held.hold.0), result.clone());
                session.tell(|| Happening::Committed {
                    held: Box::new(held),
                    result,
                });
            }
            Carry::Abort(held, refusal, notice) => {
                if let Some(channel) = session.channel(held.effect.channel) {
                    channel.abort(&held, &refusal, &notice);
                }
                done(session, EventId(held.hold.0), Ok("discarded".to_string()));
                session.tell(|| Happening::Aborted {
                    held: Box::new(held),
                    refusal,
                    notice,
                });
            }
            Carry::Withdrawn(hold) => session.tell(|| Happening::Withdrawn(hold)),
        }
    }
    ignored.map_or(Ok(()), Err)
}

/// In doubt nothing leaves.
fn failed(why: &str, event: EventId, effect: &Effect) -> Outcome {
    let refusal = Refusal::Failed(why.to_string());
    let notice = Notice::refused(event, effect, &refusal);
    Outcome::Refused {
        event,
        refusal,
        notice,
    }
}
