//! Reads the task out of what the principal types: line editing is applied roughly, escape
//! sequences, mouse reports and the terminal's own answers are left out, and each line is handed on
//! when it is entered.
//!
//! This only listens. The bytes go to the agent unchanged, after the line has been handed on, so
//! that a task is known before the agent can act on it.

const LINE_CHARS_MAX: usize = 1 << 18;
const SEQUENCE_BYTES_MAX: usize = 1 << 16;

/// A listener on one keyboard.
#[derive(Debug, Default)]
pub struct Lines {
    state: State,
    line: Vec<char>,
    cursor: usize,
    /// Bytes of an unfinished UTF-8 character.
    character: Vec<u8>,
    sequence: Vec<u8>,
    pasting: bool,
}

impl Lines {
    /// A listener with an empty line.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes what was typed; `task` gets each line that was entered.
    pub fn push(&mut self, bytes: &[u8], task: &mut dyn FnMut(&str)) {
        for &byte in bytes {
            self.step(byte, task);
        }
        // A lone Escape key is a whole read of its own.
        if self.state == State::Escape && bytes.len() == 1 {
            self.state = State::EscapeKey;
        }
    }

    /// Forgets the unfinished line: it was a password.
    pub fn clear(&mut self) {
        self.line.clear();
        self.cursor = 0;
        self.character.clear();
    }

    fn step(&mut self, byte: u8, task: &mut dyn FnMut(&str)) {
        match self.state {
            State::Ground => self.ground(byte, task),
            State::EscapeKey if !matches!(byte, b'[' | b'O' | b']' | b'P' | b'_' | b'^' | b'X') => {
                self.state = State::Ground;
                self.ground(byte, task);
            }
            State::Escape | State::EscapeKey => self.escape(byte),
            State::Csi => self.csi(byte, task),
            State::Mouse(left) if byte & 0xc0 != 0x80 => {
                self.state = if left <= 1 {
                    State::Ground
                } else {
                    State::Mouse(left - 1)
                };
            }
            State::Mouse(_) => {}
            State::Ss3 => {
                self.state = State::Ground;
                self.key(byte);
            }
            State::Text => match byte {
                0x07 | 0x18 | 0x1a => self.state = State::Ground,
                0x1b => self.state = State::TextEscape,
                _ => {}
            },
            State::TextEscape if byte == b'\\' => self.state = State::Ground,
            State::TextEscape => self.escape(byte),
        }
    }

    fn ground(&mut self, byte: u8, task: &mut dyn FnMut(&str)) {
        if byte >= 0x80 {
            self.character.push(byte);
            match std::str::from_utf8(&self.character) {
                Ok(text) => {
                    let c = text.chars().next().unwrap_or_default();
                    self.character.clear();
                    self.insert(c);
                }
                Err(error) if error.error_len().is_some() || self.character.len() > 3 => {
                    self.character.clear();
                }
                Err(_) => {}
            }
            return;
        }
        self.character.clear();
        match byte {
            0x1b => self.state = State::Escape,
            b'\r' | b'\n' if self.pasting => self.insert('\n'),
            b'\t' if self.pasting => self.insert('\t'),
            0x20..=0x7e => self.insert(char::from(byte)),
            _ if self.pasting => {}
            b'\r' | b'\n' => self.enter(task),
            _ => self.control(byte),
        }
    }

    fn control(&mut self, byte: u8) {
        match byte {
            0x01 => self.cursor = self.line_start(),
            0x02 => self.cursor = self.cursor.saturating_sub(1),
            0x03 => self.clear(),
            0x04 => self.delete(self.cursor, self.cursor + 1),
            0x05 => self.cursor = self.line_end(),
            0x06 => self.cursor = (self.cursor + 1).min(self.line.len()),
            0x08 | 0x7f => self.delete(self.cursor.saturating_sub(1), self.cursor),
            0x0b => self.delete(self.cursor, self.line_end()),
            0x15 => self.delete(self.line_start(), self.cursor),
            0x17 => self.delete(self.word_start(), self.cursor),
            _ => {}
        }
    }

    fn escape(&mut self, byte: u8) {
        self.sequence.clear();
        self.state = match byte {
            b'[' => State::Csi,
            b'O' => State::Ss3,
            b']' | b'P' | b'_' | b'^' | b'X' => State::Text,
            0x1b => State::Escape,
            _ => State::Ground,
        };
        match byte {
            // Alt-Enter is a line break in the editors of most agents.
            b'\r' | b'\n' => self.insert('\n'),
            0x08 | 0x7f => self.delete(self.word_start(), self.cursor),
            _ => {}
        }
    }

