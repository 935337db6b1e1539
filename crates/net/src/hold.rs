//! Requests that wait for a verdict, and stubs that stand in for one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};

use kernel::{Digest, Effect, HoldId, Notice};
use monitor::{Held, Session};
use store::{Blobs, Lease};
use tokio::sync::oneshot;

/// What who waits is told.
#[derive(Debug)]
pub(crate) enum Ruling {
    /// Act now, once, and report what came of it.
    Go {
        /// Leave for it.
        lease: Lease,
        /// Where the outcome is awaited.
        report: mpsc::Sender<Result<String, String>>,
    },
    /// It must not happen.
    No(Notice),
}

/// A stub that was handed out, to be handed out again for an identical request.
#[derive(Clone, Debug)]
pub(crate) struct Stub {
    /// The hold it stands for.
    pub(crate) hold: HoldId,
    /// What the agent is told.
    pub(crate) notice: Notice,
    /// Its unguessable mark.
    pub(crate) mark: String,
}

impl Stub {
    /// The stub of a hold.
    pub(crate) fn of(held: &Held) -> Self {
        Self {
            hold: held.hold,
            notice: held.notice.clone(),
            mark: held.mark.clone(),
        }
    }
}

/// Everything of this channel that is held.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    book: Mutex<Book>,
    /// Taken while a stallable request is proposed, so that of identical ones only one is held.
    pub(crate) one_at_a_time: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Book {
    waiting: HashMap<HoldId, oneshot::Sender<Ruling>>,
    /// By the request's identity.
    stubs: HashMap<Digest, Stub>,
    /// The other way round.
    identities: HashMap<HoldId, Digest>,
    parked: HashMap<HoldId, Digest>,
}

impl Holds {
    /// Registers who waits for a verdict.
    pub(crate) fn wait(&self, hold: HoldId) -> oneshot::Receiver<Ruling> {
        let (sender, receiver) = oneshot::channel();
        self.book().waiting.insert(hold, sender);
        receiver
    }

    /// Who waits for a verdict, if anybody still does.
    pub(crate) fn take_waiting(&self, hold: HoldId) -> Option<oneshot::Sender<Ruling>> {
        self.book()
            .waiting
            .remove(&hold)
            .filter(|sender| !sender.is_closed())
    }

    /// The stub of an identical request that is held.
    pub(crate) fn stub(&self, identity: &Digest) -> Option<Stub> {
        self.book().stubs.get(identity).cloned()
    }

    /// Remembers a stub by its request's [`identity`].
    pub(crate) fn stubbed(&self, identity: Digest, stub: Stub) {
        let mut book = self.book();
        book.identities.insert(stub.hold, identity);
        book.stubs.insert(identity, stub);
    }

    /// Remembers what lies parked for a hold.
    pub(crate) fn parked(&self, hold: HoldId, payload: Digest) {
        self.book().parked.insert(hold, payload);
    }

    /// A hold is resolved; what lies parked for it alone is removed.
    pub(crate) fn resolved(&self, held: &Held, blobs: &Blobs) {
        self.withdrawn(held.hold);
        self.unpark(held.hold, held.effect.payload.digest, blobs);
    }

    /// A hold was taken back: its stub stands for nothing any more.
    pub(crate) fn withdrawn(&self, hold: HoldId) {
        let mut book = self.book();
        let Some(identity) = book.identities.remove(&hold) else {
            return;
        };
        if book
            .stubs
            .get(&identity)
            .is_some_and(|stub| stub.hold == hold)
        {
            book.stubs.remove(&identity);
        }
    }

    /// Bytes that were kept in case of a hold, and were not held.
    pub(crate) fn unheld(&self, payload: &Digest, blobs: &Blobs) {
        let shared = self.book().parked.values().any(|other| other == payload);
        // A failure leaves private bytes behind and changes nothing else.
        if !shared && let Err(error) = blobs.remove(payload) {
            tracing::warn!(%error, "parked bytes cannot be removed");
        }
    }

    fn unpark(&self, hold: HoldId, payload: Digest, blobs: &Blobs) {
        let mut book = self.book();
        book.waiting.remove(&hold);
        book.parked.remove(&hold);
        let shared = book.parked.values().any(|other| *other == payload);
        // A failure leaves private bytes behind and changes nothing else.
        if !shared && let Err(error) = blobs.remove(&payload) {
            tracing::warn!(%error, "parked bytes cannot be removed");
        }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What makes two requests one decision: everything that would be sent and is part of what is approved, wherever it
/// stands (target, head, body, trailers), and what it was found to carry, incidental headers included.
pub(crate) fn identity(effect: &Effect) -> Digest {
    let Effect {
        operation,
        object,
        payload,
        fields,
        carries,
        ..
    } = effect;
    Digest::of(format!("{:?}", (operation, object, payload, fields, carries)).as_bytes())
}

/// Takes a hold back when who waited for it has gone.
pub(crate) struct Withdraw {
    session: Arc<Session>,
    holds: Arc<Holds>,
    held: Option<(HoldId, Digest)>,
}

impl Withdraw {
    pub(crate) fn new(session: &Arc<Session>, holds: &Arc<Holds>, held: &Held) -> Self {
        Self {
            session: Arc::clone(session),
            holds: Arc::clone(holds),
            held: Some((held.hold, held.effect.payload.digest)),
        }
    }

    /// The verdict is there.
    pub(crate) fn disarm(mut self) {
        self.held = None;
    }
}

impl Drop for Withdraw {
    fn drop(&mut self) {
        let Some((hold, payload)) = self.held.take() else {
            return;
        };
        let (session, holds) = (Arc::clone(&self.session), Arc::clone(&self.holds));
        let work = move || {
            session.withdraw(hold);
            holds.unpark(hold, payload, session.blobs());
        };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(work)),
            Err(_) => work(),
        }
    }
}
