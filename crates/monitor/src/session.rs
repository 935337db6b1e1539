//! A session: the state, the log and the ports together. Everything public takes `&self`; the
//! one lock is held for microseconds and never while a channel or an oracle works.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Instant;

use kernel::manifest::Nonce;
use kernel::policy::{Policy, Rules};
use kernel::{
    Digest, Effect, EventId, HoldId, Incoming, Label, Level, Notice, Origin, Place, Question,
    Refusal, Relabel, Scanner, State, Verdict,
};
use store::{Blobs, Lease, Log, LogError, Parked, Record, Recovered, SessionDir, WorkspaceLabels};

use crate::effect;
use crate::ports::{Chance, Channel, Clock, Happening};

/// So many lines of the trace are kept at least; the log has all of it.
const TRACE_LINES_MAX: usize = 4096;

/// A hold as adapters and reviewers see it.
#[derive(Clone, Debug)]
pub struct Held {
    /// Its name.
    pub hold: HoldId,
    /// What an oracle is asked.
    pub question: Question,
    /// The effect.
    pub effect: Effect,
    /// Digest of its manifest.
    pub manifest: Digest,
    /// The mark its stub has to carry.
    pub mark: String,
    /// What the agent is told meanwhile.
    pub notice: Notice,
    /// Whether an oracle released it already and it only waits for what it depends on.
    pub endorsed: bool,
    /// What the channel parked.
    pub parked: Parked,
    /// Level of what it carries and where that came from; none for public content.
    pub carries: Option<(Level, Vec<Origin>)>,
}

/// How a proposed effect was decided.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "an outcome is answered at once and never stored"
)]
pub enum Outcome {
    /// It may happen now, under this lease.
    Released(Lease),
    /// It must not happen.
    Refused {
        /// The event.
        event: EventId,
        /// Why.
        refusal: Refusal,
        /// What to tell the agent.
        notice: Notice,
    },
    /// It is held.
    Held(Held),
}

/// What a session is made of.
pub struct Parts {
    /// The policy in force.
    pub policy: Arc<Policy>,
    /// Its refusing rules.
    pub rules: Arc<dyn Rules + Send + Sync>,
    /// The open log, its header written.
    pub log: Log,
    /// The session's directory.
    pub dir: SessionDir,
    /// Parked bytes.
    pub blobs: Blobs,
    /// Identity of the workspace.
    pub workspace: String,
    /// Where chance comes from.
    pub chance: Arc<dyn Chance>,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// Where labels are kept with the workspace; without it they last as long as the session.
    pub labels: Option<WorkspaceLabels>,
    /// What an earlier process left, if any.
    pub recovered: Option<Recovered>,
}

type Listener = Box<dyn Fn(&Happening) + Send + Sync>;
type Hook = Box<dyn Fn() + Send + Sync>;

/// A running (or recovered) session.
pub struct Session {
    pub(crate) core: Mutex<Core>,
    policy: RwLock<Arc<Policy>>,
    rules: RwLock<Arc<dyn Rules + Send + Sync>>,
    blobs: Blobs,
    dir: SessionDir,
    workspace: String,
    chance: Arc<dyn Chance>,
    clock: Arc<dyn Clock>,
    channels: RwLock<BTreeMap<kernel::Channel, Arc<dyn Channel>>>,
    listeners: RwLock<Vec<Listener>>,
    before: RwLock<Vec<Hook>>,
    /// The search for what is known; taken away, under the lock of the core, when more is known.
    scanner: RwLock<Option<Scanner>>,
}

pub(crate) struct Core {
    pub(crate) state: State,
    pub(crate) log: Log,
    pub(crate) ledger: store::ledger::Ledger,
    pub(crate) next_event: u64,
    pub(crate) parked: BTreeMap<HoldId, Parked>,
    pub(crate) opened_ms: BTreeMap<HoldId, u64>,
    pub(crate) labels: Option<WorkspaceLabels>,
    /// Set when secrets that an earlier process knew are not known any more: policy alone
    /// vouches for nothing then.
    pub(crate) forgetful: bool,
    /// Set when the log failed: from then on nothing is released.
    pub(crate) failed: Option<String>,
    pub(crate) task: Vec<String>,
    pub(crate) trace: Vec<String>,
}

