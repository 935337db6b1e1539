//! Every interleaving of a few effects, through the real kernel and the real recovery: proposals, verdicts right, wrong
//! and stale, withdrawals, effects that run out of time, and crashes between any two acts of the monitor, with any part
//! of what was not durable lost. States that can be told apart are visited once; what is checked is named in
//! [`PROPERTIES`].

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::path::Path;
use std::sync::Arc;

use kernel::manifest::Nonce;
use kernel::policy::Policy;
use kernel::{
    Action, Channel, Class, Digest, Effect, EventId, FileOp, HoldId, Input, Object, Operation,
    Payload, State, Verdict, step,
};
use store::log::Entry;
use store::{Blobs, MemoryDisk, Parked, Record};

use crate::world::policies::{NAMED, SimRules, UNKNOWN, policy};

/// What holds in every state.
pub const PROPERTIES: [&str; 9] = [
    "released first: nothing irreversible is observable before its spent permit is durable",
    "refused never: nothing refused is observable, nor what builds on it",
    "once: nothing is observable twice",
    "in order: nothing is observable while something it builds on is open",
    "kept: what is durably held is held after a crash, or the log says what became of it",
    "only dependents: a refusal takes along what depends on it and nothing else",
    "vouched: what is observable was released by policy or by an oracle that saw its manifest",
    "replayed: the log alone leads to the same state",
    "no deadlock: releasing everything leaves nothing open",
];

/// What to explore.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The effects, oldest first: class, which earlier ones it saw (bits), whether policy vouches for it by itself.
    pub effects: Vec<(Class, u8, bool)>,
    /// Whether irreversible effects wait for what came before.
    pub conservative: bool,
    /// How many crashes a history may have.
    pub crashes_max: u8,
}

/// What exploring found.
#[derive(Clone, Copy, Debug, Default)]
pub struct Explored {
    /// Different states.
    pub states: u64,
    /// Ways from one to another.
    pub transitions: u64,
    /// Of these, crashes.
    pub crashes: u64,
    /// States in which two scopes or more were open.
    pub two_scopes: u64,
}

impl Explored {
    /// Both together.
    pub fn add(&mut self, other: Self) {
        self.states += other.states;
        self.transitions += other.transitions;
        self.crashes += other.crashes;
        self.two_scopes += other.two_scopes;
    }
}

/// Setups of three effects: all classes, one to three scopes, policy vouching for none or for the last, and both kinds
/// of speculation.
pub fn setups() -> Vec<Setup> {
    let classes = [Class::Stageable, Class::Stallable, Class::Blocking];
    // One scope, two and three, and a chain; by what the second saw, and the third.
    let layouts = [(0, 0), (1, 0), (0, 1), (0, 2), (1, 2)];
    let mut all = Vec::new();
    for conservative in [true, false] {
        for number in 0..27 {
            let class = |at: u32| classes[number / 3_usize.pow(at) % 3];
            for (at, (second, third)) in layouts.into_iter().enumerate() {
                let vouched = (number + at).is_multiple_of(2);
                let effects = vec![
                    (class(0), 0, false),
                    (class(1), second, false),
                    (class(2), third, vouched),
                ];
                all.push(Setup {
                    effects,
                    conservative,
                    crashes_max: 1,
                });
            }
        }
    }
    all
}

/// Visits every state of a setup.
///
/// # Errors
/// The property that is broken, and by which steps.
pub fn explore(setup: &Setup) -> Result<Explored, String> {
    let model = Model::new(setup);
    let mut explored = Explored::default();
    let mut seen: HashSet<Vec<u8>> = HashSet::new();
    let mut ahead = VecDeque::from([Node::default()]);
    while let Some(node) = ahead.pop_front() {
        if !seen.insert(node.key(&model)) {
            continue;
        }
        explored.states += 1;
        if node.state.holds().scopes().len() > 1 {
            explored.two_scopes += 1;
        }
        let broken =
            |what: String| format!("{what}\nsetup: {setup:?}\nsteps: {}", node.steps.join(", "));
        model.check(&node).map_err(broken)?;
        let next = model.next(&node).map_err(broken)?;
        explored.transitions += next.len() as u64;
        explored.crashes += next
            .iter()
            .filter(|next| next.crashes > node.crashes)
            .count() as u64;
        ahead.extend(next);
    }
    Ok(explored)
}

