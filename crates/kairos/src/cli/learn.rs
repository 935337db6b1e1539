//! `kairos policy learn`: the smallest addition to a policy that would have released what was
//! approved, as a diff to read. Nothing is applied.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use kernel::Decision;
use kernel::policy::{NoRules, Rules};
use kernel::{
    Content, Digest, Effect, EventId, Incoming, Input, Object, Operation, Reason, Source, State,
    step,
};
use policy::Loaded;
use serde_json::json;
use store::log::Entry;
use store::{Blobs, Record, SessionDir};

use crate::cli::{Which, print, show};
use crate::exit::{Failure, Outcome, Status, at};
use crate::setup::Setup;

/// Lines of the policy that a diff shows around what it adds.
const CONTEXT_LINES: usize = 3;

/// Propose a policy.
#[derive(Debug, Args)]
pub(crate) struct Learn {
    /// Sessions, by id or its unique beginning
    #[arg(required = true, value_name = "SESSION")]
    sessions: Vec<String>,
    /// Print one object
    #[arg(long)]
    json: bool,
}

/// One session, read back.
struct Past {
    entries: Vec<Entry>,
    blobs: Blobs,
    setup: Setup,
}

/// An effect of a session and what people said to it.
#[derive(Clone)]
struct Known {
    session: usize,
    event: u64,
    effect: Effect,
    /// `Some(true)` when it was approved.
    approved: bool,
}

/// What one `[[party]]` would allow.
#[derive(Default)]
struct Allowed<'a> {
    requests: Vec<&'a str>,
    clearance: Option<&'a str>,
}

/// One table that might be added.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Addition {
    /// Requests of one method to one path of one host.
    Allow {
        host: String,
        port: u16,
        what: String,
        clearance: Option<String>,
    },
    /// A kind of value from one place.
    Trust { path: String, kind: String },
    /// A place whose content does not run later.
    Place { path: String },
}

impl Learn {
    pub(crate) fn execute(self) -> Outcome<Status> {
        let pasts = self
            .sessions
            .iter()
            .map(|id| read(id))
            .collect::<Outcome<Vec<Past>>>()?;
        let Some(first) = pasts.first() else {
            return Err(Failure::new("name a session"));
        };
        let text = first.setup.policy.clone();
        if pasts
            .iter()
            .any(|past| past.setup.identity != first.setup.identity)
        {
            return Err(Failure::new(
                "the sessions are of different workspaces, and a policy belongs to one; learn from those of one workspace",
            ));
        }
        let mut known = Vec::new();
        for (index, past) in pasts.iter().enumerate() {
            known.extend(effects(index, past));
        }
        let approved: Vec<&Known> = known.iter().filter(|known| known.approved).collect();
        let mut additions = additions(&pasts, &text, &approved)?;
        // All together first: what they do not cover, none of them does.
        let whole = amended(&text, &additions)?;
        let uncovered: Vec<&Known> = approved
            .iter()
            .copied()
            .filter(|known| !releases(&whole, &pasts, known))
            .collect();
        let covered: Vec<&Known> = approved
            .iter()
            .copied()
            .filter(|known| releases(&whole, &pasts, known))
            .collect();
        let mut at = 0;
        while at < additions.len() {
            let mut fewer = additions.clone();
            fewer.remove(at);
            let loaded = amended(&text, &fewer)?;
            if covered.iter().all(|known| releases(&loaded, &pasts, known)) {
                additions = fewer;
            } else {
                at += 1;
            }
        }
        let loaded = amended(&text, &additions)?;
        let regrets: Vec<&Known> = known
            .iter()
            .filter(|known| !known.approved && releases(&loaded, &pasts, known))
            .collect();
        let written = written(&additions);
        let (name, old) = policy::recorded_file(&text).map_err(mistakes)?.map_or(
            (PathBuf::from("kairos.toml"), String::new()),
            |(path, text)| (path, text),
        );
        let diff = diff(&name, &old, &written);
        if self.json {
            let list = |known: &[&Known]| known.iter().map(|known| line(known)).collect::<Vec<_>>();
            return print(&format!(
                "{}\n",
                json!({
                    "approved": list(&approved), "not_covered": list(&uncovered), "would_release_refused": list(&regrets),
                    "addition": written, "diff": diff,
                })
            ));
        }
        let mut out = String::new();
        let _ = writeln!(
            out,
            "{} in {}.",
            counted(approved.len(), "approved effect"),
            counted(pasts.len(), "session")
        );
        for known in &uncovered {
            let _ = writeln!(
                out,
                "not covered: {} (no narrow rule would release it)",
                show::clean(&line(known))
            );
        }
        for known in &regrets {
            let _ = writeln!(
                out,
                "careful: it would also release {}, which was refused",
                show::clean(&line(known))
            );
        }
        if written.is_empty() {
            out.push_str(
                "Nothing to add: the policy releases everything else that was approved.\n",
            );
        } else {
            out.push_str("Read it, then put into the policy what you agree with. Nothing has been changed.\n\n");
            out.push_str(&diff);
        }
        print(&out)
    }
}