impl Session {
    /// Puts a session together.
    pub fn new(parts: Parts) -> Arc<Self> {
        let Parts {
            policy,
            rules,
            log,
            dir,
            blobs,
            workspace,
            chance,
            clock,
            labels,
            recovered,
        } = parts;
        let mut core = Core {
            state: State::default(),
            log,
            ledger: store::ledger::Ledger::default(),
            next_event: 1,
            parked: BTreeMap::new(),
            opened_ms: BTreeMap::new(),
            labels,
            forgetful: false,
            failed: None,
            task: Vec::new(),
            trace: Vec::new(),
        };
        if let Some(recovered) = recovered {
            core.state = recovered.state;
            core.ledger = recovered.ledger;
            core.next_event = recovered.next_event;
            let resumed = Record::Note {
                what: store::recover::RESUMED.to_string(),
                facts: BTreeMap::new(),
            };
            // A log that fails releases nothing.
            let _ = core.append(&resumed);
            core.parked = recovered.parked;
            core.forgetful = recovered.secrets_missing;
            let now_ms = clock.now_ms();
            let open = core.state.holds().iter().map(|held| held.question.hold);
            core.opened_ms = open.map(|hold| (hold, now_ms)).collect();
        } else {
            core.stick();
        }
        Arc::new(Self {
            core: Mutex::new(core),
            policy: RwLock::new(policy),
            rules: RwLock::new(rules),
            blobs,
            dir,
            workspace,
            chance,
            clock,
            channels: RwLock::default(),
            listeners: RwLock::default(),
            before: RwLock::default(),
            scanner: RwLock::default(),
        })
    }

    /// Names the adapter of a channel.
    pub fn attach(&self, name: kernel::Channel, channel: Arc<dyn Channel>) {
        write(&self.channels).insert(name, channel);
    }

    /// Calls `listener` after whatever happens; it must be quick and must not call back.
    pub fn subscribe(&self, listener: Listener) {
        write(&self.listeners).push(listener);
    }

    /// Calls `hook` before every decision (to deliver content that is still queued).
    pub fn before_propose(&self, hook: Hook) {
        write(&self.before).push(hook);
    }

    /// The policy in force.
    pub fn policy(&self) -> Arc<Policy> {
        Arc::clone(&read(&self.policy))
    }

    /// Puts another policy in force: what is held is decided again by it, and no approval given
    /// under the old one counts. May carry out or discard effects in this thread.
    ///
    /// # Errors
    /// When it cannot be recorded; nothing is released any more then.
    pub fn replace_policy(
        &self,
        policy: Arc<Policy>,
        rules: Arc<dyn Rules + Send + Sync>,
    ) -> Result<(), String> {
        *write(&self.policy) = policy;
        *write(&self.rules) = rules;
        effect::reconsider(self)
    }

    /// Holds that have been open for longer than the policy allows, oldest first.
    pub fn overdue(&self) -> Vec<HoldId> {
        let age_ms_max = self.policy().limits.age_s_max.saturating_mul(1000);
        let now_ms = self.now_ms();
        let core = self.core();
        let old = core
            .opened_ms
            .iter()
            .filter(|(_, opened)| now_ms.saturating_sub(**opened) > age_ms_max);
        old.map(|(hold, _)| *hold).collect()
    }

    /// A hold was open for longer than the policy allows and nobody decided it.
    pub fn expire_overdue(&self, hold: HoldId) {
        effect::overdue(self, hold);
    }

    /// A hold and everything it depends on, oldest first: what has to be resolved for it.
    pub fn needs(&self, hold: HoldId) -> Vec<HoldId> {
        self.core().state.holds().needs(hold)
    }

    /// A hold and everything that depends on it, oldest first: what refusing it aborts.
    pub fn dependents(&self, hold: HoldId) -> Vec<HoldId> {
        self.core().state.holds().dependents(hold)
    }

    /// The open scopes, each oldest first.
    pub fn scopes(&self) -> Vec<Vec<HoldId>> {
        self.core().state.holds().scopes()
    }

    /// Parked bytes.
    pub fn blobs(&self) -> &Blobs {
        &self.blobs
    }

