//! What the operator declared, and the three questions asked of every effect, in order:
//! does a rule forbid it; do its steering values derive from trusted ones; may its target receive
//! what it carries.

/// Patterns of hosts, paths, names and fields.
mod pattern;
/// Tools, and what their answers may steer.
mod tool;

pub use pattern::{FieldPattern, Glob, HostPattern, NamePattern};
pub use tool::{Condition, Destination, Gates, Matching, ToolEffect, ToolRule, TypedRule, When};

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::decision::{Decision, Reason, Refusal};
use crate::event::{Digest, Effect, HoldId, Object, Operation, Source};
use crate::label::Level;
use crate::provenance::{Forms, Provenance, Steered};
use crate::value::{Gated, Kind, KindSet};

/// A policy as parsed; [`crate::step`] takes it as an argument.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// Digest of everything the policy consists of; part of every manifest.
    pub epoch: Digest,
    /// Who is trusted for what. A source that no rule names is trusted for nothing.
    pub sources: Vec<SourceRule>,
    /// Where sensitive content lies.
    pub sensitive: Vec<SensitiveRule>,
    /// Who may be talked to; the first that matches counts.
    pub parties: Vec<Party>,
    /// Places whose content is executed later; the first that matches counts.
    pub executes: Vec<ExecutesRule>,
    /// How far effects may run ahead of open holds.
    pub speculation: Speculation,
    /// Limits on holds.
    pub limits: Limits,
    /// Tools; the first that matches counts. One that no rule names is deferred.
    pub tools: Vec<ToolRule>,
    /// Values of tools' answers that may steer named arguments and nothing else.
    pub typed: Vec<TypedRule>,
    /// Fields of tools' answers that are sensitive although the rest is not.
    pub sensitive_fields: Vec<SensitiveFields>,
    /// Values that the policy itself vouches for, in normal form and sorted.
    pub values: Vec<(Kind, String)>,
    /// By which forms, besides equality, a value may derive from trusted ones.
    pub derive: Forms,
    /// The name of the mode in which decisions do not bind; nothing, and they do. A session's own
    /// choice, never a file's.
    pub unbound: Option<&'static str>,
}

/// A source and the kinds of value it is trusted for.
#[derive(Clone, Debug)]
pub struct SourceRule {
    /// Which sources.
    pub of: SourcePattern,
    /// Trusted for these kinds.
    pub trusted: KindSet,
}

/// Which sources a rule speaks of.
#[derive(Clone, Debug)]
pub enum SourcePattern {
    /// The principal's task.
    Task,
    /// Locations of a tree whose path matches.
    Location {
        /// The tree's name.
        tree: String,
        /// Pattern of the path.
        path: Glob,
    },
    /// A party by host pattern.
    Party(HostPattern),
    /// A tool by name.
    Tool(NamePattern),
}

/// Content of matching sources is sensitive.
#[derive(Clone, Debug)]
pub struct SensitiveRule {
    /// Where.
    pub of: SourcePattern,
    /// How much.
    pub level: Level,
}

/// Fields of an otherwise public answer.
#[derive(Clone, Debug)]
pub struct SensitiveFields {
    /// Whose.
    pub of: SourcePattern,
    /// Which.
    pub fields: Vec<FieldPattern>,
    /// How much.
    pub level: Level,
}

/// Someone the policy names.
#[derive(Clone, Debug)]
pub struct Party {
    /// The name it has in the policy.
    pub name: String,
    /// Its hosts.
    pub hosts: Vec<HostPattern>,
    /// Ports; empty for any.
    pub ports: Vec<u16>,
    /// Highest level it may receive.
    pub clearance: Level,
    /// Methods it is named for; empty for any request. Opaque connections are named by `CONNECT`
    /// alone.
    pub methods: Vec<String>,
    /// Paths it is named for (prefix, at a `/` boundary); empty for any.
    pub paths: Vec<String>,
    /// Requests to these paths are an internal channel (a model provider): recorded, released.
    pub internal: Vec<PathRule>,
    /// Requests to these paths need their answer although their method changes state.
    pub blocking: Vec<PathRule>,
    /// Requests it is named for besides, whatever `methods` and `paths` say (`git-upload-pack`).
    pub named: Vec<PathRule>,
    /// Whether naming it vouches for its host, or the whole URL has to derive from trusted values.
    pub gate: Gate,
}