fn read(id: &str) -> Outcome<Past> {
    let dir: SessionDir = Which {
        session: Some(id.to_string()),
    }
    .find()?;
    Ok(Past {
        entries: store::log::read(&dir.log()).map_err(Failure::new)?.entries,
        blobs: Blobs::open_dir(&dir.blobs()).map_err(at("open", &dir.blobs()))?,
        setup: Setup::read(&dir)?,
    })
}

/// Effects that were deferred and then approved or refused, and those that only a mode without
/// enforcement let through.
fn effects(session: usize, past: &Past) -> Vec<Known> {
    let mut verdicts: BTreeMap<&str, bool> = BTreeMap::new();
    for entry in &past.entries {
        if let Record::Verdict { hold, verdict, .. } = &entry.record {
            verdicts.insert(hold, verdict == "release");
        }
    }
    let mut known = Vec::new();
    for entry in &past.entries {
        let Record::Proposed {
            event,
            effect,
            decision,
            why,
            ..
        } = &entry.record
        else {
            continue;
        };
        let unenforced = why
            .iter()
            .any(|why| why.starts_with("shadow: ") || why.starts_with("record: "));
        let approved = match (
            decision.as_str(),
            verdicts.get(format!("h{event}").as_str()),
        ) {
            ("release", _) if unenforced => true,
            ("defer", Some(approved)) => *approved,
            _ => continue,
        };
        if let Ok(effect) = effect.read() {
            known.push(Known {
                session,
                event: *event,
                effect,
                approved,
            });
        }
    }
    known
}

/// What the kernel knows right before an event, under a policy.
fn state_before(loaded: &Loaded, past: &Past, event: u64) -> State {
    let mut state = State::default();
    for entry in &past.entries {
        let Record::Incoming {
            event: number,
            channel,
            source,
            digest,
            kept,
            ..
        } = &entry.record
        else {
            continue;
        };
        if *number >= event {
            break;
        }
        let (Some(digest), Ok(channel)) = (
            Digest::from_hex(digest),
            store::record::read_channel(channel),
        ) else {
            continue;
        };
        let bytes = if *kept {
            past.blobs.read(&digest).unwrap_or_default()
        } else {
            Vec::new()
        };
        let content = Content {
            bytes: bytes.into(),
            digest,
        };
        let incoming = Incoming::new(channel, Source::from(source), content);
        let input = Input::Incoming {
            event: EventId(*number),
            incoming,
        };
        step(
            &mut state,
            &loaded.kernel,
            &NoRules,
            &past.setup.identity,
            input,
        );
    }
    state
}

fn decide(loaded: &Loaded, pasts: &[Past], known: &Known) -> Option<Decision> {
    let past = pasts.get(known.session)?;
    let state = state_before(loaded, past, known.event);
    let rules: &dyn Rules = &loaded.rules;
    Some(
        loaded
            .kernel
            .decide(rules, &known.effect, state.provenance(), &[]),
    )
}

fn releases(loaded: &Loaded, pasts: &[Past], known: &Known) -> bool {
    matches!(decide(loaded, pasts, known), Some(Decision::Release(_)))
}

