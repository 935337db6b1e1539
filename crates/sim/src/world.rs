//! The world of one run: everything that is not Kairos, made from one seed, around a real session.

use std::io::Read as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use kernel::{Channel, Class, Digest, HoldId, Object, Refusal, Verdict};
use monitor::session::Parts;
use monitor::{
    Answer, Chance as ChancePort, Clock, Held, Judgement, Oracle, Outcome, Session, View,
};
use store::{Blobs, Disk, Log, Parked, Record, SessionDir, WorkspaceLabels};

use crate::chance::Chance;
use crate::seen::{Decided, HeldNow, Recovered, Seen, Trying, Witness};
use crate::world::agent::{Agent, Idea};
use crate::world::disk::SimDisk;
use crate::world::outside::{Outside, Staged};
use crate::world::policies::{SimRules, policy};

/// A disk that fails.
pub mod disk;
/// Channels and the parties beyond them.
pub mod outside;
/// Who proposes.
pub mod agent;
/// What is trusted and forbidden.
pub mod policies;

const DIR: &str = "session";
/// Where labels are kept with the workspace.
const STATE: &str = "state";

/// One world.
pub struct World {
    chance: Chance,
    clock: Arc<AtomicU64>,
    witness: Witness,
    disk: SimDisk,
    outside: Outside,
    agent: Agent,
    policy: u64,
    /// Whether the log was written under one policy only, so that it can be replayed by it.
    one_policy: bool,
    no_chance: Arc<AtomicBool>,
    session: Option<Arc<Session>>,
    /// Answers that oracles gave long ago.
    late: Vec<(HoldId, Digest, Digest, bool)>,
    faults: usize,
}

impl World {
    /// A world and its first session.
    pub fn new(seed: u64) -> Self {
        let mut chance = Chance::new(seed);
        let witness = Witness::default();
        let log = SessionDir::at(DIR).log();
        let disk = SimDisk::new(chance.any(), witness.clone(), log);
        let outside = Outside::new(disk.clone(), witness.clone(), SessionDir::at(DIR).blobs());
        let policy = chance.any() % 4;
        let faults = if chance.permille(400) {
            1 + chance.below(40)
        } else {
            0
        };
        let mut world = Self {
            chance,
            clock: Arc::default(),
            witness,
            disk,
            outside,
            agent: Agent::default(),
            policy,
            one_policy: true,
            no_chance: Arc::default(),
            session: None,
            late: Vec::new(),
            faults,
        };
        world.begin();
        world
    }

    /// What was seen since the last call.
    pub fn seen(&self) -> Vec<Seen> {
        self.witness.take()
    }

    /// The policy in force.
    pub fn epoch(&self) -> Digest {
        policy(self.policy).epoch
    }

    /// One step: something happens, and if the machine stopped, the next process goes on.
    pub fn step(&mut self) {
        self.clock
            .fetch_add(1 + self.chance.any() % 1000, Ordering::Relaxed);
        let Some(session) = self.session.clone() else {
            self.go_on();
            return;
        };
        match self.chance.below(1000) {
            0..=449 => self.propose(&session),
            450..=539 => {
                let incoming = self.agent.read(&mut self.chance);
                session.incoming(incoming);
            }
            540..=759 => self.judge(&session),
            760..=809 => self.resolve(&session),
            810..=839 => self.withdraw(&session),
            840..=869 => self.expire(&session),
            870..=909 => self.edit(),
            910..=919 => self.replace_policy(&session),
            920..=939 => session.note("note", Default::default()),
            940..=949 => self.stop(&session),
            950..=979 => self.disk.crash_after(self.chance.any() % 60),
            _ => self.look(&session),
        }
        // A session that cannot release anything any more is ended, sooner or later.
        let failed = session.failure().is_some() && self.chance.permille(150);
        drop(session);
        if self.disk.is_off() || failed {
            let power = self.chance.permille(500);
            self.session = None;
            self.disk.restart(power);
            self.witness.saw(Seen::Crash { power });
            self.survey();
            self.go_on();
        }
    }

    /// Writes down what is left of the log.
    fn survey(&self) {
        let mut bytes = Vec::new();
        if let Ok(mut file) = self.disk.read(&SessionDir::at(DIR).log()) {
            file.read_to_end(&mut bytes).unwrap();
        }
        self.witness.saw(Seen::Survived(bytes));
    }