/// Which requests a path rule speaks of.
#[derive(Clone, Debug)]
pub struct PathRule {
    /// Methods; empty for any.
    pub methods: Vec<String>,
    /// Pattern of the canonical path without query.
    pub path: Glob,
}

impl PathRule {
    fn matches(&self, method: &str, path: &str) -> bool {
        let path = path.split(['?', '#']).next().unwrap_or_default();
        (self.methods.is_empty() || self.methods.iter().any(|m| m == method))
            && self.path.matches(path.trim_start_matches('/'))
    }
}

/// What of a request to a party is gated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Gate {
    /// The policy names the host, which vouches for it.
    #[default]
    Host,
    /// The URL has to derive from trusted values (for a party named by a wildcard).
    Url,
}

/// A place whose content is executed later.
#[derive(Clone, Debug)]
pub struct ExecutesRule {
    /// Pattern of the path below any tree.
    pub path: Glob,
    /// What it is: `git hook`, `CI workflow`, ...
    pub place: String,
}

/// How far effects may run ahead of open holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Speculation {
    /// An irreversible effect waits for every hold that came before it.
    #[default]
    Conservative,
    /// Only for the holds it demonstrably builds on.
    Matched,
}

/// The field of an effect in which a channel says that it contradicts itself, and how; such an
/// effect is refused, whatever the policy says.
pub const MALFORMED: &str = "malformed";

/// Field of an effect whose channel knows that what is written runs later, although no rule names
/// its place: what kind of place it is.
pub const EXECUTES: &str = "runs later as";

/// Field of a request to a model provider whose channel sees that it is on an account that is not
/// known to be the principal's: it is no internal channel then.
pub const OTHER_ACCOUNT: &str = "other account";

/// Limits on what may be held at once.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Number of holds.
    pub holds_max: u64,
    /// Sum of parked bytes.
    pub bytes_max: u64,
    /// Age of a hold before it is resolved early, in seconds.
    pub age_s_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            holds_max: 10_000,
            bytes_max: 4 << 30,
            age_s_max: 7 * 24 * 3600,
        }
    }
}

impl SourcePattern {
    /// Whether a source matches.
    pub fn matches(&self, source: &Source) -> bool {
        match (self, source) {
            (Self::Task, Source::Task) => true,
            (Self::Location { tree, path }, Source::Location { tree: t, path: p }) => {
                (tree == t || tree == "*") && path.matches(p)
            }
            (Self::Party(pattern), Source::Party(host)) => pattern.matches(host),
            (Self::Tool(pattern), Source::Tool(name)) => pattern.matches(name),
            _ => false,
        }
    }
}

/// Rules that refuse, evaluated outside the kernel in a well-kept policy language.
pub trait Rules {
    /// The rule that forbids the effect, if one does. `origin_untrusted` is true when some
    /// steering value does not derive from trusted ones; `level` is what the effect carries.
    ///
    /// # Errors
    /// A text when the rules could not be evaluated; the effect is then refused.
    fn forbids(
        &self,
        effect: &Effect,
        level: Level,
        origin_untrusted: bool,
    ) -> Result<Option<Refusal>, String>;
}

/// No rules at all.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoRules;

impl Rules for NoRules {
    fn forbids(&self, _: &Effect, _: Level, _: bool) -> Result<Option<Refusal>, String> {
        Ok(None)
    }
}