    /// The session's directory.
    pub fn dir(&self) -> &SessionDir {
        &self.dir
    }

    /// Content reached the agent.
    pub fn incoming(&self, incoming: Incoming) -> EventId {
        effect::incoming(self, incoming)
    }

    /// The search for everything sensitive known by now.
    pub fn scanner(&self) -> Scanner {
        self.run_before_hooks();
        if let Some(scanner) = &*read(&self.scanner) {
            return scanner.clone();
        }
        let core = self.core();
        let scanner = core.state.provenance().scanner();
        *write(&self.scanner) = Some(scanner.clone());
        scanner
    }

    /// More may be known than there was at `known`; to be called under the lock of the core.
    pub(crate) fn knows_more(&self, core: &Core, known: usize) {
        if core.state.provenance().sensitive_tokens() != known {
            *write(&self.scanner) = None;
        }
    }

    /// Decides a proposed effect. `on_hold` runs before anybody else can see the hold.
    pub fn propose(
        &self,
        effect: Effect,
        parked: Parked,
        on_hold: &mut dyn FnMut(&Held),
    ) -> Outcome {
        self.run_before_hooks();
        effect::propose(self, effect, parked, false, on_hold)
    }

    /// As [`Session::propose`], for what was found undecided after a crash: it is held, whatever
    /// the policy would vouch for.
    pub fn propose_in_doubt(
        &self,
        effect: Effect,
        parked: Parked,
        on_hold: &mut dyn FnMut(&Held),
    ) -> Outcome {
        self.run_before_hooks();
        effect::propose(self, effect, parked, true, on_hold)
    }

    /// What a rule that looks only at operation and object would say now; decides nothing.
    pub fn precheck(&self, effect: &Effect) -> Option<Refusal> {
        let rules = self.rules();
        match rules.forbids(effect, Level::Public, false) {
            Ok(refusal) => refusal,
            Err(why) => Some(Refusal::Failed(why)),
        }
    }

    /// An oracle's answer. May carry out or discard effects in this thread.
    ///
    /// # Errors
    /// Why it was not acted upon: an unknown hold, a stale digest, a log that cannot be written.
    pub fn verdict(
        &self,
        hold: HoldId,
        manifest: Digest,
        verdict: Verdict,
        oracle: &str,
        reason: &str,
    ) -> Result<(), String> {
        effect::verdict(self, hold, manifest, verdict, oracle, reason)
    }

    /// The agent took back what was held.
    pub fn withdraw(&self, hold: HoldId) {
        effect::withdraw(self, hold);
    }

    /// A blocking hold cannot wait and nobody decided it.
    pub fn expire(&self, hold: HoldId) {
        effect::expire(self, hold);
    }

    /// Records what came of an effect that was released at once.
    pub fn done(&self, event: EventId, result: Result<String, String>) {
        effect::done(self, event, result);
    }

    /// As [`Session::incoming`] and then [`Session::done`], in one write: the end of an answer.
    pub fn answered(&self, incoming: Incoming, event: EventId, result: Result<String, String>) {
        effect::answered(self, incoming, event, result);
    }

    /// Records that a notice reached the agent, and how (`answer`, `conversation`, `terminal`).
    pub fn told(&self, notice: &Notice, how: &str) {
        let record = Record::Told {
            event: notice.event.0,
            how: how.to_string(),
            text: notice.text.clone(),
        };
        // A notice that cannot be recorded was given all the same.
        let _ = self.core().append(&record);
    }

    /// Records something that decides nothing.
    pub fn note(&self, what: &str, facts: BTreeMap<String, String>) {
        let _ = self.core().append(&Record::Note {
            what: what.to_string(),
            facts,
        });
    }

    /// Everything held, oldest first.
    pub fn held(&self) -> Vec<Held> {
        let core = self.core();
        core.state
            .holds()
            .iter()
            .map(|hold| core.held(hold))
            .collect()
    }

    /// A hold, if it is open.
    pub fn find(&self, hold: HoldId) -> Option<Held> {
        let core = self.core();
        core.state.holds().find(hold).map(|hold| core.held(hold))
    }

    /// The principal's words so far.
    pub fn task(&self) -> Vec<String> {
        self.core().task.clone()
    }

