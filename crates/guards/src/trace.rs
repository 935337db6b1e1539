//! What happened, step by step: the principal's words, what the model said and called, what came
//! back, and what reached the boundary. Steps are only added; what a command would do is read once,
//! when its step is added, from the steps before it and nothing else.

use std::collections::{BTreeMap, BTreeSet};

use crate::egress::{self, Effects, Known};
use crate::reflection::Watch;
use crate::secrets;

/// Longer texts are looked into this far.
const TEXT_BYTES_MAX: usize = 256 << 10;

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The principal's words: the only step that is authority.
    Task(String),
    /// Text of the user role in the conversation, which agents also use for their own.
    User(String),
    /// What the model said.
    Narration(String),
    /// What it thought, as far as it is shown.
    Reasoning(String),
    /// A tool call.
    Call {
        /// Ties the result to it.
        id: String,
        /// The tool.
        name: String,
        /// Shell commands in it.
        commands: Vec<String>,
        /// Files that it writes, with what.
        writes: Vec<(String, String)>,
        /// Paths that it names.
        paths: Vec<String>,
    },
    /// What a tool gave back.
    Result {
        /// The call's id.
        id: String,
        /// Its text.
        text: String,
    },
    /// Content reached the agent through the boundary.
    Read {
        /// From where, in words: a path, a host.
        source: String,
        /// Whether the policy calls the place sensitive.
        sensitive: bool,
        /// The content, as far as it is kept.
        text: Option<String>,
    },
    /// An effect reached the boundary.
    Effect {
        /// Its event.
        event: u64,
        /// What it does.
        operation: String,
        /// To what, in words.
        object: String,
        /// The host, for what leaves.
        host: Option<String>,
        /// `release`, `refuse`, `defer`.
        decision: String,
        /// Whether it carries sensitive content.
        carries: bool,
    },
}

/// What an operator and earlier sessions say.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Further places that hold secrets: names, or paths below the workspace.
    pub sensitive: Vec<String>,
    /// Hosts of model providers: what goes there is the conversation itself.
    pub providers: Vec<String>,
    /// What earlier sessions taught.
    pub watch: Watch,
}

/// A session so far.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    settings: Settings,
    steps: Vec<Step>,
    /// For each call: what its commands would do.
    effects: BTreeMap<usize, Effects>,
    known: Known,
    /// Secrets met so far, as written.
    secrets: BTreeSet<String>,
    /// The first step after which the agent knew something sensitive.
    knows: Option<usize>,
    /// Calls without a result, oldest first.
    open: Vec<usize>,
    /// The call that an effect belongs to.
    belongs: BTreeMap<usize, usize>,
    task: String,
}

