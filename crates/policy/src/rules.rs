//! Rules that refuse, in Cedar. The schema is fixed; every rule is checked against it when it is
//! loaded, and a rule that cannot be evaluated refuses.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

use cedar_policy::{
    Authorizer, Context, Effect as CedarEffect, Entities, Entity, EntityId, EntityTypeName,
    EntityUid, Policy as CedarPolicy, PolicyId, PolicySet, Request, RestrictedExpression, Schema,
    ValidationMode, Validator,
};
use kernel::policy::{Policy, Rules};
use kernel::{Effect, FileOp, Level, Object, Operation, Refusal};

use crate::error::{Finding, nearest};

/// The schema that rules are checked against.
pub const SCHEMA: &str = include_str!("kairos.cedarschema");

/// Where the text of rules came from.
pub(crate) struct RuleText<'a> {
    /// File, as shown to people.
    pub(crate) file: &'a str,
    /// The whole text of that file.
    pub(crate) text: &'a str,
    /// Where the rules stand in it.
    pub(crate) start: usize,
    /// The rules.
    pub(crate) cedar: &'a str,
    /// What to call them: the name and text of `[[rule]]`.
    pub(crate) named: Option<(&'a str, Option<&'a str>)>,
}

/// The rules in force.
#[derive(Clone, Default)]
pub struct CedarRules {
    rules: Option<Arc<Compiled>>,
    names: Vec<String>,
}

struct Compiled {
    set: PolicySet,
    says: HashMap<PolicyId, (String, Option<String>)>,
    policy: Policy,
}

impl std::fmt::Debug for CedarRules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("CedarRules").field(&self.names).finish()
    }
}

impl CedarRules {
    /// Names of the rules, in order.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Binds the rules to the policy as it came to be.
    pub(crate) fn rebind(&mut self, policy: &Policy) {
        if let Some(rules) = &self.rules {
            self.rules = Some(Arc::new(Compiled {
                set: rules.set.clone(),
                says: rules.says.clone(),
                policy: policy.clone(),
            }));
        }
    }

    /// Reads and checks rules. `policy` tells which requests are internal and what runs later.
    pub(crate) fn compile(texts: &[RuleText<'_>], policy: &Policy) -> Result<Self, Vec<Finding>> {
        let mut builder = Builder::default();
        for text in texts {
            builder.add(text);
        }
        let Builder {
            set,
            says,
            names,
            mut findings,
        } = builder;
        if names.is_empty() && findings.is_empty() {
            return Ok(Self::default());
        }
        let mut set = set;
        // Cedar denies what nothing permits; here only the rules' own `forbid`s are to speak.
        let permit = PolicyId::new("kairos: everything that no rule forbids");
        match CedarPolicy::parse(Some(permit), "permit(principal, action, resource);") {
            Ok(policy) => set.add(policy).unwrap_or_default(),
            Err(_) => findings.extend(
                texts
                    .first()
                    .map(|text| text.wrong(0, 0, "Cedar failed", "here")),
            ),
        }
        if !findings.is_empty() {
            return Err(findings);
        }
        Ok(Self {
            rules: Some(Arc::new(Compiled {
                set,
                says,
                policy: policy.clone(),
            })),
            names,
        })
    }
}

impl Rules for CedarRules {
    fn forbids(
        &self,
        effect: &Effect,
        level: Level,
        origin_untrusted: bool,
    ) -> Result<Option<Refusal>, String> {
        match &self.rules {
            Some(compiled) => compiled.forbids(effect, level, origin_untrusted),
            None => Ok(None),
        }
    }
}

impl Compiled {
    fn forbids(
        &self,
        effect: &Effect,
        level: Level,
        untrusted: bool,
    ) -> Result<Option<Refusal>, String> {
        let asked = self
            .ask(effect, level, untrusted)
            .map_err(|why| format!("the rules could not be asked: {why}"))?;
        let response = Authorizer::new().is_authorized(&asked.0, &self.set, &asked.1);
        if let Some(error) = response.diagnostics().errors().next() {
            return Err(format!("a rule could not be evaluated: {error}"));
        }
        if response.decision() == cedar_policy::Decision::Allow {
            return Ok(None);
        }
        let mut broken: Vec<&(String, Option<String>)> = response
            .diagnostics()
            .reason()
            .filter_map(|id| self.says.get(id))
            .collect();
        broken.sort();
        match broken.first() {
            Some((rule, says)) => Ok(Some(Refusal::Rule {
                rule: rule.clone(),
                says: says.clone(),
            })),
            None => Err("the rules deny it without saying why".to_string()),
        }
    }