/// An act of the monitor that is still to come.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "a few at a time")]
enum Act {
    Append(Record),
    Sync,
    Observe(usize),
    Told(usize),
}

/// One state of the world.
#[derive(Clone, Debug)]
struct Node {
    state: State,
    log: Vec<Arc<Record>>,
    durable: usize,
    acts: VecDeque<Act>,
    next_event: u64,
    proposed: usize,
    crashes: u8,
    /// By effect: the number of its event, once it has one.
    events: [u64; 4],
    builds_on: [u8; 4],
    observed: [u8; 4],
    told: u8,
    refused: u8,
    approved: u8,
    withdrawn: u8,
    steps: Vec<String>,
}

impl Default for Node {
    fn default() -> Self {
        Self {
            state: State::default(),
            log: Vec::new(),
            durable: 0,
            acts: VecDeque::new(),
            next_event: 1,
            proposed: 0,
            crashes: 0,
            events: [0; 4],
            builds_on: [0; 4],
            observed: [0; 4],
            told: 0,
            refused: 0,
            approved: 0,
            withdrawn: 0,
            steps: Vec::new(),
        }
    }
}

impl Node {
    fn which(&self, hold: HoldId) -> usize {
        self.events
            .iter()
            .position(|event| *event == hold.0)
            .expect("every hold is one of the effects")
    }

    fn is_open(&self, effect: usize) -> bool {
        self.events[effect] != 0
            && self
                .state
                .holds()
                .find(HoldId(self.events[effect]))
                .is_some()
    }

    fn open(&self) -> u8 {
        (0..4)
            .filter(|effect| self.is_open(*effect))
            .fold(0, |bits, effect| bits | 1 << effect)
    }

    /// Everything about a kernel's state that can make a difference.
    fn holds(&self, state: &State) -> Vec<u8> {
        let mut key = Vec::new();
        for held in state.holds().iter() {
            let depends = held
                .question
                .depends
                .iter()
                .filter(|on| state.holds().find(**on).is_some());
            let depends = depends.fold(0, |bits, on| bits | 1 << self.which(*on));
            let effect = self.which(held.question.hold) as u8;
            key.extend([
                effect,
                depends,
                u8::from(held.endorsed.is_some()),
                u8::from(held.question.needs_oracle),
            ]);
        }
        key
    }

    fn key(&self, model: &Model) -> Vec<u8> {
        let mut key = self.holds(&self.state);
        key.push(255);
        for record in &self.log[self.durable..] {
            key.extend(model.short(record));
        }
        key.push(255);
        for act in &self.acts {
            match act {
                Act::Append(record) => key.extend(model.short(record)),
                Act::Sync => key.push(250),
                Act::Observe(effect) => key.extend([251, *effect as u8]),
                Act::Told(effect) => key.extend([252, *effect as u8]),
            }
        }
        key.push(255);
        let facts = [
            self.told,
            self.refused,
            self.approved,
            self.withdrawn,
            self.crashes,
            self.proposed as u8,
        ];
        key.extend(facts);
        key.extend(self.observed);
        key.extend(self.builds_on);
        // What the log says for good.
        let mut ends = [0_u8; 4];
        for record in &self.log[..self.durable] {
            let (event, bit) = match &**record {
                Record::Spent { event, .. } => (*event, 1),
                Record::Aborted { event, .. } => (*event, 2),
                Record::Done { event, .. } => (*event, 4),
                Record::Proposed { event, .. } => (*event, 8),
                _ => continue,
            };
            if let Some(effect) = self.events.iter().position(|known| *known == event) {
                ends[effect] |= bit;
            }
        }
        key.extend(ends);
        key
    }
}

