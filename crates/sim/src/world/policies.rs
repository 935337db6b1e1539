//! A few policies: what is trusted, who is named, what is forbidden. Enough that every reason to release, refuse or hold
//! comes up often.

use kernel::policy::{
    ExecutesRule, Gate, Glob, HostPattern, Limits, Policy, Rules, SensitiveRule, SourcePattern,
    SourceRule, Speculation,
};
use kernel::{Digest, Effect, KindSet, Level, Object, Party, Refusal};

/// Someone the policy names.
pub const NAMED: &str = "named.example";
/// Someone it does not name.
pub const UNKNOWN: &str = "unknown.example";
/// Someone that a rule forbids.
pub const FORBIDDEN: &str = "forbidden.example";
/// Where secrets come from.
pub const SECRET_PATH: &str = "secrets/key";

/// Policy number `number`; the number decides speculation and what is sensitive.
pub fn policy(number: u64) -> Policy {
    let workspace = |path: &str| SourcePattern::Location {
        tree: "workspace".into(),
        path: Glob(path.into()),
    };
    Policy {
        epoch: Digest::of(&number.to_le_bytes()),
        sources: vec![
            SourceRule {
                of: SourcePattern::Task,
                trusted: KindSet::ALL,
            },
            SourceRule {
                of: workspace("src/**"),
                trusted: KindSet::ALL,
            },
        ],
        sensitive: vec![SensitiveRule {
            of: workspace("secrets/**"),
            level: Level::Critical,
        }],
        parties: vec![Party {
            name: "named".into(),
            hosts: vec![HostPattern(NAMED.into())],
            ports: Vec::new(),
            clearance: Level::Internal,
            methods: Vec::new(),
            paths: Vec::new(),
            internal: Vec::new(),
            blocking: Vec::new(),
            named: Vec::new(),
            gate: Gate::Host,
        }],
        executes: vec![ExecutesRule {
            path: Glob("hooks/**".into()),
            place: "hook".into(),
        }],
        speculation: if number.is_multiple_of(2) {
            Speculation::Conservative
        } else {
            Speculation::Matched
        },
        limits: Limits {
            holds_max: if number < 2 { 12 } else { 40 },
            age_s_max: 120,
            ..Limits::default()
        },
        ..Policy::default()
    }
}

/// Forbids one party and one place.
#[derive(Clone, Copy, Debug)]
pub struct SimRules;

impl Rules for SimRules {
    fn forbids(&self, effect: &Effect, _: Level, _: bool) -> Result<Option<Refusal>, String> {
        let forbidden = match &effect.object {
            Object::Party { host, .. } => host == FORBIDDEN,
            Object::Location { path, .. } => path.starts_with("forbidden/"),
            Object::Tool { name, .. } => name == "forbidden",
        };
        Ok(forbidden.then(|| Refusal::Rule {
            rule: "never".into(),
            says: None,
        }))
    }
}