    fn begin(&mut self) {
        let dir = SessionDir::at(DIR);
        let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
        disk.make_dirs(dir.path()).unwrap();
        let mut log = Log::create_on(&disk, &dir.log().with_extension("part"), self.now()).unwrap();
        log.append(&Record::Header {
            format: store::record::FORMAT,
            session: "s".into(),
            workspace: "w".into(),
            epoch: self.epoch().hex(),
            command: Vec::new(),
            started: String::new(),
            version: String::new(),
        })
        .unwrap();
        log.publish(&dir.log()).unwrap();
        let blobs = Blobs::open_dir_on(&disk, &dir.blobs()).unwrap();
        self.witness.saw(Seen::Policy);
        let labels = WorkspaceLabels::open_on(&disk, Path::new(STATE), "w").unwrap();
        self.open(log, blobs, labels, None);
        self.disk.fail(self.faults);
    }

    fn open(
        &mut self,
        log: Log,
        blobs: Blobs,
        labels: WorkspaceLabels,
        recovered: Option<store::Recovered>,
    ) -> Arc<Session> {
        let session = Session::new(Parts {
            policy: Arc::new(policy(self.policy)),
            rules: Arc::new(SimRules),
            log,
            dir: SessionDir::at(DIR),
            blobs,
            workspace: "w".into(),
            chance: Arc::new(SimChance {
                chance: Mutex::new(Chance::new(self.chance.any())),
                fails: Arc::clone(&self.no_chance),
            }),
            clock: Arc::new(SimClock(Arc::clone(&self.clock))),
            labels: Some(labels),
            recovered,
        });
        for channel in [Channel::File, Channel::Net, Channel::Tool] {
            session.attach(channel, Arc::new(self.outside.clone()));
        }
        self.session = Some(Arc::clone(&session));
        session
    }

    /// Another process takes over. It may be stopped, too; in the end one gets through.
    fn go_on(&mut self) {
        self.disk.fail(0);
        if self.chance.permille(200) {
            self.disk.crash_after(self.chance.any() % 30);
        }
        let result = self.recover();
        if self.disk.is_off() {
            let power = self.chance.permille(500);
            self.session = None;
            self.disk.restart(power);
            self.witness.saw(Seen::Crash { power });
            self.survey();
            return;
        }
        if let Err(why) = result {
            self.witness.saw(Seen::Unrecoverable(why));
        }
        self.disk.fail(self.faults);
    }

    fn recover(&mut self) -> Result<(), String> {
        let dir = SessionDir::at(DIR);
        let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
        let blobs = Blobs::open_dir_on(&disk, &dir.blobs()).map_err(|error| error.to_string())?;
        let (log, entries) =
            Log::resume_on(&disk, &dir.log(), self.now()).map_err(|error| error.to_string())?;
        let recovered = store::recover(&entries, &blobs, &policy(self.policy), &SimRules)?;
        let found = Recovered {
            held: Vec::new(),
            unknown: recovered.unknown.clone(),
            unfinished: recovered.unfinished.clone(),
            differences: if self.one_policy && recovered.missing == 0 {
                recovered.differences.clone()
            } else {
                Vec::new()
            },
        };
        let labels = WorkspaceLabels::open_on(&disk, Path::new(STATE), "w")
            .map_err(|error| error.to_string())?;
        self.witness.saw(Seen::Labels(
            labels
                .known()
                .iter()
                .map(|(place, _)| place.clone())
                .collect(),
        ));
        let effects = recorded(&entries);
        let session = self.open(log, blobs, labels, Some(recovered));
        let held = self.held(&session);
        if self.disk.is_off() {
            return Ok(());
        }
        self.witness.saw(Seen::Recovered(Recovered {
            held,
            ..found.clone()
        }));
        self.agent.stubs = session
            .held()
            .iter()
            .map(|held| (held.hold, held.mark.clone()))
            .collect();

        if !self.one_policy {
            // Another one may have been put in force and cut off before that was recorded.
            self.enforce(&session);
        }

        // What each channel makes of what it finds, as the product's do.
        for event in found.unknown {
            let done = match effects.iter().rev().find(|(number, _)| *number == event.0) {
                Some((_, effect)) if effect.class == Class::Stageable => {
                    let Object::Location { path, .. } = &effect.object else {
                        continue;
                    };
                    let there = self.outside.host(path).map(|bytes| Digest::of(&bytes));
                    if there == Some(effect.payload.digest) {
                        self.outside.unstage(&effect.payload.digest);
                        Ok("it was done".to_string())
                    } else {
                        Err("it was not done".to_string())
                    }
                }
                _ => Err("whether it was sent is not known".to_string()),
            };
            session.done(event, done);
        }
        for event in found.unfinished {
            if let Some((_, effect)) = effects.iter().rev().find(|(number, _)| *number == event.0) {
                self.outside.unstage(&effect.payload.digest);
                self.witness.saw(Seen::Dropped(HoldId(event.0)));
            }
            session.done(event, Ok("discarded".into()));
        }
        let held: Vec<Digest> = session
            .held()
            .iter()
            .map(|held| held.effect.payload.digest)
            .collect();
        for (name, staged) in self.outside.staged() {
            if !held.contains(&name) {
                let effect = staged.effect;
                let builds_on = effect
                    .saw
                    .iter()
                    .copied()
                    .chain(effect.carries.marks())
                    .collect();
                self.put(&session, name, effect, staged.parked, true, builds_on);
            }
        }
        Ok(())
    }