    fn csi(&mut self, byte: u8, task: &mut dyn FnMut(&str)) {
        match byte {
            0x20..=0x3f if self.sequence.len() < SEQUENCE_BYTES_MAX => self.sequence.push(byte),
            b'M' if self.sequence.is_empty() => self.state = State::Mouse(3),
            0x40..=0x7e => {
                self.state = State::Ground;
                let parameters = std::mem::take(&mut self.sequence);
                self.sequence_ends(&parameters, byte, task);
            }
            0x1b => self.state = State::Escape,
            _ => self.state = State::Ground,
        }
    }

    fn sequence_ends(&mut self, parameters: &[u8], last: u8, task: &mut dyn FnMut(&str)) {
        let Ok(parameters) = std::str::from_utf8(parameters) else {
            return;
        };
        match (parameters, last) {
            ("200", b'~') => self.pasting = true,
            ("201", b'~') => self.pasting = false,
            ("3", b'~') => self.delete(self.cursor, self.cursor + 1),
            ("1" | "7", b'~') => self.key(b'H'),
            ("4" | "8", b'~') => self.key(b'F'),
            ("", b'C' | b'D' | b'H' | b'F') => self.key(last),
            (_, b'u') => self.kitty_key(parameters, task),
            (_, b'~') => {
                // xterm's modifyOtherKeys: 27 ; modifiers ; code.
                if let Some((modifiers, code)) = parameters
                    .strip_prefix("27;")
                    .and_then(|rest| rest.split_once(';'))
                {
                    self.kitty_key(&format!("{code};{modifiers}"), task);
                }
            }
            _ => {}
        }
    }

    /// `code[:shifted[:base]] ; modifiers[:event] ; text`
    fn kitty_key(&mut self, parameters: &str, task: &mut dyn FnMut(&str)) {
        let mut fields = parameters.split(';');
        let mut codes = fields.next().unwrap_or_default().split(':');
        let code = number(codes.next());
        let shifted = number(codes.next());
        let mut modifier = fields.next().unwrap_or_default().split(':');
        let bits = number(modifier.next()).unwrap_or(1).saturating_sub(1) & 0x3f;
        if number(modifier.next()) == Some(3) {
            return;
        }
        if let Some(text) = fields.next().filter(|text| !text.is_empty()) {
            for c in text
                .split(':')
                .filter_map(|n| number(Some(n)))
                .filter_map(char::from_u32)
            {
                self.insert(c);
            }
            return;
        }
        match (code, bits) {
            (Some(13 | 57_414), 0) => self.enter(task),
            (Some(13 | 57_414), _) => self.insert('\n'),
            (Some(127), 0 | 1) => self.control(0x7f),
            (Some(127), _) => self.control(0x17),
            (Some(code @ 97..=122), 4) => self.control(u8::try_from(code - 96).unwrap_or(0)),
            (Some(code @ 32..=0xdfff), 0) => self.insert_code(code),
            (Some(code @ 32..=0xdfff), 1) => {
                let upper = char::from_u32(code).and_then(|c| c.to_uppercase().next());
                self.insert_code(shifted.or(upper.map(u32::from)).unwrap_or(code));
            }
            _ => {}
        }
    }

    fn insert_code(&mut self, code: u32) {
        if let Some(c) = char::from_u32(code) {
            self.insert(c);
        }
    }

    fn key(&mut self, key: u8) {
        match key {
            b'C' => self.cursor = (self.cursor + 1).min(self.line.len()),
            b'D' => self.cursor = self.cursor.saturating_sub(1),
            b'H' => self.cursor = self.line_start(),
            b'F' => self.cursor = self.line_end(),
            _ => {}
        }
    }

    fn insert(&mut self, c: char) {
        let printable = !c.is_control() || c == '\n' || c == '\t';
        if printable && self.line.len() < LINE_CHARS_MAX {
            self.cursor = self.cursor.min(self.line.len());
            self.line.insert(self.cursor, c);
            self.cursor += 1;
        }
    }

    fn delete(&mut self, from: usize, to: usize) {
        let to = to.min(self.line.len());
        if from < to {
            self.line.drain(from..to);
            self.cursor = from;
        }
    }

    fn enter(&mut self, task: &mut dyn FnMut(&str)) {
        let text: String = self.line.drain(..).collect();
        self.cursor = 0;
        let text = text.trim();
        if !text.is_empty() {
            task(text);
        }
    }

