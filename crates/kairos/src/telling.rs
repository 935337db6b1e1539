//! What the agent is told. Where its model conversation is understood, a notice is put beside the
//! very next tool result; everywhere else it rides on the next answer that Kairos itself gives.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use conversation::{Call, Ledger, notices};
use kernel::Notice;
use monitor::{Happening, Session};
use net::ConversationHook;

/// Notices of one session.
#[derive(Debug, Default)]
pub(crate) struct Telling {
    ledger: Mutex<Ledger>,
    waiting: Mutex<VecDeque<Notice>>,
}

impl Telling {
    /// Hears what happens in a session, from now on.
    pub(crate) fn listen(self: &Arc<Self>, session: &Session) {
        let this = Arc::clone(self);
        session.subscribe(Box::new(move |happening| match happening {
            Happening::Aborted { notice, .. } => this.queue(notice),
            // A refused request is told in its own answer; a refused file change has none.
            Happening::Refused { effect, notice, .. }
                if effect.channel == kernel::Channel::File =>
            {
                this.queue(notice);
            }
            _ => {}
        }));
    }

    /// Notices that no conversation has taken yet, for an answer that Kairos gives itself.
    pub(crate) fn take_waiting(&self) -> Vec<String> {
        self.waiting().drain(..).map(|notice| notice.text).collect()
    }

    fn queue(&self, notice: &Notice) {
        self.waiting().push_back(notice.clone());
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, VecDeque<Notice>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts what waits into a message to the model, and what earlier ones had where it was.
    fn insert(&self, call: Call, body: &[u8]) -> Option<Vec<u8>> {
        let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        for text in self.take_waiting() {
            ledger.queue(text);
        }
        notices::insert(call, body, &mut ledger)
    }
}

/// Connects the net channel's model traffic with the notices.
#[derive(Debug)]
pub(crate) struct Conversation(pub(crate) Arc<Telling>);

impl ConversationHook for Conversation {
    fn request(&self, host: &str, path: &str, _: &str, body: Vec<u8>) -> Vec<u8> {
        match call("POST", host, path) {
            Some(call) => self.0.insert(call, &body).unwrap_or(body),
            None => body,
        }
    }

    fn ws_message(&self, host: &str, path: &str, text: String) -> String {
        // The upgrade is a GET; what its messages hold is what a POST would.
        let amended = call("POST", host, path)
            .and_then(|call| self.0.insert(call, text.as_bytes()))
            .and_then(|bytes| String::from_utf8(bytes).ok());
        amended.unwrap_or(text)
    }

    fn answer(&self, _: &str, _: &str, _: &[u8]) {}
}

/// What a path is in the conversation with a model: by the provider's own table, or by what the
/// path looks like when the policy says that somebody else is a provider.
fn call(method: &str, host: &str, path: &str) -> Option<Call> {
    Call::of(method, host, path).or_else(|| Call::of_path(method, path))
}
