//! Asking an oracle about what is held. Its authority is bounded: it can release only what policy
//! deferred, only as it saw it; what it does not answer, or answers badly, is refused.

use std::collections::BTreeMap;
use std::io::Read;

use kernel::{HoldId, Verdict};

use crate::ports::{Judgement, Oracle, View, ViewHold};
use crate::session::{Held, Session};

/// Lines of trace an oracle is shown.
const TRACE_LINES_MAX: usize = 200;
/// Bytes of parked content an oracle is shown.
const EXCERPT_BYTES_MAX: u64 = 2048;

/// What came of asking.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolved {
    /// Holds released.
    pub released: Vec<HoldId>,
    /// Holds refused.
    pub refused: Vec<HoldId>,
    /// Why everything else stays held, if it does.
    pub kept: Option<String>,
    /// Answers that could not be used, in words.
    pub notes: Vec<String>,
}

/// Shows an oracle the given holds (all that are open when `None`) and acts on its answers.
pub fn resolve(session: &Session, oracle: &dyn Oracle, only: Option<&[HoldId]>) -> Resolved {
    let mut resolved = Resolved::default();
    let held: Vec<Held> = session
        .held()
        .into_iter()
        .filter(|held| held.question.needs_oracle)
        .filter(|held| only.is_none_or(|only| only.contains(&held.hold)))
        .collect();
    if held.is_empty() {
        return resolved;
    }
    let name = oracle.name();
    let judgement = oracle.judge(&view(session, &held));
    let mut answers = BTreeMap::new();
    match judgement {
        Judgement::Keep(why) => {
            resolved.kept = Some(why);
            return resolved;
        }
        Judgement::Failed(why) => {
            resolved.notes.push(format!("{name} failed: {why}"));
            for held in &held {
                answers.insert(
                    held.hold,
                    (
                        held.manifest,
                        Some(Verdict::Refuse),
                        format!("the oracle failed: {why}"),
                    ),
                );
            }
        }
        Judgement::Answers(given) => {
            for answer in given {
                if !held.iter().any(|h| h.hold == answer.hold) {
                    resolved.notes.push(format!(
                        "{name} answered for {}, which it was not asked about",
                        answer.hold
                    ));
                } else if answers.contains_key(&answer.hold) {
                    resolved.notes.push(format!(
                        "{name} answered twice for {}; the first answer counts",
                        answer.hold
                    ));
                } else {
                    answers.insert(
                        answer.hold,
                        (answer.manifest, answer.verdict, answer.reason),
                    );
                }
            }
            for held in &held {
                answers.entry(held.hold).or_insert_with(|| {
                    (
                        held.manifest,
                        Some(Verdict::Refuse),
                        "the oracle did not answer".to_string(),
                    )
                });
            }
        }
    }
    for (hold, (manifest, verdict, reason)) in answers {
        let Some(verdict) = verdict else { continue };
        match session.verdict(hold, manifest, verdict, &name, &reason) {
            Ok(()) if verdict == Verdict::Release => resolved.released.push(hold),
            Ok(()) => resolved.refused.push(hold),
            Err(why) => resolved.notes.push(why),
        }
    }
    resolved
}

/// What an oracle may see of these holds.
pub fn view(session: &Session, held: &[Held]) -> View {
    View {
        task: session.task(),
        trace: session.trace(TRACE_LINES_MAX),
        holds: held
            .iter()
            .map(|held| ViewHold {
                hold: held.hold,
                manifest: held.manifest,
                effect: held.effect.clone(),
                reasons: held.question.reasons.clone(),
                depends: held.question.depends.clone(),
                carries: held.carries.clone(),
                excerpt: excerpt(session, held),
            })
            .collect(),
    }
}

fn excerpt(session: &Session, held: &Held) -> String {
    let Some(digest) = held
        .parked
        .blob
        .as_deref()
        .and_then(kernel::Digest::from_hex)
    else {
        return String::new();
    };
    let mut bytes = Vec::new();
    let read = session
        .blobs()
        .open(&digest)
        .and_then(|file| file.take(EXCERPT_BYTES_MAX).read_to_end(&mut bytes));
    match read {
        Ok(_) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(_) => String::new(),
    }
}
