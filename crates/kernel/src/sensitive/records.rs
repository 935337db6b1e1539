//! Level and origin of each token.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::event::{EventId, Source};
use crate::label::Level;
use crate::value::Origin;

/// A line number is written down anew after so many tokens.
const LINE_MARK_EVERY: usize = 4096;

/// Level and origin of each token, by number: what one content brought stands together.
#[derive(Clone, Default)]
pub(super) struct Records {
    contents: Vec<Content>,
    /// Lines from the token before.
    steps: Vec<u8>,
    /// Token and line, where the steps do not say it.
    marks: Vec<(u32, u32)>,
    /// Tokens that a later content holds at a higher level.
    higher: BTreeMap<u32, Level>,
    line: u32,
}

#[derive(Clone)]
struct Content {
    first: u32,
    source: Source,
    event: EventId,
    level: Level,
}

impl Records {
    /// What is pushed from now on comes from this content.
    pub(super) fn begin(&mut self, source: &Source, event: EventId, level: Level) {
        let first = u32::try_from(self.steps.len()).unwrap_or(u32::MAX);
        if self.contents.last().is_some_and(|last| last.first == first) {
            self.contents.pop();
        }
        self.contents.push(Content {
            first,
            source: source.clone(),
            event,
            level,
        });
    }

    /// Origin of the next token.
    pub(super) fn push(&mut self, line: u32) {
        let number = u32::try_from(self.steps.len()).unwrap_or(u32::MAX);
        let step = line
            .checked_sub(self.line)
            .and_then(|s| u8::try_from(s).ok());
        let first = self.contents.last().is_none_or(|c| c.first == number);
        match step {
            Some(step) if !first && !self.steps.len().is_multiple_of(LINE_MARK_EVERY) => {
                self.steps.push(step);
            }
            _ => {
                self.marks.push((number, line));
                self.steps.push(0);
            }
        }
        self.line = line;
    }

    pub(super) fn raise(&mut self, number: u32, level: Level) {
        if self.level(number) < level {
            self.higher.insert(number, level);
        }
    }

    pub(super) fn level(&self, number: u32) -> Level {
        let below = self.content(number).map_or(Level::Public, |c| c.level);
        self.higher
            .get(&number)
            .map_or(below, |level| below.join(*level))
    }

    pub(super) fn origin(&self, number: u32) -> Option<Origin> {
        let content = self.content(number)?;
        let after = self.marks.partition_point(|(token, _)| *token <= number);
        let (token, line) = *self.marks.get(after.checked_sub(1)?)?;
        let steps = self.steps.get(token as usize..=number as usize)?;
        Some(Origin {
            source: content.source.clone(),
            event: content.event,
            line: line + steps.iter().map(|step| u32::from(*step)).sum::<u32>(),
        })
    }

    /// Bytes in memory.
    pub(super) fn bytes(&self) -> usize {
        self.steps.capacity()
            + self.marks.capacity() * 8
            + self.contents.capacity() * size_of::<Content>()
    }

    fn content(&self, number: u32) -> Option<&Content> {
        if number as usize >= self.steps.len() {
            return None;
        }
        let after = self.contents.partition_point(|c| c.first <= number);
        self.contents.get(after.checked_sub(1)?)
    }
}
