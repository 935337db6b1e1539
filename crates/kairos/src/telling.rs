//! What the agent is told. Where its model conversation is understood, a notice is put beside the
//! very next tool result; everywhere else it rides on the next answer that Kairos itself gives.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use conversation::{Call, Ledger, notices};
use kernel::Notice;
use monitor::{Happening, Session};
use net::ConversationHook;

use crate::watching::Watching;

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

    /// Puts a correction beside the next tool result; it is no notice of an event.
    pub(crate) fn say(&self, text: String) {
        let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        ledger.queue(text);
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

/// Connects the net channel's model traffic with the notices, and with whoever reads along.
pub(crate) struct Conversation {
    pub(crate) telling: Arc<Telling>,
    pub(crate) watching: Arc<Watching>,
}

impl ConversationHook for Conversation {
    fn request(&self, host: &str, path: &str, _: &str, body: Vec<u8>) -> Vec<u8> {
        match call("POST", host, path) {
            Some(call) => {
                self.watching.request(call, &body);
                self.telling.insert(call, &body).unwrap_or(body)
            }
            None => body,
        }
    }

    fn ws_message(&self, host: &str, path: &str, text: String) -> String {
        // The upgrade is a GET; what its messages hold is what a POST would.
        let Some(call) = call("POST", host, path) else {
            return text;
        };
        self.watching.request(call, text.as_bytes());
        let amended = self.telling.insert(call, text.as_bytes());
        amended
            .and_then(|bytes| String::from_utf8(bytes).ok())
            .unwrap_or(text)
    }

    fn answer(&self, host: &str, path: &str, bytes: &[u8]) {
        if let Some(call) = call("POST", host, path) {
            let key = format!("{host}{path}");
            self.watching.answer(&key, call.protocol, bytes);
        }
    }
}

/// What a path is in the conversation with a model: by the provider's own table, or by what the
/// path looks like when the policy says that somebody else is a provider.
fn call(method: &str, host: &str, path: &str) -> Option<Call> {
    Call::of(method, host, path).or_else(|| Call::of_path(method, path))
}