    fn propose(&mut self, session: &Arc<Session>) {
        let open: Vec<HoldId> = session.held().iter().map(|held| held.hold).collect();
        let outside = self.outside.clone();
        let base = |path: &str| outside.host(path).map(|bytes| Digest::of(&bytes));
        let Idea {
            mut effect,
            bytes,
            builds_on,
        } = self.agent.propose(&mut self.chance, &open, base);
        effect.carries = session.scanner().scan(&bytes);
        let Ok(digest) = session.blobs().put(&bytes) else {
            return;
        };
        let parked = Parked {
            note: String::new(),
            blob: Some(digest.hex()),
        };
        let name = effect.payload.digest;
        let in_doubt = self.chance.permille(20);
        if effect.class == Class::Stageable {
            let staged = Staged {
                effect: effect.clone(),
                parked: parked.clone(),
            };
            self.outside.stage(name, staged);
        }
        self.no_chance
            .store(self.chance.permille(10), Ordering::Relaxed);
        self.put(session, name, effect, parked, in_doubt, builds_on);
        self.no_chance.store(false, Ordering::Relaxed);
    }

    fn put(
        &mut self,
        session: &Arc<Session>,
        name: Digest,
        effect: kernel::Effect,
        parked: Parked,
        in_doubt: bool,
        builds_on: Vec<HoldId>,
    ) {
        let conservative =
            policy(self.policy).speculation == kernel::policy::Speculation::Conservative;
        self.witness.saw(Seen::Trying(Trying {
            name,
            effect: effect.clone(),
            in_doubt,
            builds_on,
            conservative,
        }));
        if self.no_chance.load(Ordering::Relaxed) {
            self.witness.saw(Seen::ChanceFailed);
        }
        let outcome = if in_doubt {
            session.propose_in_doubt(effect.clone(), parked.clone(), &mut |_| {})
        } else {
            session.propose(effect.clone(), parked.clone(), &mut |_| {})
        };
        match outcome {
            Outcome::Released(lease) => {
                let (event, manifest) = (lease.event(), lease.manifest());
                let decision = Decided::Released { manifest };
                self.witness.saw(Seen::Decided { name, decision });
                // A channel whose changes can be undone makes the log durable once before it acts.
                let result = if effect.class == Class::Stageable && session.sync().is_err() {
                    Err("the log is not durable".to_string())
                } else {
                    self.outside.act(event, &effect, &parked, lease)
                };
                session.done(event, result);
            }
            Outcome::Refused {
                refusal: Refusal::Failed(_),
                ..
            } => {
                let decision = Decided::Failed;
                self.witness.saw(Seen::Decided { name, decision });
            }
            Outcome::Refused { .. } => {
                self.outside.unstage(&name);
                let decision = Decided::Refused;
                self.witness.saw(Seen::Decided { name, decision });
            }
            Outcome::Held(held) => {
                self.agent.stubs.push((held.hold, held.mark.clone()));
                let decision = Decided::Held(self.now_held(&held));
                self.witness.saw(Seen::Decided { name, decision });
            }
        }
    }