impl Policy {
    /// Kinds that a source is trusted for.
    pub fn trusted_kinds(&self, source: &Source) -> KindSet {
        if matches!(source, Source::Policy) {
            return KindSet::ALL;
        }
        self.sources
            .iter()
            .filter(|rule| rule.of.matches(source))
            .fold(KindSet::NONE, |kinds, rule| kinds.union(rule.trusted))
    }

    /// Level of a source's content.
    pub fn sensitivity(&self, source: &Source) -> Level {
        self.sensitive
            .iter()
            .filter(|rule| rule.of.matches(source))
            .fold(Level::Public, |level, rule| level.join(rule.level))
    }

    /// Level of one field of a source's content, when its fields are not all alike.
    pub(crate) fn sensitivity_of_leaf(&self, source: &Source, path: &str) -> Level {
        let of_leaf = |rule: &&SensitiveFields| rule.fields.iter().any(|field| field.matches(path));
        self.field_rules(source)
            .filter(of_leaf)
            .fold(Level::Public, |level, rule| level.join(rule.level))
    }

    /// Highest level that some field of a source's content has.
    pub(crate) fn sensitivity_of_fields(&self, source: &Source) -> Level {
        self.field_rules(source)
            .fold(Level::Public, |level, rule| level.join(rule.level))
    }

    fn field_rules<'a>(&'a self, source: &'a Source) -> impl Iterator<Item = &'a SensitiveFields> {
        self.sensitive_fields
            .iter()
            .filter(|rule| rule.of.matches(source))
    }

    /// Whether the policy itself vouches for a value in normal form.
    pub(crate) fn value(&self, kind: Kind, normal: &str) -> bool {
        self.values
            .binary_search_by(|(k, v)| (*k, v.as_str()).cmp(&(kind, normal)))
            .is_ok()
    }

    /// The party that a host and port belong to.
    pub fn party(&self, host: &str, port: u16) -> Option<&Party> {
        self.parties.iter().find(|party| {
            party.hosts.iter().any(|pattern| pattern.matches(host))
                && (party.ports.is_empty() || party.ports.contains(&port))
        })
    }

    /// Further values that steer an effect: what the channel says, and a tool's gated arguments.
    pub fn gated(&self, effect: &Effect) -> Vec<Gated> {
        let mut gated = effect.gated.clone();
        if let Object::Tool { name } = &effect.object {
            let tool = self.tool(name).into_iter();
            gated.extend(
                tool.flat_map(|tool| tool.gated(&effect.arguments))
                    .map(|(gate, _)| gate),
            );
        }
        gated
    }

    /// The rule for a tool.
    pub fn tool(&self, name: &str) -> Option<&ToolRule> {
        self.tools.iter().find(|tool| tool.name.matches(name))
    }

    /// Whether a request is the internal channel to a model provider.
    pub fn internal(&self, host: &str, port: u16, method: &str, path: &str) -> bool {
        self.party(host, port)
            .is_some_and(|p| p.internal.iter().any(|rule| rule.matches(method, path)))
    }

    /// Whether a state-changing request needs its answer (by the party's own rules).
    pub fn needs_answer(&self, host: &str, port: u16, method: &str, path: &str) -> bool {
        matches!(method, "GET" | "HEAD" | "OPTIONS")
            || self
                .party(host, port)
                .is_some_and(|p| p.blocking.iter().any(|rule| rule.matches(method, path)))
    }

    /// What kind of place a path is whose content runs later. Outside the workspace a pattern may
    /// name the tree as well: `~/.codex/config.toml`.
    pub fn executes(&self, tree: &str, path: &str) -> Option<&str> {
        let full = (tree != "workspace").then(|| format!("{tree}/{path}"));
        self.executes
            .iter()
            .find(|rule| {
                rule.path.matches(path)
                    || full.as_deref().is_some_and(|full| rule.path.matches(full))
            })
            .map(|rule| rule.place.as_str())
    }