struct Model {
    policy: Policy,
    effects: Vec<Effect>,
    vouched: u8,
    conservative: bool,
    crashes_max: u8,
    blobs: Blobs,
}

impl Model {
    fn new(setup: &Setup) -> Self {
        let effects = setup
            .effects
            .iter()
            .enumerate()
            .map(|(number, (class, _, vouched))| effect(number, *class, *vouched));
        let mut model = Self {
            policy: policy(if setup.conservative { 0 } else { 1 }),
            effects: effects.collect(),
            vouched: 0,
            conservative: setup.conservative,
            crashes_max: setup.crashes_max,
            blobs: Blobs::open_dir_on(&MemoryDisk::shared(), Path::new("blobs")).unwrap(),
        };
        for (number, (_, saw, vouched)) in setup.effects.iter().enumerate() {
            // Holds are named when they are proposed; until then, by number.
            model.effects[number].saw = (0..4)
                .filter(|other| saw & (1 << other) != 0)
                .map(HoldId)
                .collect();
            model.vouched |= u8::from(*vouched) << number;
        }
        model
    }

    fn short(&self, record: &Record) -> Vec<u8> {
        match record {
            Record::Proposed { event, .. } => vec![1, *event as u8],
            Record::Verdict { hold, verdict, .. } => {
                vec![2, hold.as_bytes()[1], u8::from(verdict == "release")]
            }
            Record::Withdrawn { hold, .. } => vec![3, hold.as_bytes()[1]],
            Record::Expired { hold, .. } => vec![4, hold.as_bytes()[1]],
            Record::Spent { event, .. } => vec![5, *event as u8],
            Record::Aborted { event, .. } => vec![6, *event as u8],
            Record::Done { event, .. } => vec![7, *event as u8],
            _ => vec![8],
        }
    }

    /// Everything that can happen next.
    fn next(&self, node: &Node) -> Result<Vec<Node>, String> {
        let mut all = Vec::new();
        if node.crashes < self.crashes_max {
            for kept in node.durable..=node.log.len() {
                all.push(self.crashed(node, kept)?);
            }
        }
        if !node.acts.is_empty() {
            all.push(self.acted(node)?);
            return Ok(all);
        }
        if node.proposed < self.effects.len() {
            all.push(self.proposed(node)?);
        }
        for held in node.state.holds().iter() {
            let hold = held.question.hold;
            let effect = node.which(hold);
            self.stale(node, hold, effect)?;
            for verdict in [Verdict::Release, Verdict::Refuse] {
                all.push(self.verdict(node, hold, held.manifest, verdict)?);
            }
            let event = EventId(node.next_event);
            let record = Record::Withdrawn {
                event: event.0,
                hold: hold.to_string(),
            };
            let mut next = self.resolved(
                node,
                record,
                Input::Withdraw { event, hold },
                format!("withdraw {effect}"),
            )?;
            next.withdrawn |= 1 << effect;
            all.push(next);
            if held.effect.class == Class::Blocking {
                let record = Record::Expired {
                    event: event.0,
                    hold: hold.to_string(),
                };
                all.push(self.resolved(
                    node,
                    record,
                    Input::Expire { event, hold },
                    format!("expire {effect}"),
                )?);
            }
        }
        Ok(all)
    }

