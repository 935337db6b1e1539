//! Who decides while the agent runs, and at its end.
//!
//! What can wait is decided at the end, when the whole story is known. What cannot wait (a request
//! whose answer the agent needs) is decided at once, together with what it depends on: by the oracle
//! where that is a program, by whoever uses `kairos approve` meanwhile where it is a person, by
//! nobody otherwise, and then it is refused.

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use kernel::{Class, HoldId};
use monitor::resolve::{Resolved, resolve};
use monitor::{Happening, Held, Oracle, Session};

/// How deferred effects are decided.
#[derive(Clone)]
pub(crate) enum Mode {
    /// At once, by an oracle that gains nothing by waiting (`deny`).
    AtOnce(Arc<dyn Oracle>),
    /// By a program: what cannot wait at once, the rest at the end.
    Program(Arc<dyn Oracle>),
    /// By a person on this terminal at the end; meanwhile from another one.
    Person(Arc<dyn Oracle>),
    /// By nobody: everything is kept for a later review, what cannot wait is refused.
    Nobody,
}

/// The thread that decides what cannot wait.
pub(crate) struct Deciding {
    mode: Mode,
    sender: Mutex<Option<Sender<Held>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    notes: Arc<Mutex<Vec<String>>>,
}

impl Deciding {
    /// Begins to listen to a session.
    pub(crate) fn start(session: &Arc<Session>, mode: Mode) -> Arc<Self> {
        let (sender, receiver) = channel();
        let notes: Arc<Mutex<Vec<String>>> = Arc::default();
        let thread = std::thread::Builder::new().name("deciding".into()).spawn({
            let (session, mode, notes) = (Arc::clone(session), mode.clone(), Arc::clone(&notes));
            move || decide(&session, &mode, &receiver, &notes)
        });
        let this = Arc::new(Self {
            mode,
            sender: Mutex::new(Some(sender)),
            thread: Mutex::new(thread.ok()),
            notes,
        });
        let listener = Arc::clone(&this);
        session.subscribe(Box::new(move |happening| {
            if let Happening::Held(held) = happening {
                let sender = listener
                    .sender
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                if let Some(sender) = &*sender {
                    // The other end is gone only when the session is ending.
                    let _ = sender.send((**held).clone());
                }
            }
        }));
        this
    }

    /// The agent has ended and everything it did is settled: decides the rest.
    pub(crate) fn finish(&self, session: &Session) -> Resolved {
        drop(
            self.sender
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        );
        if let Some(thread) = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
        {
            // A thread that failed has decided nothing; what it left is still held.
            let _ = thread.join();
        }
        let mut resolved = match &self.mode {
            Mode::Nobody => Resolved::default(),
            Mode::AtOnce(oracle) | Mode::Program(oracle) | Mode::Person(oracle) => {
                resolve(session, &**oracle, None)
            }
        };
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        resolved.notes.append(&mut notes);
        resolved
    }
}

fn decide(session: &Session, mode: &Mode, holds: &Receiver<Held>, notes: &Mutex<Vec<String>>) {
    while let Ok(held) = holds.recv() {
        let blocking = held.effect.class == Class::Blocking;
        let resolved = match mode {
            Mode::AtOnce(oracle) => resolve(session, &**oracle, Some(&before(session, held.hold))),
            Mode::Program(oracle) if blocking => {
                resolve(session, &**oracle, Some(&before(session, held.hold)))
            }
            Mode::Nobody if blocking => {
                session.expire(held.hold);
                continue;
            }
            // A person decides from elsewhere, or the channel's deadline does.
            Mode::Person(_) | Mode::Program(_) | Mode::Nobody => continue,
        };
        notes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend(resolved.notes);
    }
}

/// A hold and everything it depends on.
fn before(session: &Session, hold: HoldId) -> Vec<HoldId> {
    let held = session.held();
    let mut wanted = BTreeSet::from([hold]);
    // Dependencies are older, so one pass from the youngest finds them all.
    for item in held.iter().rev() {
        if wanted.contains(&item.hold) {
            wanted.extend(item.question.depends.iter().copied());
        }
    }
    wanted.into_iter().collect()
}