    fn judge(&mut self, session: &Arc<Session>) {
        if !self.late.is_empty() && self.chance.permille(150) {
            let at = self.chance.below(self.late.len());
            let (hold, manifest, name, release) = self.late.swap_remove(at);
            self.answer(session, hold, manifest, name, release);
            return;
        }
        let held = session.held();
        if held.is_empty() {
            return;
        }
        let one = self.chance.one(&held).clone();
        let release = self.chance.permille(650);
        let name = one.effect.payload.digest;
        match self.chance.below(20) {
            0 => {
                let stale = self.chance.one(&held).manifest;
                self.answer(session, one.hold, stale, name, release);
            }
            1 => self.late.push((one.hold, one.manifest, name, release)),
            2 => {
                self.answer(session, one.hold, one.manifest, name, release);
                self.answer(session, one.hold, one.manifest, name, !release);
            }
            3 => {
                let nobody = HoldId(self.chance.any() % 500);
                self.answer(session, nobody, one.manifest, name, true);
            }
            _ => self.answer(session, one.hold, one.manifest, name, release),
        }
        if self.chance.permille(300) {
            self.look(session);
        }
    }

    fn answer(
        &mut self,
        session: &Arc<Session>,
        hold: HoldId,
        manifest: Digest,
        name: Digest,
        release: bool,
    ) {
        self.witness.saw(Seen::Judging {
            hold,
            name,
            manifest,
            release,
        });
        let verdict = if release {
            Verdict::Release
        } else {
            Verdict::Refuse
        };
        let accepted = session
            .verdict(hold, manifest, verdict, "sim", "chance")
            .is_ok();
        self.witness.saw(Seen::Judged {
            hold,
            manifest,
            release,
            accepted,
        });
    }

    fn resolve(&mut self, session: &Arc<Session>) {
        let oracle = SimOracle {
            chance: Mutex::new(Chance::new(self.chance.any())),
            witness: self.witness.clone(),
        };
        monitor::resolve::resolve(session, &oracle, None);
    }

    fn withdraw(&mut self, session: &Arc<Session>) {
        let held = session.held();
        if let Some(one) = held.get(self.chance.below(held.len())) {
            self.witness.saw(Seen::Withdrawing(one.hold));
            session.withdraw(one.hold);
            // What is staged goes with it, once it is certain.
            if !self.disk.is_off() && session.failure().is_none() {
                self.outside.unstage(&one.effect.payload.digest);
            }
        }
    }

    fn expire(&mut self, session: &Arc<Session>) {
        let held = session.held();
        if let Some(one) = held
            .iter()
            .find(|held| held.effect.class == Class::Blocking)
        {
            self.witness.saw(Seen::Expiring(one.hold));
            session.expire(one.hold);
        }
        for hold in session.overdue() {
            self.witness.saw(Seen::Expiring(hold));
            session.expire_overdue(hold);
        }
    }

    fn edit(&mut self) {
        let path = *self.chance.one(&["src/a", "src/b", "notes/x"]);
        let text = format!("the owner's {}", self.chance.any());
        self.outside.edit(path, text.into_bytes());
    }

    fn replace_policy(&mut self, session: &Arc<Session>) {
        self.policy = self.chance.any() % 4;
        self.one_policy = false;
        self.enforce(session);
    }

    /// Puts the policy in force; what is held is decided again by it.
    fn enforce(&mut self, session: &Arc<Session>) {
        self.witness.saw(Seen::Policy);
        let replaced = session.replace_policy(Arc::new(policy(self.policy)), Arc::new(SimRules));
        if replaced.is_ok() {
            self.look(session);
        }
    }

    fn look(&self, session: &Arc<Session>) {
        let held = self.held(session);
        if !self.disk.is_off() && session.failure().is_none() {
            self.witness.saw(Seen::Holding(held));
        }
    }