    fn proposed(&self, node: &Node) -> Result<Node, String> {
        let mut next = node.clone();
        let number = node.proposed;
        let mut effect = self.effects[number].clone();
        let event = EventId(node.next_event);
        effect.saw = effect
            .saw
            .iter()
            .map(|other| HoldId(node.events[other.0 as usize]))
            .collect();
        effect.saw.retain(|hold| hold.0 != 0);
        let nonce = Nonce([number as u8 + 1; 16]);
        let input = Input::Propose {
            event,
            effect: effect.clone(),
            nonce,
            in_doubt: false,
        };
        let open = node.open();
        let saw = self.effects[number]
            .saw
            .iter()
            .fold(0, |bits, other| bits | 1 << other.0);
        let waits = effect.class != Class::Stageable && self.conservative;
        next.builds_on[number] = open & if waits { 0xff } else { saw };
        next.events[number] = event.0;
        next.next_event += 1;
        next.proposed += 1;
        next.steps.push(format!("propose {number}"));
        let actions = step(&mut next.state, &self.policy, &SimRules, "w", input);
        let (decision, manifest) = match actions.first() {
            Some(Action::Release(permit)) => ("release", permit.manifest()),
            Some(Action::Hold(question)) => {
                let held = next
                    .state
                    .holds()
                    .find(question.hold)
                    .ok_or("a hold that is not held")?;
                ("defer", held.manifest)
            }
            // It saw what was refused since.
            Some(Action::Refuse { .. }) if saw & node.refused != 0 => ("refuse", Digest::default()),
            other => return Err(format!("propose {number} led to {other:?}")),
        };
        next.acts.push_back(Act::Append(Record::Proposed {
            event: event.0,
            effect: (&effect).into(),
            nonce: nonce.0.iter().map(|byte| format!("{byte:02x}")).collect(),
            parked: Parked::default(),
            decision: decision.into(),
            why: Vec::new(),
            manifest: manifest.hex(),
            in_doubt: false,
            origins: Vec::new(),
        }));
        if decision == "refuse" {
            next.refused |= 1 << number;
            next.builds_on[number] = 0;
        } else if decision == "release" {
            if next.builds_on[number] != 0 {
                return Err(format!(
                    "in order: {number} was released at once and builds on what is open"
                ));
            }
            let spent = Record::Spent {
                event: event.0,
                manifest: manifest.hex(),
                why: String::new(),
            };
            next.acts.extend([
                Act::Append(spent),
                Act::Sync,
                Act::Observe(number),
                Act::Append(done(event.0)),
            ]);
        } else {
            next.acts.extend([Act::Sync, Act::Told(number)]);
        }
        Ok(next)
    }

    fn verdict(
        &self,
        node: &Node,
        hold: HoldId,
        manifest: Digest,
        verdict: Verdict,
    ) -> Result<Node, String> {
        let effect = node.which(hold);
        let event = EventId(node.next_event);
        let word = if verdict == Verdict::Release {
            "release"
        } else {
            "refuse"
        };
        let record = Record::Verdict {
            event: event.0,
            hold: hold.to_string(),
            manifest: manifest.hex(),
            verdict: word.into(),
            oracle: "model".into(),
            reason: String::new(),
        };
        let input = Input::Verdict {
            event,
            hold,
            manifest,
            verdict,
            oracle: "model".into(),
            reason: String::new(),
        };
        let mut next = self.resolved(node, record, input, format!("{word} {effect}"))?;
        if verdict == Verdict::Release {
            next.approved |= 1 << effect;
        }
        Ok(next)
    }

    /// An answer about another manifest changes nothing.
    fn stale(&self, node: &Node, hold: HoldId, effect: usize) -> Result<(), String> {
        let mut state = node.state.clone();
        let input = Input::Verdict {
            event: EventId(node.next_event),
            hold,
            manifest: Digest::of(b"another"),
            verdict: Verdict::Release,
            oracle: "model".into(),
            reason: String::new(),
        };
        let actions = step(&mut state, &self.policy, &SimRules, "w", input);
        if !matches!(actions.as_slice(), [Action::Ignored(_)])
            || node.holds(&state) != node.holds(&node.state)
        {
            return Err(format!(
                "vouched: a stale answer about {effect} led to {actions:?}"
            ));
        }
        Ok(())
    }