    /// The latest lines of the trace, oldest first.
    pub fn trace(&self, lines_max: usize) -> Vec<String> {
        let core = self.core();
        let from = core.trace.len().saturating_sub(lines_max);
        core.trace.get(from..).unwrap_or_default().to_vec()
    }

    /// Whether an event's permit was spent.
    pub fn is_spent(&self, event: EventId) -> bool {
        self.core().ledger.is_spent(event)
    }

    /// Why nothing can be released any more, if the log failed.
    pub fn failure(&self) -> Option<String> {
        self.core().failed.clone()
    }

    /// Makes the log durable.
    ///
    /// # Errors
    /// When the disk does not confirm.
    pub fn sync(&self) -> Result<(), String> {
        self.core().sync()
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    pub(crate) fn rules(&self) -> Arc<dyn Rules + Send + Sync> {
        Arc::clone(&read(&self.rules))
    }

    pub(crate) fn workspace(&self) -> &str {
        &self.workspace
    }

    pub(crate) fn nonce(&self) -> Result<Nonce, String> {
        self.chance.bytes16().map(Nonce)
    }

    pub(crate) fn channel(&self, name: kernel::Channel) -> Option<Arc<dyn Channel>> {
        read(&self.channels).get(&name).cloned()
    }

    /// Tells the listeners; what there is to tell is made only when somebody listens.
    pub(crate) fn tell(&self, happening: impl FnOnce() -> Happening) {
        let listeners = read(&self.listeners);
        if listeners.is_empty() {
            return;
        }
        let happening = happening();
        for listener in listeners.iter() {
            listener(&happening);
        }
    }

    pub(crate) fn core(&self) -> MutexGuard<'_, Core> {
        // A poisoned lock means that a thread died in the middle of a decision: the state may be
        // half changed, so nothing is released any more.
        self.core.lock().unwrap_or_else(|poisoned| {
            let mut core = poisoned.into_inner();
            core.failed
                .get_or_insert_with(|| "a part of the monitor failed".to_string());
            core
        })
    }

    fn run_before_hooks(&self) {
        for hook in read(&self.before).iter() {
            hook();
        }
    }
}

impl Core {
    pub(crate) fn append(&mut self, record: &Record) -> Result<u64, LogError> {
        let result = self.log.append(record);
        if let Err(error) = &result {
            self.failed.get_or_insert_with(|| error.to_string());
        }
        result
    }

    /// Writes what the log gathered.
    pub(crate) fn write_out(&mut self) {
        if let Err(error) = self.log.write_out() {
            self.failed.get_or_insert_with(|| error.to_string());
        }
    }

    /// Adds a line to the trace that oracles are shown the end of.
    pub(crate) fn tell(&mut self, line: String) {
        if self.trace.len() >= 2 * TRACE_LINES_MAX {
            self.trace.drain(..TRACE_LINES_MAX);
        }
        self.trace.push(line);
    }

    /// Makes log and labels durable.
    pub(crate) fn sync(&mut self) -> Result<(), String> {
        let labels = self.labels.as_mut().map_or(Ok(()), |labels| {
            labels.sync().map_err(|error| error.to_string())
        });
        let log = self.log.sync().map_err(|error| error.to_string());
        let result = labels.and(log);
        if let Err(why) = &result {
            self.failed.get_or_insert_with(|| why.clone());
        }
        result
    }

    /// Takes over what sticks to the workspace from before.
    fn stick(&mut self) {
        let Some(labels) = &self.labels else { return };
        self.take_over(labels.known().to_vec());
    }

    /// Records labels that other sessions left, and heeds them from now on.
    fn take_over(&mut self, found: Vec<(Place, Label)>) {
        if found.is_empty() {
            return;
        }
        let places = found.iter().map(|(place, label)| (place, *label));
        let labels = store::record::written_labels(places);
        // A log that fails releases nothing.
        let _ = self.append(&Record::Labels { labels });
        for (place, label) in found {
            self.state.stick(place, label);
        }
    }