    fn ask(
        &self,
        effect: &Effect,
        level: Level,
        untrusted: bool,
    ) -> Result<(Request, Entities), String> {
        let internal = self.internal(effect);
        let executes = match &effect.object {
            Object::Location { tree, path } => {
                self.policy.executes(tree, path).is_some()
                    || effect.fields.contains_key(kernel::policy::EXECUTES)
            }
            _ => false,
        };
        let resource = self.resource(&effect.object)?;
        let context = Context::from_pairs([
            ("level".to_string(), text(level.name())),
            (
                "rank".to_string(),
                RestrictedExpression::new_long(level as i64),
            ),
            (
                "untrusted".to_string(),
                RestrictedExpression::new_bool(untrusted && !internal),
            ),
            (
                "internal".to_string(),
                RestrictedExpression::new_bool(internal),
            ),
            (
                "executes".to_string(),
                RestrictedExpression::new_bool(executes),
            ),
            ("operation".to_string(), text(effect.operation.name())),
            ("class".to_string(), text(effect.class.name())),
            ("bytes".to_string(), long(effect.payload.bytes)),
            (
                "gated".to_string(),
                RestrictedExpression::new_set(
                    self.policy
                        .gated(effect)
                        .iter()
                        .map(|gated| text(&gated.value)),
                ),
            ),
        ])
        .map_err(|error| error.to_string())?;
        let request = Request::new(
            uid("Agent", "agent")?,
            uid("Action", action(&effect.operation))?,
            resource.uid(),
            context,
            None,
        )
        .map_err(|error| error.to_string())?;
        let mut entities = vec![resource];
        for (child, parent) in GROUPS {
            let parents = HashSet::from([uid("Action", parent)?]);
            entities.push(Entity::new_no_attrs(uid("Action", child)?, parents));
        }
        let entities =
            Entities::from_entities(entities, None).map_err(|error| error.to_string())?;
        Ok((request, entities))
    }

    fn internal(&self, effect: &Effect) -> bool {
        match (&effect.object, &effect.operation) {
            (
                Object::Party {
                    host, port, path, ..
                },
                Operation::Request(method),
            ) => self.policy.internal(host, *port, method, path),
            (
                Object::Party {
                    host, port, path, ..
                },
                Operation::Message,
            ) => self.policy.internal(host, *port, "GET", path),
            _ => false,
        }
    }

