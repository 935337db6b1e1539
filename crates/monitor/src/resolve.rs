//! Asking an oracle about what is held. Its authority is bounded: it can release only what policy
//! deferred, only as it saw it; what it does not answer, or answers badly, is refused.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::Read;

use kernel::planted::{self, Bug};
use kernel::{Effect, HoldId, Object, Reason, Scanner, Verdict};

use crate::ports::{Judgement, Oracle, View, ViewHold};
use crate::session::{Held, Session};

/// Lines of trace an oracle is shown.
const TRACE_LINES_MAX: usize = 200;
/// Bytes of content an oracle is shown.
const EXCERPT_BYTES_MAX: usize = 4096;
/// No secret is longer in any form that is searched for.
const SECRET_BYTES_MAX: usize = 2048;

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
        .filter(|held| held.question.needs_oracle && !held.endorsed)
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
                        Some(if planted::is(Bug::FailureReleases) {
                            Verdict::Release
                        } else {
                            Verdict::Refuse
                        }),
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
                    continue;
                }
                match answers.entry(answer.hold) {
                    Entry::Occupied(_) => resolved.notes.push(format!(
                        "{name} answered twice for {}; the first answer counts",
                        answer.hold
                    )),
                    Entry::Vacant(place) => {
                        place.insert((answer.manifest, answer.verdict, answer.reason));
                    }
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

/// What an oracle may see of these holds. Secrets are not part of it: an answer is bound to the
/// manifest, so what is shown may be shortened.
pub fn view(session: &Session, held: &[Held]) -> View {
    let scanner = session.scanner();
    View {
        task: session.task(),
        trace: session
            .trace(TRACE_LINES_MAX)
            .iter()
            .map(|line| scanner.redacted(line))
            .collect(),
        holds: held
            .iter()
            .map(|held| ViewHold {
                hold: held.hold,
                manifest: held.manifest,
                effect: redacted(&scanner, &held.effect),
                reasons: held
                    .question
                    .reasons
                    .iter()
                    .map(|why| redacted_reason(&scanner, why))
                    .collect(),
                depends: held.question.depends.clone(),
                carries: held.carries.clone(),
                excerpt: excerpt(session, &scanner, held),
            })
            .collect(),
    }
}

fn redacted(scanner: &Scanner, effect: &Effect) -> Effect {
    let mut effect = effect.clone();
    match &mut effect.object {
        Object::Party { host, path, .. } => {
            *host = scanner.redacted(host);
            *path = scanner.redacted(path);
        }
        Object::Location { path, .. } => *path = scanner.redacted(path),
        Object::Tool { name } => *name = scanner.redacted(name),
    }
    effect.about = scanner.redacted(&effect.about);
    for gated in &mut effect.gated {
        gated.value = scanner.redacted(&gated.value);
    }
    for value in effect.fields.values_mut() {
        *value = scanner.redacted(value);
    }
    effect
}

pub(crate) fn redacted_reason(scanner: &Scanner, reason: &Reason) -> Reason {
    let mut reason = reason.clone();
    match &mut reason {
        Reason::NotDerivable { field, value, .. } => {
            *field = scanner.redacted(field);
            *value = scanner.redacted(value);
        }
        Reason::UnknownParty(name) | Reason::UnknownTool(name) => *name = scanner.redacted(name),
        Reason::NotForOperation { operation, .. } => *operation = scanner.redacted(operation),
        _ => {}
    }
    reason
}

/// The whole of what a hold would do, as text for the person who is asked: a diff, a body.
pub fn show(session: &Session, hold: HoldId) -> Option<String> {
    let held = session.find(hold)?;
    let channel = session.channel(held.effect.channel);
    channel
        .and_then(|channel| channel.show(&held))
        .or_else(|| parked(session, &session.scanner(), &held))
}

/// The start of what would happen, as text: the channel's own words, or what is parked.
fn excerpt(session: &Session, scanner: &Scanner, held: &Held) -> String {
    let channel = session.channel(held.effect.channel);
    match channel.and_then(|channel| channel.show(held)) {
        Some(text) => cut(scanner.redacted(&text), EXCERPT_BYTES_MAX),
        None => parked(session, scanner, held).unwrap_or_default(),
    }
}

fn parked(session: &Session, scanner: &Scanner, held: &Held) -> Option<String> {
    let digest = held
        .parked
        .blob
        .as_deref()
        .and_then(kernel::Digest::from_hex)?;
    let mut bytes = Vec::new();
    let window = EXCERPT_BYTES_MAX + SECRET_BYTES_MAX;
    let file = session.blobs().open(&digest).ok()?;
    file.take(window as u64).read_to_end(&mut bytes).ok()?;
    let text = scanner.redacted(&String::from_utf8_lossy(&bytes));
    if bytes.len() < window {
        return Some(cut(text, EXCERPT_BYTES_MAX));
    }
    // A secret that the window's end cut in two was not recognised; it is not shown.
    let keep = text.len().saturating_sub(SECRET_BYTES_MAX);
    Some(cut(text, keep.min(EXCERPT_BYTES_MAX)))
}

fn cut(mut text: String, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text;
    }
    let mut keep = bytes_max;
    while !text.is_char_boundary(keep) {
        keep -= 1;
    }
    text.truncate(keep);
    text.push_str("\n[more of it is not shown here]");
    text
}
