//! Puts notices into requests, where the agent's model reads them next.
//!
//! A notice is appended to the newest tool result, or to the newest user message where that is
//! newer. Agents send their history again with every request and know nothing of the notice, so the
//! ledger remembers which tool result (or message) got which text, and every later request gets the
//! same text at the same place: providers' caches stay valid and the model sees one notice once.
//! Everything else in the request stays as it is, byte for byte.

mod places;

use crate::protocol::{Call, Purpose};
use crate::splice::{Edit, apply};
use places::{Key, Place, Places};
use std::collections::{HashMap, VecDeque};

/// The notices of one session: those that wait for a request, and those that have their place.
#[derive(Debug, Default)]
pub struct Ledger {
    waiting: VecDeque<String>,
    placed: HashMap<Key, Vec<String>>,
    delivered: u64,
}

impl Ledger {
    /// An empty ledger.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a notice for the next request that has a place for it.
    pub fn queue(&mut self, text: impl Into<String>) {
        let text = text.into();
        // Providers refuse an empty part.
        if !text.trim().is_empty() {
            self.waiting.push_back(text);
        }
    }

    /// How many notices still wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// How many notices have been put into a request.
    #[must_use]
    pub fn delivered(&self) -> u64 {
        self.delivered
    }
}

/// The request's body with the notices that belong into it, or nothing if it stays as it is.
/// `body` is a complete JSON body, decoded, or one WebSocket message.
///
/// A request that only counts, compacts or warms up, and one that offers no tools and holds no tool
/// result (a title, a summary), gets what earlier requests had in the same place but takes no
/// waiting notice away.
#[must_use]
pub fn insert(call: Call, body: &[u8], ledger: &mut Ledger) -> Option<Vec<u8>> {
    if ledger.waiting.is_empty() && ledger.placed.is_empty() {
        return None;
    }
    if call.purpose == Purpose::Models {
        return None;
    }
    let text = std::str::from_utf8(body).ok()?;
    let Places { places, takes_new } = places::find(call.protocol, text)?;
    if takes_new && call.purpose == Purpose::Generate {
        assign(ledger, places.last());
    }
    let edits: Vec<Edit> = places
        .iter()
        .filter_map(|place| Some(place.slot.edit(ledger.placed.get(&place.key)?)))
        .collect();
    if edits.is_empty() {
        return None;
    }
    apply(text, edits).map(String::into_bytes)
}

/// Gives every waiting notice to `newest`.
fn assign(ledger: &mut Ledger, newest: Option<&Place>) {
    let Some(newest) = newest else { return };
    if !ledger.waiting.is_empty() {
        ledger.delivered += ledger.waiting.len() as u64;
        let texts = ledger.placed.entry(newest.key.clone()).or_default();
        texts.extend(ledger.waiting.drain(..));
    }
}

#[cfg(test)]
mod tests;
