//! One session of a harness: the same monitor, log and ledger as a session of `kairos run`, with
//! the harness as the sink.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use kernel::{
    Channel, Content, Digest, EventId, HoldId, Incoming, Notice, Refusal, Source, Verdict,
};
use monitor::session::{Parts, SystemClock};
use monitor::{Chance, Held, Outcome, Session, View, written};
use store::{Blobs, Disk, Lease, Log, Parked, Record, SessionDir, WorkspaceLabels};

use crate::event;
use crate::reply::{Aborted, Committed, Decided, Hold, Mistake, Reply, Resolved};
use crate::request::{self, Word};
use crate::stdio::{LoadedPolicy, Outside};

/// A session that a harness opened.
pub struct Harness {
    session: Arc<Session>,
    sink: Arc<Sink>,
    dir: SessionDir,
    /// Every hold there was.
    held: RefCell<BTreeSet<HoldId>>,
}

/// What a harness is answered, and nothing more: it carries effects out itself.
#[derive(Default)]
struct Sink {
    resolved: Mutex<Resolved>,
}

impl monitor::Channel for Sink {
    fn commit(&self, held: &Held, lease: Lease) -> Result<String, String> {
        let committed = Committed {
            hold: held.hold.to_string(),
            manifest: lease.manifest().hex(),
        };
        self.lock().commit.push(committed);
        Ok("handed to the harness".to_string())
    }

    fn abort(&self, held: &Held, refusal: &Refusal, notice: &Notice) {
        let aborted = Aborted {
            hold: held.hold.to_string(),
            why: refusal.to_string(),
            notice: notice.text.clone(),
        };
        self.lock().abort.push(aborted);
    }
}

impl Sink {
    fn lock(&self) -> std::sync::MutexGuard<'_, Resolved> {
        self.resolved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Resolved {
        std::mem::take(&mut self.lock())
    }
}

impl Harness {
    /// Begins a session in a directory of a disk; what outlives it is on the shared one, or on
    /// the system's when there is none. The first event is
    /// the task's, if there is one.
    ///
    /// # Errors
    /// When its log cannot be written.
    pub fn open(
        (disk, shared): (&Arc<dyn Disk>, Option<&Arc<dyn Disk>>),
        root: &Path,
        id: &str,
        policy: &LoadedPolicy,
        workspace: Option<&str>,
        (clock, chance): (fn() -> String, &Arc<dyn Chance>),
    ) -> Result<Self, Mistake> {
        let failed = |error: String| {
            Mistake::new(
                format!("the session's log cannot be written: {error}"),
                "free some space, or give another directory with `--log`",
            )
        };
        let path = root.join("sessions").join(id);
        let dir = SessionDir::at(&path);
        if disk.contains(&dir.log()) {
            return Err(Mistake::new(
                format!("there is a log of a session `{id}` already"),
                "give the session another name, or another directory with `--log`",
            ));
        }
        disk.make_dirs(&path).map_err(|e| failed(e.to_string()))?;
        // A workspace that has no name is one of its own.
        let identity = workspace.map_or_else(|| format!("session {id}"), ToString::to_string);
        let mut log = Log::create_on(disk, &dir.log(), clock).map_err(|e| failed(e.to_string()))?;
        log.append(&Record::Header {
            format: store::record::FORMAT,
            session: id.to_string(),
            workspace: identity.clone(),
            epoch: policy.policy.epoch.hex(),
            command: vec!["decide".to_string()],
            started: clock(),
            version: env!("CARGO_PKG_VERSION").to_string(),
        })
        .map_err(|e| failed(e.to_string()))?;
        let labels = workspace
            .map(|name| match shared {
                // Other processes may use it: there is a lock.
                None => WorkspaceLabels::open(root, name),
                Some(shared) => WorkspaceLabels::open_beside(shared, root, name),
            })
            .transpose()
            .map_err(|e| failed(e.to_string()))?;
        let session = Session::new(Parts {
            policy: Arc::clone(&policy.policy),
            rules: Arc::clone(&policy.rules),
            log,
            dir: dir.clone(),
            blobs: Blobs::open_dir_on(disk, &dir.blobs()).map_err(|e| failed(e.to_string()))?,
            workspace: identity,
            chance: Arc::clone(chance),
            clock: Arc::new(SystemClock::default()),
            labels,
            recovered: None,
        });
        let sink = Arc::new(Sink::default());
        for channel in [Channel::Tool, Channel::Net, Channel::File] {
            session.attach(channel, Arc::clone(&sink) as Arc<dyn monitor::Channel>);
        }
        Ok(Self {
            session,
            sink,
            dir,
            held: RefCell::default(),
        })
    }

    /// Where its log lies.
    pub fn dir(&self) -> &SessionDir {
        &self.dir
    }

    /// The principal's words.
    pub fn task(&self, words: String) -> EventId {
        self.session.incoming(Incoming::new(
            Channel::Term,
            Source::Task,
            Content::new(words.into_bytes()),
        ))
    }