impl Trace {
    /// An empty trace.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let known = Known {
            sensitive: settings.sensitive.clone(),
            ..Known::default()
        };
        Self {
            settings,
            known,
            ..Self::default()
        }
    }

    /// A trace of these steps.
    #[must_use]
    pub fn of(settings: Settings, steps: impl IntoIterator<Item = Step>) -> Self {
        let mut trace = Self::new(settings);
        steps.into_iter().for_each(|step| trace.push(step));
        trace
    }

    /// Adds a step.
    pub fn push(&mut self, step: Step) {
        let at = self.steps.len();
        match &step {
            Step::Task(text) => {
                self.task.push_str(text);
                self.task.push('\n');
            }
            Step::Call {
                commands,
                writes,
                paths,
                ..
            } => {
                let effects = self.read_call(commands, writes, paths);
                if !effects.reads.is_empty() {
                    self.knows.get_or_insert(at);
                }
                self.known.copies.extend(effects.copies.iter().cloned());
                for (path, content) in writes {
                    self.known.written.insert(path.clone(), content.clone());
                }
                self.effects.insert(at, effects);
                self.open.push(at);
            }
            Step::Result { id, text } => {
                let call = self.open.iter().position(|call| self.is_call(*call, id));
                if let Some(call) = call.map(|place| self.open.remove(place))
                    && self
                        .effects
                        .get(&call)
                        .is_some_and(|effects| !effects.reads.is_empty())
                {
                    self.secrets.extend(secrets::tokens(shortened(text)));
                }
            }
            Step::Read {
                source,
                sensitive,
                text,
            } if *sensitive || secrets::is_sensitive(source, &self.settings.sensitive) => {
                self.knows.get_or_insert(at);
                if let Some(text) = text {
                    self.secrets.extend(secrets::tokens(shortened(text)));
                }
            }
            Step::Effect { host, object, .. } => {
                if let Some(call) = self.cause(host.as_deref(), object) {
                    self.belongs.insert(at, call);
                }
            }
            Step::User(_) | Step::Narration(_) | Step::Reasoning(_) | Step::Read { .. } => {}
        }
        self.steps.push(step);
    }

    /// The steps.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The principal's words.
    #[must_use]
    pub fn task(&self) -> &str {
        &self.task
    }

    /// What was set at the start.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What the commands of the call at a step would do.
    #[must_use]
    pub fn effects(&self, step: usize) -> Option<&Effects> {
        self.effects.get(&step)
    }

    /// The calls, with their steps.
    pub fn calls(&self) -> impl Iterator<Item = (usize, &Effects)> {
        self.effects.iter().map(|(step, effects)| (*step, effects))
    }

    /// The call that an effect belongs to: the one open at the time that mentions its target, or the
    /// only one that was open.
    #[must_use]
    pub fn belongs(&self, step: usize) -> Option<usize> {
        self.belongs.get(&step).copied()
    }

    /// Whether the agent knew something sensitive before a step.
    #[must_use]
    pub fn knew_before(&self, step: usize) -> bool {
        self.knows.is_some_and(|knows| knows < step)
    }

    /// Whether a text holds a secret that the agent met, in a form that it may have given it.
    #[must_use]
    pub fn holds_secret(&self, text: &str) -> bool {
        !text.is_empty()
            && self.secrets.iter().any(|secret| {
                secrets::forms(secret)
                    .iter()
                    .any(|form| text.contains(form.as_str()))
            })
    }

    /// The file or party whose content, seen before `step`, holds `host`. Nothing else is a source.
    #[must_use]
    pub fn source_of(&self, host: &str, step: usize) -> Option<String> {
        let before = self.steps.get(..step).unwrap_or_default();
        for (at, earlier) in before.iter().enumerate() {
            match earlier {
                Step::Read {
                    source,
                    text: Some(text),
                    ..
                } if mentions(text, host) => return Some(source.clone()),
                Step::Result { id, text } if mentions(text, host) => {
                    if let Some(path) = self.read_by(id, at) {
                        return Some(path);
                    }
                }
                _ => {}
            }
        }
        None
    }

    /// Whether the principal named this.
    #[must_use]
    pub fn named_by_principal(&self, value: &str) -> bool {
        mentions(&self.task, value)
    }

    fn is_call(&self, step: usize, id: &str) -> bool {
        matches!(self.steps.get(step), Some(Step::Call { id: call, name, .. })
            if !id.is_empty() && (call == id || call.is_empty() && name == id))
    }

    /// The one file that the call of a result read.
    fn read_by(&self, id: &str, before: usize) -> Option<String> {
        let calls = self.steps.get(..before)?.iter().enumerate().rev();
        for (at, step) in calls {
            let Step::Call {
                id: call,
                name,
                paths,
                commands,
                ..
            } = step
            else {
                continue;
            };
            if call != id && !(call.is_empty() && name == id) {
                continue;
            }
            if let [path] = &paths[..] {
                return Some(path.clone());
            }
            let effects = self.effects.get(&at)?;
            let mut names = effects.names.iter().filter(|name| is_file(name, commands));
            let first = names.next()?;
            return names.next().is_none().then(|| first.clone());
        }
        None
    }

    fn read_call(
        &self,
        commands: &[String],
        writes: &[(String, String)],
        paths: &[String],
    ) -> Effects {
        let mut known = self.known.clone();
        known.written.extend(writes.iter().cloned());
        let mut all = Effects::default();
        for command in commands {
            let effects = egress::classify(command, &known);
            known.copies.extend(effects.copies.iter().cloned());
            all.egress.extend(effects.egress);
            all.reads.extend(effects.reads);
            all.names.extend(effects.names);
            all.copies.extend(effects.copies);
            all.programs.extend(effects.programs);
            all.destroys |= effects.destroys;
        }
        if commands.is_empty() {
            for path in paths {
                all.names.insert(path.clone());
                if writes.is_empty() && secrets::is_sensitive(path, &self.settings.sensitive) {
                    all.reads.insert(path.clone());
                }
            }
        }
        for (path, content) in writes {
            // A secret that the agent writes down somewhere else.
            if self.holds_secret(shortened(content)) {
                all.copies
                    .push((path.clone(), BTreeSet::from(["a secret".to_owned()])));
            }
        }
        all
    }

    fn cause(&self, host: Option<&str>, object: &str) -> Option<usize> {
        let says = |call: &&usize| {
            let Some(effects) = self.effects.get(call) else {
                return false;
            };
            match host {
                Some(host) => effects.egress.iter().any(|egress| {
                    egress.hosts.iter().any(|other| other == host) || egress.text.contains(host)
                }),
                None => effects.names.iter().any(|name| name.ends_with(object)),
            }
        };
        match self.open.iter().rev().find(says) {
            Some(call) => Some(*call),
            None => match &self.open[..] {
                [only] => Some(*only),
                _ => None,
            },
        }
    }
}

/// Whether a text mentions a value as a word of its own.
pub(crate) fn mentions(text: &str, value: &str) -> bool {
    if value.is_empty() {
        return false;
    }
    let (text, value) = (text.to_ascii_lowercase(), value.to_ascii_lowercase());
    let part = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    text.match_indices(&value).any(|(at, _)| {
        let before = text.get(..at).and_then(|text| text.chars().next_back());
        let after = text
            .get(at + value.len()..)
            .and_then(|text| text.chars().next());
        !before.is_some_and(part) && !after.is_some_and(part)
    })
}

/// Something that looks like the name of a file among the words of a command.
fn is_file(name: &str, commands: &[String]) -> bool {
    let plain =
        !name.contains(['"', '\'', '$', '(', ' ', '|', '\n', '&']) && !name.starts_with('-');
    let shape = name.contains('.') || name.contains('/');
    plain && shape && !name.contains("://") && commands.iter().any(|command| command.contains(name))
}

fn shortened(text: &str) -> &str {
    let mut end = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}
