//! Reads along while an agent works: its conversation with the model and what reaches the boundary
//! become one trace, the guards look at it, and one decider says what follows. Everything here is
//! evidence: it can refuse, tell and end, and releases nothing.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use conversation::{Call, Item, Protocol, Reader};
use guards::finding::Severity;
use guards::outcome::Moment;
use guards::{Any, Code, Decider, Guards, Outcome, Step, Trace, findings};
use kernel::policy::Rules;
use kernel::{Channel, Effect, Level, Object, Refusal};
use monitor::{Happening, Session};

use crate::memory;
use crate::steps;
use crate::telling::Telling;

/// What the guards may do in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watch {
    /// Nothing is read along.
    Off,
    /// They look, record and learn, and change nothing.
    Observe,
    /// These guards decline, steer and interrupt.
    Act(Guards),
}

impl std::str::FromStr for Watch {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self::Off),
            "observe" => Ok(Self::Observe),
            "egress" => Ok(Self::Act(Guards::Egress)),
            "all" => Ok(Self::Act(Guards::All)),
            _ => Err("write `off`, `observe`, `egress` or `all`".to_string()),
        }
    }
}

/// The prefix of the rule that a guard's refusal names.
const RULE: &str = "guard ";

/// One session's reading.
pub(crate) struct Watching {
    watch: Watch,
    telling: Arc<Telling>,
    session: OnceLock<Weak<Session>>,
    memory: PathBuf,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    reader: Reader,
    trace: Trace,
    decider: Decider,
    /// How many of the principal's lines are in the trace.
    tasks: usize,
    /// Effects that reached the boundary and are not in the trace yet.
    effects: Vec<Step>,
    /// Findings so far.
    found: Vec<Any>,
    known: BTreeSet<(usize, Code)>,
    /// Steps whose effects are declined, and by which guard.
    declined: Vec<(usize, &'static str)>,
    interrupted: Option<String>,
}

impl Watching {
    /// Reads along in a session whose agent and workspace have this memory.
    pub(crate) fn new(
        watch: Watch,
        telling: Arc<Telling>,
        settings: guards::Settings,
        memory: PathBuf,
    ) -> Arc<Self> {
        let mut settings = settings;
        // A memory that cannot be read teaches nothing; the guards work without it.
        settings.watch = memory::read(&memory)
            .map(|memory| memory.watch())
            .unwrap_or_default();
        Arc::new(Self {
            watch,
            telling,
            session: OnceLock::new(),
            memory,
            inner: Mutex::new(Inner {
                trace: Trace::new(settings),
                ..Inner::default()
            }),
        })
    }

    /// Hears what happens in a session, from now on.
    pub(crate) fn listen(self: &Arc<Self>, session: &Arc<Session>) {
        if self.watch == Watch::Off {
            return;
        }
        // Named once; a second name would be the same session's.
        let _ = self.session.set(Arc::downgrade(session));
        let this = Arc::downgrade(self);
        session.subscribe(Box::new(move |happening| {
            let Some(this) = this.upgrade() else { return };
            let (event, effect, decision) = match happening {
                Happening::Released { event, effect } => (event.0, effect, "release"),
                Happening::Refused { event, effect, .. } => (event.0, effect, "refuse"),
                Happening::Held(held) => (held.hold.0, &held.effect, "defer"),
                _ => return,
            };
            let Some(policy) = this.session().map(|session| session.policy()) else {
                return;
            };
            if let Some(step) = steps::effect(event, effect, decision, &policy) {
                this.inner().effects.push(step);
            }
        }));
    }

    /// A request to the model.
    pub(crate) fn request(&self, call: Call, body: &[u8]) {
        if self.watch == Watch::Off {
            return;
        }
        // What cannot be read is traffic all the same.
        let items = self.inner().reader.request(call, body).unwrap_or_default();
        self.take(&items);
    }

    /// A piece of the model's answer.
    pub(crate) fn answer(&self, key: &str, protocol: Protocol, bytes: &[u8]) {
        if self.watch == Watch::Off {
            return;
        }
        let items = self.inner().reader.answer(key, protocol, bytes);
        if !items.is_empty() {
            self.take(&items);
        }
    }

    /// Why the guards ended the session, if they did.
    pub(crate) fn interrupted(&self) -> Option<String> {
        self.inner().interrupted.clone()
    }

    /// The agent has ended: what was found is kept for the next session. Returns what a person
    /// should know.
    pub(crate) fn finish(&self, conversation: &str) -> Vec<String> {
        if self.watch == Watch::Off {
            return Vec::new();
        }
        self.take(&[]);
        let inner = self.inner();
        let mut notes = Vec::new();
        if let Some(why) = &inner.interrupted {
            notes.push(format!("the guards ended the session: {why}"));
        }
        if let Err(why) = memory::learn(&self.memory, &inner.found, &inner.trace, conversation) {
            notes.push(why);
        }
        notes
    }

    fn take(&self, items: &[Item]) {
        let Some(session) = self.session() else {
            return;
        };
        for item in items {
            let (mut facts, text) = steps::facts(item);
            if let Ok(digest) = session.blobs().put_soon(&text) {
                facts.insert("blob".to_string(), digest.hex());
            }
            session.note(steps::NOTE, facts);
        }
        let tasks = session.task();
        let mut inner = self.inner();
        let said: Vec<Step> = tasks
            .iter()
            .skip(inner.tasks)
            .cloned()
            .map(Step::Task)
            .collect();
        inner.tasks = tasks.len();
        let effects = std::mem::take(&mut inner.effects);
        let conversation = items.iter().filter_map(steps::step);
        // What happened at the boundary happened before the model was told of it.
        for step in said.into_iter().chain(effects).chain(conversation) {
            inner.trace.push(step);
        }
        let fresh = inner.look(self.watch);
        drop(inner);
        for (finding, outcome) in fresh {
            self.record(&session, &finding, &outcome);
            match outcome {
                Outcome::Accept => {}
                Outcome::Decline(text) | Outcome::Steer(text) => self.telling.say(text),
                Outcome::Interrupt(_) => {}
            }
        }
    }