    /// Takes over what sessions beside this one wrote in the workspace. What cannot be read is
    /// trusted for nothing from then on: the log stops.
    pub(crate) fn news(&mut self) {
        let news = match self.labels.as_mut().map(WorkspaceLabels::news) {
            None => return,
            Some(Ok(news)) => news,
            Some(Err(error)) => {
                self.failed.get_or_insert_with(|| error.to_string());
                return;
            }
        };
        let mut worse = Vec::new();
        for relabel in news {
            // That somebody else's place is gone does not make it better here.
            if let Relabel::Stick(place, label) = relabel {
                let now = self.state.labels().of(&place.tree, &place.path);
                if label.merge(now) != now {
                    worse.push((place, label));
                }
            }
        }
        self.take_over(worse);
    }

    /// Records what an effect does to a label, here and with the workspace.
    pub(crate) fn relabel(&mut self, event: EventId, relabel: &Relabel) -> Result<(), String> {
        self.append(&Record::Relabelled {
            event: event.0,
            relabel: relabel.into(),
        })
        .map_err(|error| error.to_string())?;
        let kept = self.labels.as_mut().map_or(Ok(()), |labels| {
            labels.append(relabel).map_err(|error| error.to_string())
        });
        if let Err(why) = &kept {
            self.failed.get_or_insert_with(|| why.clone());
        }
        kept
    }

    /// A hold is resolved.
    pub(crate) fn forget(&mut self, hold: HoldId) {
        self.parked.remove(&hold);
        self.opened_ms.remove(&hold);
    }

    pub(crate) fn next_event(&mut self) -> EventId {
        let event = EventId(self.next_event);
        self.next_event += 1;
        event
    }

    fn notice(&self, hold: &kernel::scope::Hold) -> Notice {
        let (name, mark) = (hold.question.hold, hold.nonce.mark());
        if hold.effect.carries.tokens().next().is_none() {
            return Notice::held(name, &hold.effect, &mark);
        }
        let scanner = self.state.provenance().scanner();
        Notice::held_unseen(name, &hold.effect, &mark, &scanner)
    }

    pub(crate) fn held(&self, hold: &kernel::scope::Hold) -> Held {
        let provenance = self.state.provenance();
        let level = provenance.level_of(&hold.effect.carries);
        Held {
            hold: hold.question.hold,
            question: hold.question.clone(),
            effect: hold.effect.clone(),
            manifest: hold.manifest,
            notice: self.notice(hold),
            endorsed: hold.endorsed.is_some(),
            mark: hold.nonce.mark(),
            parked: self
                .parked
                .get(&hold.question.hold)
                .cloned()
                .unwrap_or_default(),
            carries: (level > Level::Public).then(|| {
                (
                    level,
                    provenance.origins_of(&hold.effect.carries, Level::Public),
                )
            }),
        }
    }
}

fn read<T: ?Sized>(lock: &RwLock<T>) -> std::sync::RwLockReadGuard<'_, T> {
    lock.read()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn write<T: ?Sized>(lock: &RwLock<T>) -> std::sync::RwLockWriteGuard<'_, T> {
    lock.write()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Time since the program started.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock(Instant);

impl Default for SystemClock {
    fn default() -> Self {
        Self(Instant::now())
    }
}

impl Clock for SystemClock {
    fn now_ms(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// Chance from the operating system, asked for a page of it at a time.
#[derive(Debug, Default)]
pub struct PooledChance(Mutex<Vec<[u8; 16]>>);

impl Chance for PooledChance {
    fn bytes16(&self) -> Result<[u8; 16], String> {
        const PAGE_BYTES: usize = 4096;
        let mut pool = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if pool.is_empty() {
            let mut page = [0; PAGE_BYTES];
            fill(&mut page)?;
            pool.extend(page.as_chunks().0);
        }
        pool.pop().ok_or_else(|| NONE.to_string())
    }
}

const NONE: &str = "the system gives no random bytes";

fn fill(bytes: &mut [u8]) -> Result<(), String> {
    getrandom::fill(bytes).map_err(|error| format!("{NONE}: {error}"))
}

/// Chance from the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemChance;

impl Chance for SystemChance {
    fn bytes16(&self) -> Result<[u8; 16], String> {
        let mut bytes = [0; 16];
        fill(&mut bytes)?;
        Ok(bytes)
    }
}