    fn resource(&self, object: &Object) -> Result<Entity, String> {
        let mut attributes: HashMap<String, RestrictedExpression> = HashMap::new();
        let mut set = |name: &str, value| {
            attributes.insert(name.to_string(), value);
        };
        let kind = match object {
            Object::Location { tree, path } => {
                let name = path.rsplit('/').next().unwrap_or_default();
                let ext = name
                    .rsplit_once('.')
                    .map(|(_, ext)| ext)
                    .unwrap_or_default();
                set("tree", text(tree));
                set("path", text(path));
                set("name", text(name));
                set("ext", text(ext));
                "Location"
            }
            Object::Party {
                scheme,
                host,
                port,
                path,
            } => {
                let (bare, query) = path.split_once('?').unwrap_or((path, ""));
                let name = self
                    .policy
                    .party(host, *port)
                    .map(|party| party.name.as_str());
                set("name", text(name.unwrap_or_default()));
                set("scheme", text(scheme));
                set("host", text(host));
                set("port", long(u64::from(*port)));
                set("path", text(bare));
                set("query", text(query));
                if let Ok(address) = host.parse::<IpAddr>() {
                    set("ip", RestrictedExpression::new_ip(address.to_string()));
                }
                "Party"
            }
            Object::Tool { name } => {
                set("name", text(name));
                "Tool"
            }
        };
        Entity::new(uid(kind, &object.to_string())?, attributes, HashSet::new())
            .map_err(|error| error.to_string())
    }
}

/// Actions and the group each belongs to, as in the schema.
const GROUPS: [(&str, &str); 6] = [
    ("file_write", "file_change"),
    ("file_delete", "file_change"),
    ("file_attributes", "file_change"),
    ("request", "network"),
    ("message", "network"),
    ("connect", "network"),
];

fn action(operation: &Operation) -> &'static str {
    match operation {
        Operation::File(FileOp::Create | FileOp::Modify) => "file_write",
        Operation::File(FileOp::Delete) => "file_delete",
        Operation::File(FileOp::Attributes) => "file_attributes",
        Operation::Request(_) => "request",
        Operation::Message => "message",
        Operation::Connect => "connect",
        Operation::Call => "call",
    }
}

fn uid(kind: &str, id: &str) -> Result<EntityUid, String> {
    let kind = EntityTypeName::from_str(&format!("Kairos::{kind}")).map_err(|e| e.to_string())?;
    Ok(EntityUid::from_type_name_and_id(kind, EntityId::new(id)))
}

fn text(text: &str) -> RestrictedExpression {
    RestrictedExpression::new_string(text.to_string())
}

fn long(number: u64) -> RestrictedExpression {
    RestrictedExpression::new_long(i64::try_from(number).unwrap_or(i64::MAX))
}

#[derive(Default)]
struct Builder {
    set: PolicySet,
    says: HashMap<PolicyId, (String, Option<String>)>,
    names: Vec<String>,
    findings: Vec<Finding>,
}

impl Builder {
    fn add(&mut self, text: &RuleText<'_>) {
        let parsed = match PolicySet::from_str(text.cedar) {
            Ok(parsed) => parsed,
            Err(errors) => {
                for error in errors.iter() {
                    self.findings
                        .push(text.cedar_error(error, "this is not Cedar"));
                }
                return;
            }
        };
        for template in parsed.templates() {
            let at = text.place_of(&template.to_string());
            let what = "a rule cannot have slots (`?principal`, `?resource`)";
            self.findings
                .push(text.wrong(at.0, at.1, what, "this rule"));
        }
        let mut policies: Vec<(usize, CedarPolicy)> = parsed
            .policies()
            .map(|policy| (number(policy.id()), policy.clone()))
            .collect();
        policies.sort_by_key(|(number, _)| *number);
        let before = self.findings.len();
        if policies.is_empty() && parsed.num_of_templates() == 0 {
            self.findings.push(
                text.wrong(0, text.cedar.len(), "there is no rule in it", "here")
                    .help("write `forbid(principal, action, resource) when { ... };`, or leave it out"),
            );
        }
        let mut mine = PolicySet::new();
        for (_, policy) in policies {
            let id = PolicyId::new(format!("rule{}", self.names.len()));
            let policy = policy.new_id(id.clone());
            self.admit(text, &policy, &id);
            if mine.add(policy.clone()).is_err() || self.set.add(policy).is_err() {
                self.findings.push(text.wrong(
                    0,
                    text.cedar.len(),
                    "two rules have one id",
                    "here",
                ));
            }
        }
        if self.findings.len() == before {
            self.validate(text, &mine);
        }
    }