    /// Records an input about holds, steps, and notes what the monitor has to do then.
    fn resolved(
        &self,
        node: &Node,
        record: Record,
        input: Input,
        what: String,
    ) -> Result<Node, String> {
        let mut next = node.clone();
        let refuses = match &input {
            Input::Verdict {
                hold,
                verdict: Verdict::Refuse,
                ..
            }
            | Input::Expire { hold, .. } => Some(node.which(*hold)),
            _ => None,
        };
        next.steps.push(what);
        next.next_event += 1;
        next.log.push(Arc::new(record));
        let actions = step(&mut next.state, &self.policy, &SimRules, "w", input);
        let (mut later, mut aborted) = (Vec::new(), 0_u8);
        for action in actions {
            match action {
                Action::Commit { hold, permit } => {
                    next.acts.push_back(Act::Append(Record::Spent {
                        event: hold.0,
                        manifest: permit.manifest().hex(),
                        why: permit.why().into(),
                    }));
                    next.acts.push_back(Act::Sync);
                    later.extend([Act::Observe(node.which(hold)), Act::Append(done(hold.0))]);
                }
                Action::Abort { hold, .. } => {
                    let event = hold.0;
                    let why = String::new();
                    next.acts
                        .push_back(Act::Append(Record::Aborted { event, why }));
                    later.push(Act::Append(done(event)));
                    aborted |= 1 << node.which(hold);
                }
                Action::Withdrawn(_) | Action::Ignored(_) | Action::Label(_) => {}
                other => return Err(format!("out of turn: {other:?}")),
            }
        }
        let expected = refuses.map_or(0, |effect| self.dependents(node, effect));
        if aborted != expected {
            return Err(format!(
                "only dependents: {aborted:04b} went and {expected:04b} depended on it"
            ));
        }
        next.refused |= expected;
        next.acts.push_back(Act::Sync);
        next.acts.extend(later);
        Ok(next)
    }

    /// An open effect and what builds on it, worked out from scratch.
    fn dependents(&self, node: &Node, effect: usize) -> u8 {
        let open = node.open();
        let mut found = 1_u8 << effect;
        for other in 0..self.effects.len() {
            if open & (1 << other) != 0 && node.builds_on[other] & found & open != 0 {
                found |= 1 << other;
            }
        }
        found
    }

    fn acted(&self, node: &Node) -> Result<Node, String> {
        let mut next = node.clone();
        match next.acts.pop_front() {
            Some(Act::Append(record)) => next.log.push(Arc::new(record)),
            Some(Act::Sync) => next.durable = next.log.len(),
            Some(Act::Told(effect)) => next.told |= 1 << effect,
            Some(Act::Observe(effect)) => {
                next.observed[effect] += 1;
                self.observe(&next, effect)?;
            }
            None => {}
        }
        Ok(next)
    }

    fn observe(&self, node: &Node, effect: usize) -> Result<(), String> {
        let event = node.events[effect];
        let spent = |record: &Arc<Record>| matches!(&**record, Record::Spent { event: known, .. } if *known == event);
        if !node.log[..node.durable].iter().any(spent) {
            return Err(format!("released first: {effect} is observable"));
        }
        if node.refused & (1 << effect) != 0 {
            return Err(format!("refused never: {effect} is observable"));
        }
        if node.observed[effect] > 1 {
            return Err(format!("once: {effect} is observable again"));
        }
        if node.builds_on[effect] & node.open() != 0 {
            return Err(format!(
                "in order: {effect} is observable and builds on what is open"
            ));
        }
        if (node.approved | self.vouched) & (1 << effect) == 0 {
            return Err(format!(
                "vouched: {effect} is observable and nobody released it"
            ));
        }
        Ok(())
    }