/// The narrowest tables that speak of what was approved, by the reasons that held it.
fn additions(pasts: &[Past], text: &str, approved: &[&Known]) -> Outcome<Vec<Addition>> {
    let loaded = policy::recorded(text).map_err(mistakes)?;
    let mut found = Vec::new();
    for known in approved {
        let Some(Decision::Defer(reasons)) = decide(&loaded, pasts, known) else {
            continue;
        };
        let clearance = reasons.iter().find_map(|reason| match reason {
            Reason::Clearance { level, .. } => Some(level.name().to_string()),
            _ => None,
        });
        match &known.effect.object {
            Object::Party {
                host, port, path, ..
            } => {
                let path = path.split(['?', '#']).next().unwrap_or_default();
                let what = match &known.effect.operation {
                    Operation::Request(method) => format!("{method} {path}"),
                    Operation::Message => format!("GET {path}"),
                    _ => "CONNECT".to_string(),
                };
                found.push(Addition::Allow {
                    host: host.clone(),
                    port: *port,
                    what,
                    clearance,
                });
                for reason in &reasons {
                    if let Reason::NotDerivable {
                        field,
                        kind,
                        origins,
                        ..
                    } = reason
                        && !matches!(field.as_str(), "host" | "url" | "address")
                        && let Some(Source::Location { tree, path }) =
                            origins.first().map(|origin| &origin.source)
                        && tree == "workspace"
                    {
                        found.push(Addition::Trust {
                            path: path.clone(),
                            kind: kind.name().to_string(),
                        });
                    }
                }
            }
            Object::Location { tree, path } => {
                let full = if tree == "workspace" {
                    path.clone()
                } else {
                    format!("{tree}/{path}")
                };
                if reasons
                    .iter()
                    .any(|reason| matches!(reason, Reason::ExecutesLater { .. }))
                {
                    found.push(Addition::Place {
                        path: format!("/{full}"),
                    });
                }
            }
            Object::Tool { .. } => {}
        }
    }
    // What an agent wrote into a path must not become a pattern for more than that path.
    found.retain(|addition| {
        let (Addition::Allow { what: text, .. }
        | Addition::Trust { path: text, .. }
        | Addition::Place { path: text }) = addition;
        !text.contains(['*', '?']) && !text.contains(" !")
    });
    found.sort();
    found.dedup();
    Ok(found)
}

fn amended(text: &str, additions: &[Addition]) -> Outcome<Loaded> {
    policy::amended(text, &written(additions)).map_err(mistakes)
}

/// The tables as a policy has them; requests to one host stand together.
fn written(additions: &[Addition]) -> String {
    let mut parties: BTreeMap<(&str, u16), Allowed<'_>> = BTreeMap::new();
    let mut text = String::new();
    for addition in additions {
        match addition {
            Addition::Allow {
                host,
                port,
                what,
                clearance,
            } => {
                let party = parties.entry((host.as_str(), *port)).or_default();
                party.requests.push(what);
                if rank(clearance.as_deref()) > rank(party.clearance) {
                    party.clearance = clearance.as_deref();
                }
            }
            Addition::Trust { path, kind } => {
                let _ = write!(
                    text,
                    "\n[[source]]\npath = {}\ntrusted = [{}]\n",
                    quoted(path),
                    quoted(kind)
                );
            }
            Addition::Place { path } => {
                let _ = write!(
                    text,
                    "\n[[executes]]\npath = {}\nruns = false\n",
                    quoted(path)
                );
            }
        }
    }
    for ((host, port), mut allowed) in parties {
        allowed.requests.sort_unstable();
        allowed.requests.dedup();
        let allow: Vec<String> = allowed.requests.into_iter().map(quoted).collect();
        let _ = write!(
            text,
            "\n[[party]]\nhosts = [{}]\nports = [{port}]\nallow = [{}]\n",
            quoted(host),
            allow.join(", ")
        );
        if let Some(clearance) = allowed.clearance {
            let _ = writeln!(text, "clearance = {}", quoted(clearance));
        }
    }
    text
}

/// How high a level is; none is the lowest.
fn rank(level: Option<&str>) -> usize {
    let place = |name: &str| {
        kernel::Level::ALL
            .iter()
            .position(|level| level.name() == name)
    };
    level.and_then(place).map_or(0, |place| place + 1)
}

fn counted(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// A string as TOML writes it.
fn quoted(text: &str) -> String {
    json!(text).to_string()
}

/// A unified diff that only adds at the end.
fn diff(name: &std::path::Path, old: &str, added: &str) -> String {
    let lines: Vec<&str> = old.lines().collect();
    let context = lines.len().saturating_sub(CONTEXT_LINES);
    let shown = lines.get(context..).unwrap_or_default();
    let new: Vec<&str> = added.lines().collect();
    let start = if lines.is_empty() { 0 } else { context + 1 };
    let mut text = format!("--- {0}\n+++ {0}\n", name.display());
    let _ = writeln!(
        text,
        "@@ -{start},{} +{},{} @@",
        shown.len(),
        start.max(1),
        shown.len() + new.len()
    );
    for line in shown {
        let _ = writeln!(text, " {line}");
    }
    for line in new {
        let _ = writeln!(text, "+{line}");
    }
    text
}

fn line(known: &Known) -> String {
    format!(
        "h{} {} {}",
        known.event,
        known.effect.operation.name(),
        known.effect.object
    )
}

fn mistakes(errors: policy::PolicyErrors) -> Failure {
    Failure::new(format!("the policy cannot be used\n{}", errors.coloured()))
}