    /// Content reached the agent.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn incoming(&self, request: request::Incoming) -> Result<EventId, Mistake> {
        Ok(self.session.incoming(event::incoming(request)?))
    }

    /// Decides what the agent is about to do.
    ///
    /// # Errors
    /// When the proposal says nothing that could be decided; nothing happened then.
    pub fn propose(
        &self,
        request: request::Propose,
        outside: &dyn Outside,
    ) -> Result<Decided, Mistake> {
        let policy = self.session.policy();
        for name in &request.saw {
            if !self.held.borrow().contains(&event::hold(name)?) {
                return Err(Mistake::new(
                    format!("`{name}` was never held"),
                    "`saw` names holds as they were answered",
                ));
            }
        }
        let proposed = event::proposed(request, &policy, &self.session.scanner(), outside)?;
        let class = proposed.effect.class.name();
        let note = String::from_utf8(proposed.bytes).unwrap_or_default();
        let parked = Parked { note, blob: None };
        let mut decided = Decided {
            event: 0,
            decision: "release",
            class,
            why: Vec::new(),
            reasons: Vec::new(),
            manifest: String::new(),
            hold: None,
            mark: None,
            depends: Vec::new(),
            notice: None,
        };
        match self.session.propose(proposed.effect, parked, &mut |_| {}) {
            Outcome::Released(lease) => {
                decided.event = lease.event().0;
                decided.manifest = lease.manifest().hex();
                decided.why = vec!["the policy vouches for it".to_string()];
            }
            Outcome::Refused {
                event,
                refusal,
                notice,
            } => {
                decided.event = event.0;
                decided.decision = "refuse";
                decided.why = vec![refusal.to_string()];
                decided.notice = Some(notice.text);
            }
            Outcome::Held(held) => {
                self.held.borrow_mut().insert(held.hold);
                decided.event = held.hold.0;
                decided.decision = "defer";
                decided.manifest = held.manifest.hex();
                decided.hold = Some(held.hold.to_string());
                decided.depends = names(&held.question.depends);
                decided.notice = Some(held.notice.text);
                decided.why = store::record::words(&held.question.reasons);
                decided.reasons = held.question.reasons.iter().map(written::reason).collect();
                decided.mark = Some(held.mark);
            }
        }
        Ok(decided)
    }

    /// Records what came of a released call.
    ///
    /// # Errors
    /// When no such call was released.
    pub fn done(&self, request: request::Done) -> Result<(), Mistake> {
        if !self.session.is_spent(EventId(request.event)) {
            return Err(Mistake::new(
                format!("event {} is no call that was released", request.event),
                "report the `event` of a proposal that was answered `release`, or of a hold that was committed",
            ));
        }
        let result = if request.ok {
            Ok(request.what)
        } else {
            Err(request.what)
        };
        self.session.done(EventId(request.event), result);
        Ok(())
    }

    /// An oracle's answer.
    ///
    /// # Errors
    /// Why it was not acted upon.
    pub fn verdict(&self, request: request::Verdict) -> Result<Resolved, Mistake> {
        let hold = event::hold(&request.hold)?;
        let manifest = Digest::from_hex(&request.manifest).ok_or_else(|| {
            Mistake::new(
                format!("`{}` is no digest", request.manifest),
                "name the manifest as it was answered: 64 hexadecimal digits",
            )
        })?;
        let verdict = match request.verdict {
            Word::Release => Verdict::Release,
            Word::Refuse => Verdict::Refuse,
        };
        self.session
            .verdict(hold, manifest, verdict, &request.oracle, &request.reason)
            .map_err(|why| void(&why))?;
        Ok(self.sink.take())
    }

    /// Nobody decided a hold that cannot wait.
    ///
    /// # Errors
    /// When there is no such hold.
    pub fn expire(&self, name: &str) -> Result<Resolved, Mistake> {
        self.session.expire(self.open_hold(name)?);
        Ok(self.sink.take())
    }

    /// The agent took back what was held.
    ///
    /// # Errors
    /// When there is no such hold.
    pub fn withdraw(&self, name: &str) -> Result<Resolved, Mistake> {
        self.session.withdraw(self.open_hold(name)?);
        Ok(self.sink.take())
    }

    /// Refuses what was held for longer than the policy allows.
    pub fn expire_overdue(&self) -> Vec<Aborted> {
        for hold in self.session.overdue() {
            self.session.expire_overdue(hold);
        }
        self.sink.take().abort
    }

    /// What is held.
    pub fn held(&self) -> Reply {
        let abort = self.expire_overdue();
        let holds = self.session.held();
        let scopes = self.session.scopes();
        Reply::Held {
            holds: holds
                .iter()
                .map(|held| Hold {
                    hold: held.hold.to_string(),
                    manifest: held.manifest.hex(),
                    effect: kernel::manifest::describe(&held.effect),
                    class: held.effect.class.name(),
                    reasons: held.question.reasons.iter().map(written::reason).collect(),
                    depends: names(&held.question.depends),
                })
                .collect(),
            scopes: scopes.iter().map(|scope| names(scope)).collect(),
            abort,
        }
    }

    /// What an oracle may see of everything that is held.
    pub fn view(&self) -> View {
        monitor::resolve::view(&self.session, &self.session.held())
    }

    /// Ends the session: what is still held is refused.
    pub fn close(self) -> Vec<String> {
        let mut refused = Vec::new();
        for held in self.session.held() {
            self.session.expire(held.hold);
            refused.push(held.hold.to_string());
        }
        self.session.note("session closed", BTreeMap::new());
        refused
    }

    fn open_hold(&self, name: &str) -> Result<HoldId, Mistake> {
        let hold = event::hold(name)?;
        if self.session.find(hold).is_some() {
            Ok(hold)
        } else {
            Err(void(&format!(
                "{hold}: there is no such hold, or it is resolved"
            )))
        }
    }
}

fn void(why: &str) -> Mistake {
    Mistake::new(why, "ask for what is `held` now, and answer for that")
}

fn names(holds: &[HoldId]) -> Vec<String> {
    holds.iter().map(ToString::to_string).collect()
}