    fn before_cursor(&self) -> &[char] {
        self.line.get(..self.cursor).unwrap_or(&self.line)
    }

    fn line_start(&self) -> usize {
        self.before_cursor()
            .iter()
            .rposition(|&c| c == '\n')
            .map_or(0, |at| at + 1)
    }

    fn line_end(&self) -> usize {
        let rest = self.line.get(self.cursor..).unwrap_or_default();
        self.cursor + rest.iter().position(|&c| c == '\n').unwrap_or(rest.len())
    }

    fn word_start(&self) -> usize {
        let before = self.before_cursor();
        let end = before
            .iter()
            .rposition(|c| !c.is_whitespace())
            .map_or(0, |at| at + 1);
        let word = before.get(..end).unwrap_or_default();
        word.iter()
            .rposition(|c| c.is_whitespace())
            .map_or(0, |at| at + 1)
    }
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Ground,
    Escape,
    /// An Escape that arrived alone: a key press, unless a sequence follows after all.
    EscapeKey,
    Csi,
    Ss3,
    /// Inside an answer of the terminal.
    Text,
    TextEscape,
    /// Characters of an old mouse report that are left.
    Mouse(u8),
}

fn number(text: Option<&str>) -> Option<u32> {
    text.and_then(|text| text.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::Lines;
    use proptest::prelude::*;

    fn typed(chunks: &[&[u8]]) -> Vec<String> {
        let (mut lines, mut tasks) = (Lines::new(), Vec::new());
        for chunk in chunks {
            lines.push(chunk, &mut |task| tasks.push(task.to_owned()));
        }
        tasks
    }

    #[track_caller]
    fn check(input: &str, expect: &[&str]) {
        assert_eq!(typed(&[input.as_bytes()]), expect);
    }

    #[test]
    fn lines_as_edited() {
        check("make the tests pass\r", &["make the tests pass"]);
        check("one\ntwo\r\n", &["one", "two"]);
        check("helo\x7f\x7fllo\r", &["hello"]);
        check("wrong\x15right\r", &["right"]);
        check("keep this word\x17line\r", &["keep this line"]);
        check("bc\x01a\x05d\r", &["abcd"]);
        check("ac\x1b[Db\x1b[C!\r", &["abc!"]);
        check("xabc\x1bOH\x1b[3~\r", &["abc"]);
        check("abandoned\x03next\r", &["next"]);
        check("é漢\x7f😀\r", &["é😀"]);
        check("  \r\r", &[]);
    }

    #[test]
    fn pastes_are_one_task() {
        check(
            "say \x1b[200~two\r\nlines\x03\x1b[201~!\r",
            &["say two\n\nlines!"],
        );
    }

    #[test]
    fn line_breaks_that_do_not_enter() {
        check("a\x1b\rb\r", &["a\nb"]);
        check("a\x1b[13;2ub\x1b[13u", &["a\nb"]);
        check("a\x1b[27;2;13~b\r", &["a\nb"]);
    }

    #[test]
    fn kitty_keys() {
        check(
            "\x1b[97u\x1b[98:66;2u\x1b[99;1:3u\x1b[100;;100u\x1b[127u\x1b[13u",
            &["aB"],
        );
        check("gone\x1b[117;5uhere\x1b[57441;2u\r", &["here"]);
    }

    #[test]
    fn answers_of_the_terminal_are_not_a_task() {
        check(
            "a\x1b[24;80Rb\x1b]11;rgb:0000/ffff/0000\x07c\x1bP>|xterm(9)\x1b\\d\r",
            &["abcd"],
        );
        check("\x1b]lrm -rf ~\r\x1b\\ok\r", &["ok"]);
        check("a\x1b[M !!b\x1b[<0;3;4Mc\x1b[Id\r", &["abcd"]);
        check("\x1b_Gi=1;OK\x1b\\x\r", &["x"]);
    }

    #[test]
    fn a_lone_escape_key_swallows_nothing() {
        assert_eq!(typed(&[b"ab", b"\x1b", b"cd\r"]), ["abcd"]);
        assert_eq!(typed(&[b"ab", b"\x1b", b"[Dx\r"]), ["axb"]);
    }

    proptest! {
        #[test]
        fn never_fails_and_stays_text(chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..8)) {
            let chunks: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
            for task in typed(&chunks) {
                prop_assert!(!task.contains(|c: char| c.is_control() && c != '\n' && c != '\t'));
            }
        }
    }
}
