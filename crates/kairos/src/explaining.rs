//! What the person who is asked may look at besides the view: the whole diff of a hold.

use std::sync::{Arc, OnceLock, Weak};

use kernel::HoldId;
use monitor::Session;
use oracles::Explain;

/// Looks into a session that is named once it exists.
#[derive(Clone, Default)]
pub(crate) struct Explaining(Arc<OnceLock<Weak<Session>>>);

impl Explaining {
    /// Names the session.
    pub(crate) fn of(&self, session: &Arc<Session>) {
        // Named once; a second name would be the same session's.
        let _ = self.0.set(Arc::downgrade(session));
    }
}

impl Explain for Explaining {
    fn diff(&self, hold: HoldId) -> Option<String> {
        let session = self.0.get()?.upgrade()?;
        monitor::resolve::show(&session, hold)
    }
}