    /// The process ends in good order; its log alone has to tell the same.
    fn stop(&mut self, session: &Arc<Session>) {
        self.look(session);
        if session.sync().is_err() || session.failure().is_some() {
            return;
        }
        self.session = None;
        self.witness.saw(Seen::Stopping);
        if self.one_policy {
            let dir = SessionDir::at(DIR);
            let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
            let folded = store::log::read_on(&*disk, &dir.log())
                .ok()
                .and_then(|log| {
                    let blobs = Blobs::open_dir_on(&disk, &dir.blobs()).ok()?;
                    store::recover(&log.entries, &blobs, &policy(self.policy), &SimRules).ok()
                });
            if let Some(folded) = folded.filter(|folded| folded.missing == 0) {
                let held = folded.state.holds().iter().map(|hold| {
                    let parked = folded
                        .parked
                        .get(&hold.question.hold)
                        .cloned()
                        .unwrap_or_default();
                    HeldNow {
                        hold: hold.question.hold,
                        name: hold.effect.payload.digest,
                        manifest: hold.manifest,
                        depends: hold.question.depends.clone(),
                        vouched: !hold.question.needs_oracle,
                        parked: self.outside.is_parked(&hold.effect, &parked),
                    }
                });
                let held = held.collect();
                if !self.disk.is_off() {
                    self.witness.saw(Seen::Replayed {
                        held,
                        differences: folded.differences,
                    });
                }
            }
        }
        self.go_on();
    }

    fn held(&self, session: &Arc<Session>) -> Vec<HeldNow> {
        session
            .held()
            .iter()
            .map(|held| self.now_held(held))
            .collect()
    }

    fn now_held(&self, held: &Held) -> HeldNow {
        HeldNow {
            hold: held.hold,
            name: held.effect.payload.digest,
            manifest: held.manifest,
            depends: held.question.depends.clone(),
            vouched: !held.question.needs_oracle,
            parked: self.outside.is_parked(&held.effect, &held.parked),
        }
    }

    fn now(&self) -> impl Fn() -> String + Send + Sync + 'static {
        let clock = Arc::clone(&self.clock);
        move || clock.load(Ordering::Relaxed).to_string()
    }
}

/// The effects of a log, by the number of their event.
fn recorded(entries: &[store::log::Entry]) -> Vec<(u64, kernel::Effect)> {
    entries
        .iter()
        .filter_map(|entry| match &entry.record {
            Record::Proposed { event, effect, .. } => Some((*event, effect.read().ok()?)),
            _ => None,
        })
        .collect()
}

/// The monitor's clock.
struct SimClock(Arc<AtomicU64>);

impl Clock for SimClock {
    fn now_ms(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The monitor's source of chance.
struct SimChance {
    chance: Mutex<Chance>,
    fails: Arc<AtomicBool>,
}

impl ChancePort for SimChance {
    fn bytes16(&self) -> Result<[u8; 16], String> {
        if self.fails.load(Ordering::Relaxed) {
            return Err("there is no chance".into());
        }
        Ok(self
            .chance
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .bytes16())
    }
}

/// Answers in every way an oracle can.
struct SimOracle {
    chance: Mutex<Chance>,
    witness: Witness,
}

impl Oracle for SimOracle {
    fn name(&self) -> String {
        "oracle".into()
    }

    fn judge(&self, view: &View) -> Judgement {
        let mut chance = self.chance.lock().unwrap_or_else(PoisonError::into_inner);
        let names = |holds: &[monitor::ViewHold]| {
            holds
                .iter()
                .map(|hold| hold.effect.payload.digest)
                .collect()
        };
        match chance.below(4) {
            0 => {
                self.witness.saw(Seen::OracleFailed(names(&view.holds)));
                Judgement::Failed("it broke".into())
            }
            1 => Judgement::Keep("nobody is there".into()),
            _ => {
                let mut answers = Vec::new();
                for hold in &view.holds {
                    let verdict = match chance.below(10) {
                        // Not mentioned at all: refused.
                        0 => {
                            self.witness
                                .saw(Seen::OracleFailed(names(std::slice::from_ref(hold))));
                            continue;
                        }
                        1..=5 => Some(Verdict::Release),
                        6..=7 => Some(Verdict::Refuse),
                        _ => None,
                    };
                    if let Some(verdict) = verdict {
                        self.witness.saw(Seen::Judging {
                            hold: hold.hold,
                            name: hold.effect.payload.digest,
                            manifest: hold.manifest,
                            release: verdict == Verdict::Release,
                        });
                    }
                    answers.push(Answer {
                        hold: hold.hold,
                        manifest: hold.manifest,
                        verdict,
                        reason: "chance".into(),
                    });
                }
                Judgement::Answers(answers)
            }
        }
    }
}