    /// Another process goes on with what is left of the log.
    fn crashed(&self, node: &Node, kept: usize) -> Result<Node, String> {
        let mut next = node.clone();
        next.crashes += 1;
        next.acts.clear();
        next.log.truncate(kept);
        next.durable = kept;
        next.steps.push(format!(
            "crash, {} of {} records kept",
            kept,
            node.log.len()
        ));
        let recovered = self.folded(&next.log)?;
        for effect in 0..self.effects.len() {
            if node.told & (1 << effect) == 0 {
                continue;
            }
            let event = EventId(node.events[effect]);
            let held = recovered.state.holds().find(HoldId(event.0)).is_some();
            let ended = recovered.ledger.is_spent(event)
                || next.log.iter().any(|record| match &**record {
                    Record::Aborted { event: known, .. } => *known == event.0,
                    Record::Withdrawn { hold, .. } => *hold == HoldId(event.0).to_string(),
                    _ => false,
                });
            if !held && !ended && !recovered.unfinished.contains(&event) {
                return Err(format!("kept: {effect} is neither held nor resolved"));
            }
            if held && recovered.ledger.is_spent(event) {
                return Err(format!("once: {effect} is spent and held"));
            }
        }
        // A proposal whose record is lost never was; a number can be given out again.
        for effect in 0..node.proposed {
            let event = node.events[effect];
            let recorded = |record: &Arc<Record>| matches!(&**record, Record::Proposed { event: known, .. } if *known == event);
            if !next.log.iter().any(recorded) {
                next.events[effect] = 0;
            }
        }
        // What was refused and not recorded durably may be held again; nobody was told of the refusal.
        for held in recovered.state.holds().iter() {
            next.refused &= !(1 << next.which(held.question.hold));
            next.withdrawn &= !(1 << next.which(held.question.hold));
        }
        for event in recovered.unfinished.iter().chain(&recovered.unknown) {
            next.acts.push_back(Act::Append(done(event.0)));
        }
        next.next_event = recovered.next_event;
        next.state = recovered.state;
        Ok(next)
    }

    fn check(&self, node: &Node) -> Result<(), String> {
        if !node.acts.is_empty() {
            return Ok(());
        }
        let folded = self.folded(&node.log)?;
        if node.holds(&folded.state) != node.holds(&node.state) {
            let (live, folded) = (node.holds(&node.state), node.holds(&folded.state));
            return Err(format!(
                "replayed: {live:?} by the process, {folded:?} by the log"
            ));
        }
        // Oldest first, everything is released.
        let mut state = node.state.clone();
        for held in node
            .state
            .holds()
            .iter()
            .filter(|held| held.question.needs_oracle)
        {
            let input = Input::Verdict {
                event: EventId(node.next_event),
                hold: held.question.hold,
                manifest: held.manifest,
                verdict: Verdict::Release,
                oracle: "model".into(),
                reason: String::new(),
            };
            step(&mut state, &self.policy, &SimRules, "w", input);
        }
        if !state.holds().is_empty() {
            return Err(format!("no deadlock: {:?} stay open", node.holds(&state)));
        }
        Ok(())
    }

    fn folded(&self, log: &[Arc<Record>]) -> Result<store::Recovered, String> {
        let header = Record::Header {
            format: store::record::FORMAT,
            session: String::new(),
            workspace: "w".into(),
            epoch: self.policy.epoch.hex(),
            command: Vec::new(),
            started: String::new(),
            version: String::new(),
        };
        let records = std::iter::once(header).chain(log.iter().map(|record| (**record).clone()));
        let entries: Vec<Entry> = records
            .zip(1..)
            .map(|(record, seq)| Entry {
                seq,
                at: String::new(),
                record,
            })
            .collect();
        store::recover(&entries, &self.blobs, &self.policy, &SimRules)
    }
}

fn done(event: u64) -> Record {
    Record::Done {
        event,
        ok: true,
        what: String::new(),
    }
}

fn effect(number: usize, class: Class, vouched: bool) -> Effect {
    let mut effect = if class == Class::Stageable {
        let folder = if vouched { "src" } else { "hooks" };
        let object = Object::Location {
            tree: "workspace".into(),
            path: format!("{folder}/{number}"),
        };
        Effect::new(
            Channel::File,
            Operation::File(FileOp::Create),
            object,
            class,
        )
    } else {
        let object = Object::Party {
            scheme: "https".into(),
            host: if vouched { NAMED } else { UNKNOWN }.into(),
            port: 443,
            path: format!("/{number}"),
        };
        Effect::new(
            Channel::Net,
            Operation::Request("POST".into()),
            object,
            class,
        )
    };
    effect.payload = Payload {
        digest: Digest::of(&[number as u8]),
        bytes: 1,
    };
    effect.fields = BTreeMap::new();
    effect
}