    fn admit(&mut self, text: &RuleText<'_>, policy: &CedarPolicy, id: &PolicyId) {
        if policy.effect() == CedarEffect::Permit {
            let at = text.cedar.find("permit").unwrap_or(0);
            self.findings.push(
                text.wrong(
                    at,
                    "permit".len(),
                    "a rule of Kairos only refuses; `permit` has no place in it",
                    "here",
                )
                .help(
                    "write `forbid(...)` for what must never happen; what may go out is said by \
                         `[[party]] allow = ...` and `[[source]] trusted = ...`",
                ),
            );
        }
        let annotated = |key| {
            policy
                .annotation(key)
                .map(str::to_string)
                .filter(|s| !s.is_empty())
        };
        let (name, says) = match text.named {
            Some((name, says)) => (name.to_string(), says.map(str::to_string)),
            None => {
                let unnamed = || format!("{}, rule {}", text.file, self.names.len() + 1);
                (
                    annotated("name")
                        .or_else(|| annotated("id"))
                        .unwrap_or_else(unnamed),
                    None,
                )
            }
        };
        self.names.push(name.clone());
        self.says
            .insert(id.clone(), (name, says.or_else(|| annotated("says"))));
    }

    fn validate(&mut self, text: &RuleText<'_>, set: &PolicySet) {
        let schema = match Schema::from_cedarschema_str(SCHEMA) {
            Ok((schema, _)) => schema,
            Err(error) => {
                let what = format!("the schema of rules is broken: {error}");
                self.findings.push(text.wrong(0, 0, what, "here"));
                return;
            }
        };
        let result = Validator::new(schema).validate(set, ValidationMode::Strict);
        let mut seen = BTreeMap::new();
        for error in result.validation_errors() {
            let finding = text.cedar_error(error, "this rule does not fit what effects are");
            seen.insert(
                (finding.line, finding.column, finding.what.clone()),
                finding,
            );
        }
        self.findings.extend(seen.into_values());
    }
}

/// `policy12` -> 12: the order in the text.
fn number(id: &PolicyId) -> usize {
    AsRef::<str>::as_ref(id)
        .trim_start_matches(|c: char| !c.is_ascii_digit())
        .parse()
        .unwrap_or(0)
}

impl RuleText<'_> {
    fn wrong(&self, at: usize, length: usize, what: impl Into<String>, here: &str) -> Finding {
        let start = self.start + at;
        Finding::at(self.file, self.text, start..start + length, what, here)
    }

    fn place_of(&self, needle: &str) -> (usize, usize) {
        match self.cedar.find(needle) {
            Some(at) => (at, needle.len()),
            None => (0, self.cedar.len()),
        }
    }

    fn cedar_error(&self, error: &dyn miette::Diagnostic, what: &str) -> Finding {
        let label = error.labels().and_then(|mut labels| labels.next());
        let (at, length) = label
            .as_ref()
            .map_or((0, self.cedar.trim_end().len()), |label| {
                (label.offset(), label.len())
            });
        let here = label.and_then(|label| label.label().map(str::to_string));
        let said = cleaned(&error.to_string());
        let finding = self.wrong(
            at,
            length,
            format!("{what}: {said}"),
            here.as_deref().unwrap_or("here"),
        );
        let words = words_of_schema();
        let wrong_word = self.cedar.get(at..at + length).unwrap_or_default();
        let last = wrong_word
            .rsplit(['.', ':', '"'])
            .find(|s| !s.is_empty())
            .unwrap_or_default();
        match error.help() {
            Some(help) => finding.help(help.to_string()),
            None => match nearest(last, words.iter().copied()) {
                Some(near) if near != last => finding.help(format!("did you mean `{near}`?")),
                _ => finding
                    .help("docs/policy.md lists the actions, attributes and context of rules"),
            },
        }
    }
}

/// Cedar names a rule by our number; people know it by its place.
fn cleaned(message: &str) -> String {
    match message.split_once("`, ") {
        Some((head, rest)) if head.starts_with("for policy `") => rest.to_string(),
        _ => message.to_string(),
    }
}

fn words_of_schema() -> Vec<&'static str> {
    SCHEMA
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .flat_map(|line| line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'))
        .filter(|word| word.len() > 1)
        .collect()
}