    /// The three questions. `after` holds what the effect depends on by [`crate::scope`].
    pub fn decide(
        &self,
        rules: &dyn Rules,
        effect: &Effect,
        provenance: &Provenance,
        after: &[HoldId],
    ) -> Decision {
        if let Some(why) = effect.fields.get(MALFORMED) {
            return Decision::Refuse(Refusal::Malformed(why.clone()));
        }
        let level = provenance.level_of(&effect.carries);
        let party = self.party_of(effect);
        let mut reasons = self.underivable(effect, party, provenance);
        let origin_untrusted = !reasons.is_empty();
        match rules.forbids(effect, level, origin_untrusted) {
            Ok(None) => {}
            Ok(Some(refusal)) => return Decision::Refuse(refusal),
            Err(why) => return Decision::Refuse(Refusal::Failed(why)),
        }
        if party.is_some_and(|party| party.is_internal_for(effect)) {
            return Decision::Release("internal channel to a model provider".into());
        }
        let clearance = self.clearance(effect, party);
        if level > clearance {
            let origins = provenance.origins_of(&effect.carries, clearance);
            reasons.push(Reason::Clearance {
                level,
                clearance,
                origins,
            });
        }
        if !after.is_empty() {
            reasons.push(Reason::After(after.to_vec()));
        }
        if reasons.is_empty() {
            Decision::Release(
                "policy: its steering values are trusted and it carries nothing above its target's clearance"
                    .into(),
            )
        } else {
            Decision::Defer(reasons)
        }
    }

    /// Whether an effect is traffic with a model provider.
    pub(crate) fn effect_is_internal(&self, effect: &Effect) -> bool {
        self.party_of(effect)
            .is_some_and(|party| party.is_internal_for(effect))
    }

    /// The party that an effect is for, when the policy names it.
    fn party_of(&self, effect: &Effect) -> Option<&Party> {
        match &effect.object {
            Object::Party { host, port, .. } => self.party(host, *port),
            _ => None,
        }
    }

    /// Locations have the highest clearance: what is written there does not leave.
    fn clearance(&self, effect: &Effect, party: Option<&Party>) -> Level {
        match &effect.object {
            Object::Location { .. } => Level::Critical,
            Object::Party { .. } => party.map_or(Level::Public, |party| party.clearance),
            Object::Tool { name } => self.tool(name).map_or(Level::Public, |tool| tool.clearance),
        }
    }

