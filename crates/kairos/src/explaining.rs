//! What the person or model that is asked may look at besides the view: the whole diff of a hold, the
//! line that a value was met in, and what the agent said and called before it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use conversation::Item;
use kernel::{Digest, HoldId, Object, Origin};
use monitor::Session;
use oracles::Explain;
use store::Record;

use crate::steps;

/// Pieces of the conversation that are told before one hold.
const BEFORE_MAX: usize = 8;
/// Lines of content larger than this are not looked for.
const CONTENT_BYTES_MAX: u64 = 8 << 20;

/// Looks into a session that is named once it exists.
#[derive(Clone, Default)]
pub(crate) struct Explaining {
    session: Arc<OnceLock<Weak<Session>>>,
    log: Arc<Mutex<Read>>,
}

/// What was read of the log, up to its length at the time.
#[derive(Default)]
struct Read {
    bytes: u64,
    /// Content by event.
    content: BTreeMap<u64, Digest>,
    /// What was said and called, in words, with the number of the event before it.
    said: Vec<(u64, String)>,
}

impl Explaining {
    /// Names the session.
    pub(crate) fn of(&self, session: &Arc<Session>) {
        // Named once; a second name would be the same session's.
        let _ = self.session.set(Arc::downgrade(session));
    }

    fn session(&self) -> Option<Arc<Session>> {
        self.session.get()?.upgrade()
    }

    /// Looks into the log as it is now.
    fn with<T>(&self, session: &Session, look: impl FnOnce(&Read) -> T) -> Option<T> {
        let path = session.dir().log();
        let bytes = std::fs::metadata(&path).ok()?.len();
        let mut read = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        if read.bytes != bytes {
            let log = store::log::read(&path).ok()?;
            *read = Read {
                bytes,
                ..Read::default()
            };
            let mut last = 0;
            for entry in &log.entries {
                match &entry.record {
                    Record::Incoming {
                        event,
                        digest,
                        kept: true,
                        bytes,
                        ..
                    } if *bytes <= CONTENT_BYTES_MAX => {
                        last = *event;
                        read.content
                            .extend(Digest::from_hex(digest).map(|digest| (*event, digest)));
                    }
                    Record::Incoming { event, .. } | Record::Proposed { event, .. } => {
                        last = *event
                    }
                    Record::Note { what, facts } if what == steps::NOTE => {
                        let item = steps::item(facts, session.blobs());
                        read.said
                            .extend(item.as_ref().and_then(words).map(|words| (last, words)));
                    }
                    _ => {}
                }
            }
        }
        Some(look(&read))
    }
}

impl Explain for Explaining {
    fn diff(&self, hold: HoldId) -> Option<String> {
        let session = self.session()?;
        monitor::resolve::show(&session, hold)
    }

    fn line(&self, origin: &Origin) -> Option<String> {
        let session = self.session()?;
        let digest = self.with(&session, |read| read.content.get(&origin.event.0).copied())??;
        let content = session.blobs().read(&digest).ok()?;
        let text = String::from_utf8_lossy(&content);
        let number = usize::try_from(origin.line).ok()?.checked_sub(1)?;
        let line = text.lines().nth(number)?;
        Some(session.scanner().redacted(line))
    }

    fn before(&self, hold: HoldId) -> Vec<String> {
        let Some(session) = self.session() else {
            return Vec::new();
        };
        let held = session.held().into_iter().find(|held| held.hold == hold);
        let needle = match held.map(|held| held.effect.object) {
            Some(Object::Party { host, .. }) => host,
            Some(Object::Location { path, .. }) => {
                path.rsplit('/').next().unwrap_or_default().to_string()
            }
            Some(Object::Tool { name }) => name,
            None => return Vec::new(),
        };
        if needle.is_empty() {
            return Vec::new();
        }
        let said = self.with(&session, |read| {
            let before = read.said.iter().filter(|(event, _)| *event <= hold.0);
            let mentions: Vec<String> = before
                .filter(|(_, words)| words.contains(&needle))
                .map(|(_, words)| words.clone())
                .collect();
            let from = mentions.len().saturating_sub(BEFORE_MAX);
            mentions.into_iter().skip(from).collect::<Vec<_>>()
        });
        let scanner = session.scanner();
        said.unwrap_or_default()
            .iter()
            .map(|words| scanner.redacted(words))
            .collect()
    }
}

/// A piece of the conversation in a few words.
fn words(item: &Item) -> Option<String> {
    const CHARACTERS_MAX: usize = 2000;
    let text = match item {
        Item::Instruction(_) | Item::User(_) => return None,
        Item::Narration(text) => format!("the model said: {text}"),
        Item::Reasoning(text) => format!("the model thought: {text}"),
        Item::ToolCall {
            name, arguments, ..
        } => format!("it called {name}: {arguments}"),
        Item::ToolResult { text, .. } => format!("a tool gave back: {text}"),
    };
    let one_line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    Some(one_line.chars().take(CHARACTERS_MAX).collect())
}
