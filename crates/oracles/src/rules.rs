//! Rules for what policy deferred: an operator's short list, the first that fits decides. Without a
//! file there is one: what carries more than its target is cleared for is refused. Everything that
//! no rule fits is kept, for the next oracle of a chain or for a review.

use std::path::Path;

use kernel::policy::{Glob, HostPattern};
use kernel::{Level, Object, Reason, Verdict};
use monitor::{Answer, Judgement, Oracle, View, ViewHold};
use serde::Deserialize;

/// The oracle `rules`.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    rules: Vec<Rule>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", expecting = "a table")]
struct File {
    #[serde(default)]
    rule: Vec<Rule>,
}

/// Every condition that is there has to hold.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", expecting = "a table")]
struct Rule {
    verdict: Word,
    reason: Option<String>,
    /// Operations, as the log writes them.
    #[serde(default)]
    operation: Vec<String>,
    /// Host patterns: a name, or `*.` and a name.
    #[serde(default)]
    host: Vec<String>,
    /// Path patterns, as in a policy.
    #[serde(default)]
    path: Vec<String>,
    /// The highest level that the effect may carry.
    carries_at_most: Option<String>,
    /// The lowest level that it has to carry.
    carries_at_least: Option<String>,
    /// Whether it may be held for more than an unknown target.
    #[serde(default)]
    runs_later: Option<bool>,
    /// At most so many bytes.
    bytes_max: Option<u64>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Word {
    Release,
    Refuse,
    Keep,
}

impl Rules {
    /// The rules of a file.
    ///
    /// # Errors
    /// What is wrong in it, and where.
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path)
            .map_err(|e| format!("the rules `{}` cannot be read: {e}", path.display()))?;
        Self::parse(&text)
            .map_err(|why| format!("the rules `{}` cannot be used: {why}", path.display()))
    }

    /// Rules from their text.
    ///
    /// # Errors
    /// What is wrong in it, and where.
    pub fn parse(text: &str) -> Result<Self, String> {
        let file: File = toml::from_str(text).map_err(|e| e.to_string())?;
        for rule in &file.rule {
            let bare = rule.operation.is_empty() && rule.host.is_empty() && rule.path.is_empty();
            if matches!(rule.verdict, Word::Release) && bare && rule.carries_at_most.is_none() {
                return Err("a rule that releases has to say what: give it `operation`, `host`, `path` or `carries-at-most`".into());
            }
            for level in rule.carries_at_most.iter().chain(&rule.carries_at_least) {
                level_of(level).ok_or_else(|| {
                    format!(
                        "`{level}` is no level; levels are public, internal, confidential, critical"
                    )
                })?;
            }
        }
        Ok(Self { rules: file.rule })
    }

    fn answer(&self, hold: &ViewHold) -> (Option<Verdict>, String) {
        for (number, rule) in self.rules.iter().enumerate() {
            if rule.fits(hold) {
                let verdict = match rule.verdict {
                    Word::Release => Some(Verdict::Release),
                    Word::Refuse => Some(Verdict::Refuse),
                    Word::Keep => None,
                };
                let reason = rule
                    .reason
                    .clone()
                    .unwrap_or_else(|| format!("rule {}", number + 1));
                return (verdict, reason);
            }
        }
        let too_much = hold
            .reasons
            .iter()
            .find(|reason| matches!(reason, Reason::Clearance { .. }));
        match too_much {
            Some(reason) => (Some(Verdict::Refuse), reason.to_string()),
            None => (None, "no rule fits".to_string()),
        }
    }
}

impl Oracle for Rules {
    fn name(&self) -> String {
        "rules".to_string()
    }

    fn judge(&self, view: &View) -> Judgement {
        let answers = view.holds.iter().map(|hold| {
            let (verdict, reason) = self.answer(hold);
            Answer {
                hold: hold.hold,
                manifest: hold.manifest,
                verdict,
                reason,
            }
        });
        Judgement::Answers(answers.collect())
    }
}

impl Rule {
    fn fits(&self, hold: &ViewHold) -> bool {
        let effect = &hold.effect;
        let carried = hold
            .carries
            .as_ref()
            .map_or(Level::Public, |(level, _)| *level);
        let (host, path) = match &effect.object {
            Object::Party { host, path, .. } => (Some(host.as_str()), Some(path.as_str())),
            Object::Location { path, .. } => (None, Some(path.as_str())),
            Object::Tool { .. } => (None, None),
        };
        let later = hold
            .reasons
            .iter()
            .any(|reason| matches!(reason, Reason::ExecutesLater { .. }));
        let releases = matches!(self.verdict, Word::Release);
        // A rule that releases never does so for what it does not speak of.
        let unspoken = releases
            && (later && self.runs_later != Some(true)
                || carried > Level::Public && self.carries_at_most.is_none());
        !unspoken
            && (self.operation.is_empty()
                || self
                    .operation
                    .iter()
                    .any(|name| name == effect.operation.name()))
            && (self.host.is_empty()
                || host.is_some_and(|host| {
                    self.host
                        .iter()
                        .any(|pattern| HostPattern(pattern.clone()).matches(host))
                }))
            && (self.path.is_empty()
                || path.is_some_and(|path| {
                    let path = path.split(['?', '#']).next().unwrap_or_default();
                    self.path
                        .iter()
                        .any(|pattern| Glob(pattern.clone()).matches(path.trim_start_matches('/')))
                }))
            && self
                .carries_at_most
                .as_deref()
                .and_then(level_of)
                .is_none_or(|most| carried <= most)
            && self
                .carries_at_least
                .as_deref()
                .and_then(level_of)
                .is_none_or(|least| carried >= least)
            && self.runs_later.is_none_or(|wanted| wanted == later)
            && self
                .bytes_max
                .is_none_or(|most| effect.payload.bytes <= most)
    }
}

fn level_of(name: &str) -> Option<Level> {
    Level::ALL
        .iter()
        .copied()
        .find(|level| level.name() == name)
}
