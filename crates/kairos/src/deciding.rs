//! Who decides while the agent runs, and at its end.
//!
//! What can wait is decided at the end, when the whole story is known. What cannot wait (a request
//! whose answer the agent needs) is decided at once, together with what it depends on: by the oracle
//! where that is a program, by whoever uses `kairos approve` meanwhile where it is a person, by
//! nobody otherwise, and then it is refused.

use std::io::Write as _;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

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
    /// What cannot wait by programs, and what those keep by a person from elsewhere; the rest by
    /// all of them at the end.
    Mixed {
        /// Those that need nobody.
        first: Arc<dyn Oracle>,
        /// All of them.
        all: Arc<dyn Oracle>,
    },
    /// By a person on this terminal at the end; meanwhile from another one.
    Person(Arc<dyn Oracle>),
    /// By nobody: everything is kept for a later review, what cannot wait is refused.
    Nobody,
}

/// What the thread is asked.
enum Asked {
    /// An effect is held.
    Held(Box<Held>),
    /// A limit is reached: these cannot wait for the end.
    Due(Vec<HoldId>),
}

/// How often it is looked whether a hold is too old.
const AGE_CHECK: Duration = Duration::from_secs(1);

/// The thread that decides what cannot wait.
pub(crate) struct Deciding {
    mode: Mode,
    sender: Mutex<Option<Sender<Asked>>>,
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
            let asked = match happening {
                Happening::Held(held) => Some(Asked::Held(held.clone())),
                Happening::Due { holds, .. } => Some(Asked::Due(holds.clone())),
                _ => None,
            };
            if let Some(asked) = asked {
                let sender = listener
                    .sender
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                if let Some(sender) = &*sender {
                    // The other end is gone only when the session is ending.
                    let _ = sender.send(asked);
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
            Mode::AtOnce(oracle)
            | Mode::Program(oracle)
            | Mode::Person(oracle)
            | Mode::Mixed { all: oracle, .. } => resolve(session, &**oracle, None),
        };
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        resolved.notes.append(&mut notes);
        resolved
    }
}

fn decide(session: &Session, mode: &Mode, asked: &Receiver<Asked>, notes: &Mutex<Vec<String>>) {
    loop {
        let resolved = match asked.recv_timeout(AGE_CHECK) {
            Ok(Asked::Held(held)) => held_now(session, mode, &held),
            Ok(Asked::Due(holds)) => by_a_program(session, mode, &holds),
            Err(RecvTimeoutError::Timeout) => overdue(session, mode),
            Err(RecvTimeoutError::Disconnected) => return,
        };
        notes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend(resolved.notes);
    }
}

fn held_now(session: &Session, mode: &Mode, held: &Held) -> Resolved {
    let blocking = held.effect.class == Class::Blocking;
    match mode {
        Mode::AtOnce(_) => by_a_program(session, mode, &session.needs(held.hold)),
        Mode::Program(_) if blocking => by_a_program(session, mode, &session.needs(held.hold)),
        Mode::Nobody if blocking => {
            session.expire(held.hold);
            Resolved::default()
        }
        Mode::Mixed { .. } if blocking => {
            let resolved = by_a_program(session, mode, &session.needs(held.hold));
            if session.held().iter().any(|open| open.hold == held.hold) {
                announce(session, held);
            }
            resolved
        }
        // A person decides from elsewhere, or the channel's deadline does.
        Mode::Person(_) if blocking => {
            announce(session, held);
            Resolved::default()
        }
        Mode::Person(_) | Mode::Program(_) | Mode::Mixed { .. } | Mode::Nobody => {
            Resolved::default()
        }
    }
}

/// Says at the terminal that a request waits, and how to answer. The agent has the terminal, in
/// whatever state it put it, so the line brings its own ends.
fn announce(session: &Session, held: &Held) {
    let text = waiting(&session.dir().id(), held);
    let terminal = std::fs::File::options().write(true).open("/dev/tty");
    match terminal {
        Ok(mut terminal) => drop(terminal.write_all(text.as_bytes())),
        Err(_) => drop(std::io::stderr().lock().write_all(text.as_bytes())),
    }
}

/// The announcement of a request that waits.
fn waiting(session: &str, held: &Held) -> String {
    let what = format!("{} {}", held.effect.operation.name(), held.effect.object);
    format!(
        "\r\nkairos: {} waits for you: {}\r\nkairos: from another terminal: kairos approve {session} {} (or refuse)\r\n",
        held.hold,
        oracles::printable(&what),
        held.hold
    )
}

/// Asks the oracle where that is a program; a person is not interrupted.
fn by_a_program(session: &Session, mode: &Mode, holds: &[HoldId]) -> Resolved {
    match mode {
        Mode::AtOnce(oracle) | Mode::Program(oracle) | Mode::Mixed { first: oracle, .. } => {
            resolve(session, &**oracle, Some(holds))
        }
        Mode::Person(_) | Mode::Nobody => Resolved::default(),
    }
}

/// What was held for too long is decided, or refused when nobody decides it.
fn overdue(session: &Session, mode: &Mode) -> Resolved {
    let old = session.overdue();
    if old.is_empty() {
        return Resolved::default();
    }
    let resolved = by_a_program(session, mode, &old);
    for hold in old {
        session.expire_overdue(hold);
    }
    resolved
}