    /// Every gated value that does not derive from trusted ones.
    fn underivable(
        &self,
        effect: &Effect,
        party: Option<&Party>,
        provenance: &Provenance,
    ) -> Vec<Reason> {
        let mut reasons = Vec::new();
        let mut gated: Vec<Gated> = Vec::new();
        let mut arguments: Vec<(Gated, KindSet)> = Vec::new();
        let mut tool_name = "";
        match &effect.object {
            Object::Location { tree, path } => {
                let told = effect.fields.get(EXECUTES).map(String::as_str);
                if let Some(place) = self.executes(tree, path).or(told) {
                    reasons.push(Reason::ExecutesLater {
                        place: place.to_string(),
                    });
                }
                let trusted = self.trusted_kinds(&Source::Location {
                    tree: tree.clone(),
                    path: path.clone(),
                });
                // A path below a tree that is trusted for paths derives from the tree's root.
                if !trusted.contains(Kind::Path) {
                    gated.push(Gated::new("path", Kind::Path, path.clone()));
                }
            }
            Object::Party { host, path, .. } => match party {
                None => {
                    let field = if host.parse::<core::net::IpAddr>().is_ok() {
                        "address"
                    } else {
                        "host"
                    };
                    reasons.push(Reason::UnknownParty(host.clone()));
                    gated.push(Gated::new(field, Kind::Host, host.clone()));
                }
                Some(party) => {
                    if let Some(account) = effect.fields.get(OTHER_ACCOUNT) {
                        reasons.push(Reason::NotForOperation {
                            party: party.name.clone(),
                            operation: account.clone(),
                        });
                    }
                    if let Some(reason) = party.not_for(&effect.operation, path) {
                        reasons.push(reason);
                    }
                    // A task that mentions a place lets it be read, and nothing be changed there.
                    if party.gate == Gate::Url && !effect.operation.reads_only() {
                        let anybody = party.hosts.iter().any(|pattern| pattern.0 == "*");
                        let not_for = || Reason::NotForOperation {
                            party: party.name.clone(),
                            operation: effect.operation.name().to_string(),
                        };
                        reasons.push(if anybody {
                            Reason::UnknownParty(host.clone())
                        } else {
                            not_for()
                        });
                    }
                    if party.gate == Gate::Url {
                        gated.push(Gated::new("url", Kind::Url, effect.object.to_string()));
                    }
                }
            },
            Object::Tool { name } => match self.tool(name) {
                None => reasons.push(Reason::UnknownTool(name.clone())),
                Some(tool) => {
                    tool_name = name;
                    arguments = tool.gated(&effect.arguments);
                }
            },
        }
        let by_itself = gated.iter().chain(&effect.gated);
        let all = by_itself
            .map(|gate| (gate, KindSet::of(&[gate.kind]), None))
            .chain(arguments.iter().map(|(gate, kinds)| {
                let steered = Steered {
                    tool: tool_name,
                    argument: &gate.field,
                };
                (gate, *kinds, Some(steered))
            }));
        for (gate, kinds, steered) in all {
            let derives = |kind: &Kind| {
                kinds.contains(*kind) && provenance.derives(self, *kind, &gate.value, steered)
            };
            if !Kind::ALL.iter().any(derives) {
                reasons.push(Reason::NotDerivable {
                    field: gate.field.clone(),
                    kind: gate.kind,
                    value: shortened(&gate.value),
                    origins: provenance.met_at(gate.kind, &gate.value),
                });
            }
        }
        reasons
    }
}

impl Party {
    fn is_internal_for(&self, effect: &Effect) -> bool {
        let Object::Party { path, .. } = &effect.object else {
            return false;
        };
        if effect.fields.contains_key(OTHER_ACCOUNT) {
            return false;
        }
        let method = match &effect.operation {
            Operation::Request(method) => method.as_str(),
            Operation::Message => "GET",
            _ => return false,
        };
        self.internal.iter().any(|rule| rule.matches(method, path))
    }

    fn not_for(&self, operation: &Operation, path: &str) -> Option<Reason> {
        let method = match operation {
            Operation::Request(method) => method.as_str(),
            Operation::Message => "MESSAGE",
            _ => "CONNECT",
        };
        if self.named.iter().any(|rule| rule.matches(method, path)) {
            return None;
        }
        // What cannot be looked into is named by its own word or not at all.
        let method_named = (self.methods.is_empty() && method != "CONNECT")
            || self.methods.iter().any(|m| m == method)
            || (method == "MESSAGE" && self.methods.iter().any(|m| m == "GET"));
        let path_named =
            self.paths.is_empty() || self.paths.iter().any(|prefix| below(path, prefix));
        (!method_named || !path_named).then(|| Reason::NotForOperation {
            party: self.name.clone(),
            operation: if path_named {
                method.to_string()
            } else {
                format!("{method} {}", shortened(path))
            },
        })
    }
}

/// Whether `path` is `prefix` or lies below it.
fn below(path: &str, prefix: &str) -> bool {
    let prefix = prefix.trim_end_matches('/');
    path.strip_prefix(prefix)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?']))
}

/// A value short enough for a message.
fn shortened(value: &str) -> String {
    const LENGTH_MAX: usize = 120;
    if value.chars().count() <= LENGTH_MAX {
        return value.to_string();
    }
    let mut short: String = value.chars().take(LENGTH_MAX).collect();
    short.push('…');
    short
}