    fn record(&self, session: &Session, finding: &Any, outcome: &Outcome) {
        let mut facts: std::collections::BTreeMap<String, String> = finding
            .facts()
            .iter()
            .map(|(name, value)| ((*name).to_string(), value.clone()))
            .collect();
        facts.insert("finding".to_string(), finding.code().name().to_string());
        facts.insert("guard".to_string(), finding.code().guard().to_string());
        facts.insert("outcome".to_string(), outcome.name().to_string());
        session.note("finding", facts);
    }

    /// Whether a guard declined the step that an effect belongs to.
    fn declines(&self, effect: &Effect) -> Option<&'static str> {
        if effect.channel != Channel::Net {
            return None;
        }
        let Object::Party { host, .. } = &effect.object else {
            return None;
        };
        let inner = self.inner();
        inner.declined.iter().rev().find_map(|(step, guard)| {
            let effects = inner.trace.effects(*step)?;
            let named = effects.egress.iter().any(|egress| {
                egress.hosts.iter().any(|other| other == host)
                    || egress.text.contains(host.as_str())
            });
            let unnamed = effects.egress.iter().all(|egress| egress.hosts.is_empty());
            let last = inner
                .trace
                .calls()
                .last()
                .is_some_and(|(call, _)| call == *step);
            (named || unnamed && last).then_some(*guard)
        })
    }

    fn session(&self) -> Option<Arc<Session>> {
        self.session.get().and_then(Weak::upgrade)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// What is new, and what follows from it.
    fn look(&mut self, watch: Watch) -> Vec<(Any, Outcome)> {
        let chosen = match watch {
            Watch::Off => Guards::Off,
            Watch::Observe => Guards::All,
            Watch::Act(guards) => guards,
        };
        let mut fresh: Vec<Any> = findings(&self.trace, chosen);
        fresh.retain(|finding| self.known.insert((finding.step(), finding.code())));
        self.found.extend(fresh.iter().cloned());
        let mut decided = Vec::new();
        while let Some(first) = fresh.first().map(Any::step) {
            let (here, rest): (Vec<Any>, Vec<Any>) = fresh
                .into_iter()
                .partition(|finding| finding.step() == first);
            fresh = rest;
            let outcome = match watch {
                Watch::Act(_) => {
                    let moment = self.moment(first);
                    self.decider.decide(self.trace.task(), &here, moment)
                }
                Watch::Off | Watch::Observe => Outcome::Accept,
            };
            // The strongest finding is the one that decided.
            let mut here = here;
            here.sort_by_key(|finding| std::cmp::Reverse(rank(finding)));
            match &outcome {
                Outcome::Decline(_) => {
                    if let Some(finding) = here.first() {
                        self.declined.push((first, finding.code().guard()));
                    }
                }
                Outcome::Interrupt(_) => {
                    if let Some(finding) = here.first() {
                        self.declined.push((first, finding.code().guard()));
                        self.interrupted.get_or_insert_with(|| {
                            format!("`{}` again and again", finding.code().name())
                        });
                    }
                }
                Outcome::Accept | Outcome::Steer(_) => {}
            }
            for (index, finding) in here.into_iter().enumerate() {
                let own = if index == 0 {
                    outcome.clone()
                } else {
                    Outcome::Accept
                };
                decided.push((finding, own));
            }
        }
        decided
    }

    /// A tool call without a result is still to come; an effect that was released is past.
    fn moment(&self, step: usize) -> Moment {
        match self.trace.steps().get(step) {
            Some(Step::Call { id, .. }) => {
                let done =
                    self.trace.steps().iter().skip(step).any(
                        |later| matches!(later, Step::Result { id: result, .. } if result == id),
                    );
                if done { Moment::Past } else { Moment::Pending }
            }
            Some(Step::Effect { decision, .. }) if decision != "release" => Moment::Pending,
            _ => Moment::Past,
        }
    }
}

fn rank(finding: &Any) -> (u8, Severity) {
    let power = match finding {
        Any::Stop(_) => 2,
        Any::Correct(_) => 1,
        Any::Warn(_) => 0,
    };
    (power, finding.severity())
}

/// The policy's rules, and what the guards declined.
pub(crate) struct Guarded<R> {
    pub(crate) rules: R,
    pub(crate) watching: Arc<Watching>,
}

impl<R: Rules> Rules for Guarded<R> {
    fn forbids(
        &self,
        effect: &Effect,
        level: Level,
        origin_untrusted: bool,
    ) -> Result<Option<Refusal>, String> {
        if let Some(refusal) = self.rules.forbids(effect, level, origin_untrusted)? {
            return Ok(Some(refusal));
        }
        Ok(self.watching.declines(effect).map(|guard| Refusal::Rule {
            rule: format!("{RULE}{guard}"),
            says: None,
        }))
    }
}

/// Where the memory of an agent in a workspace lies.
pub(crate) fn memory_place(root: &Path, program: &str, workspace: &Path) -> PathBuf {
    let agent: String = program
        .rsplit('/')
        .next()
        .unwrap_or(program)
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || *c == '-' || *c == '_')
        .take(40)
        .collect();
    let digest = kernel::Digest::of(workspace.as_os_str().as_encoded_bytes()).hex();
    let short = digest.get(..16).unwrap_or_default();
    root.join("memory").join(format!("{agent}-{short}.json"))
}
