//! Removes from the agent's output what would turn the principal's terminal against them: sequences
//! that write or read the clipboard, make the terminal type an answer of the agent's choosing, move
//! files, print, or change how later bytes are read. Everything allowed passes byte for byte.
//!
//! A sequence is buffered until it is complete and is then passed or dropped whole, so the terminal
//! never sees the beginning of something that was refused. Where terminals disagree about a byte
//! (8-bit controls, controls inside a sequence) the sequence is dropped: what follows is then text
//! for every terminal. The terminal is taken to be in UTF-8 mode, and leaving that mode is refused.

mod modes;
mod rules;

use modes::Modes;

const ESC: u8 = 0x1b;
const BEL: u8 = 0x07;
const CSI_BYTES_MAX: usize = 1024;
const OSC_BYTES_MAX: usize = 64 << 10;
/// Pictures (sixel, kitty graphics) are long; beyond this they are dropped.
const PICTURE_BYTES_MAX: usize = 8 << 20;

/// A streaming filter over one agent's output.
#[derive(Debug, Default)]
pub struct Filter {
    state: State,
    /// The unfinished sequence or UTF-8 character, from its first byte.
    pending: Vec<u8>,
    modes: Modes,
    removed: u64,
}

impl Filter {
    /// A filter at the start of a session.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends to `out` what of `input` may reach the terminal.
    pub fn feed(&mut self, input: &[u8], out: &mut Vec<u8>) {
        let mut rest = input;
        while let Some((&byte, tail)) = rest.split_first() {
            if self.state == State::Ground && self.pending.is_empty() {
                let plain = rest.iter().take_while(|&&b| is_plain(b)).count();
                if let Some((text, after)) = rest.split_at_checked(plain)
                    && plain > 0
                {
                    out.extend_from_slice(text);
                    rest = after;
                    continue;
                }
            }
            self.step(byte, out);
            rest = tail;
        }
    }

    /// Ends the stream: an unfinished sequence is dropped, and `out` gets what undoes the modes
    /// that the agent switched on and left on (alternate screen, mouse, hidden cursor, ...).
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        match self.state {
            State::Ground => self.flush_character(out),
            _ => self.drop_pending(),
        }
        self.modes.undo(out);
    }

    /// How many sequences have been removed.
    #[must_use]
    pub fn removed(&self) -> u64 {
        self.removed
    }

    fn step(&mut self, byte: u8, out: &mut Vec<u8>) {
        match self.state {
            State::Ground => self.ground(byte, out),
            State::Escape => self.escape(byte, out),
            State::Csi => self.csi(byte, out),
            State::Text(kind) => self.text(kind, byte, out),
            State::TextEscape(kind) => self.text_escape(kind, byte, out),
            State::LinuxPalette(left) => match left {
                _ if !byte.is_ascii_hexdigit() => self.abandon(byte, out),
                0 | 1 => self.drop_pending(),
                _ => self.state = State::LinuxPalette(left - 1),
            },
        }
    }

    fn ground(&mut self, byte: u8, out: &mut Vec<u8>) {
        if !self.pending.is_empty() {
            if is_next_of_character(&self.pending, byte) {
                self.pending.push(byte);
                if self.pending.len() == character_len(self.pending.first().copied().unwrap_or(0)) {
                    self.flush_character(out);
                }
                return;
            }
            self.flush_character(out);
        }
        match byte {
            ESC => {
                self.pending.push(byte);
                self.state = State::Escape;
            }
            _ if is_plain(byte) => out.push(byte),
            _ if byte < 0x80 || is_c1_introducer(byte) => self.removed += 1,
            _ if character_len(byte) > 1 => self.pending.push(byte),
            _ => out.push(byte),
        }
    }

    /// Passes the buffered character, or what is harmless of a broken one.
    fn flush_character(&mut self, out: &mut Vec<u8>) {
        match std::str::from_utf8(&self.pending) {
            Ok(text) if !text.contains(is_c1_introducer_char) => {
                out.extend_from_slice(&self.pending)
            }
            Ok(_) => self.removed += 1,
            Err(_) => {
                out.extend(
                    self.pending
                        .iter()
                        .copied()
                        .filter(|&b| !is_c1_introducer(b)),
                );
            }
        }
        self.pending.clear();
    }

    fn escape(&mut self, byte: u8, out: &mut Vec<u8>) {
        let first = self.pending.len() == 1;
        match byte {
            b'[' if first => self.enter(byte, State::Csi),
            b']' if first => self.enter(byte, State::Text(Kind::Osc)),
            b'P' if first => self.enter(byte, State::Text(Kind::Dcs)),
            b'_' if first => self.enter(byte, State::Text(Kind::Apc)),
            b'^' | b'X' if first => self.enter(byte, State::Text(Kind::Other)),
            b'k' if first => self.enter(byte, State::Text(Kind::Title)),
            0x20..=0x2f if self.pending.len() < 4 => self.pending.push(byte),
            0x30..=0x7e => {
                self.pending.push(byte);
                let verdict = rules::escape(self.pending.get(1..).unwrap_or_default());
                self.conclude(verdict, out);
            }
            _ => self.abandon(byte, out),
        }
    }

    fn csi(&mut self, byte: u8, out: &mut Vec<u8>) {
        match byte {
            0x20..=0x3f if self.pending.len() < CSI_BYTES_MAX => self.pending.push(byte),
            0x40..=0x7e => {
                self.pending.push(byte);
                let verdict = match rules::Csi::parse(self.pending.get(2..).unwrap_or_default()) {
                    Some(csi) if rules::csi(&csi) => {
                        self.modes.note(&csi);
                        true
                    }
                    _ => false,
                };
                self.conclude(verdict, out);
            }
            _ => self.abandon(byte, out),
        }
    }

    fn text(&mut self, kind: Kind, byte: u8, out: &mut Vec<u8>) {
        match byte {
            ESC => self.state = State::TextEscape(kind),
            BEL if kind == Kind::Osc => {
                self.pending.push(byte);
                let body = self
                    .pending
                    .get(2..self.pending.len() - 1)
                    .unwrap_or_default();
                let verdict = kind.allows(body);
                self.conclude(verdict, out);
            }
            0x18 | 0x1a => self.abandon(byte, out),
            b'R' if kind == Kind::Osc && self.pending.len() == 2 => self.drop_pending(),
            b'P' if kind == Kind::Osc && self.pending.len() == 2 => {
                self.state = State::LinuxPalette(7);
            }
            _ if self.pending.len() >= kind.bytes_max() => self.abandon(byte, out),
            _ => self.pending.push(byte),
        }
    }

    fn text_escape(&mut self, kind: Kind, byte: u8, out: &mut Vec<u8>) {
        if byte != b'\\' {
            // The terminal leaves the string here and starts a new sequence.
            self.drop_pending();
            self.step(ESC, out);
            self.step(byte, out);
            return;
        }
        let verdict = kind.allows(self.pending.get(2..).unwrap_or_default());
        self.pending.extend_from_slice(&[ESC, byte]);
        self.conclude(verdict, out);
    }

    fn enter(&mut self, byte: u8, state: State) {
        self.pending.push(byte);
        self.state = state;
    }

    fn conclude(&mut self, verdict: bool, out: &mut Vec<u8>) {
        if !verdict {
            self.drop_pending();
            return;
        }
        self.modes.note_escape(&self.pending);
        out.append(&mut self.pending);
        self.state = State::Ground;
    }

    /// Drops a malformed sequence; `byte`, which broke it, is read anew.
    fn abandon(&mut self, byte: u8, out: &mut Vec<u8>) {
        self.drop_pending();
        self.step(byte, out);
    }

    fn drop_pending(&mut self) {
        self.removed += 1;
        self.pending.clear();
        self.state = State::Ground;
    }
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Ground,
    Escape,
    Csi,
    /// Inside a control string.
    Text(Kind),
    /// Inside a control string, after an ESC.
    TextEscape(Kind),
    /// The Linux console's palette sequence, which ends by itself.
    LinuxPalette(u8),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Osc,
    Dcs,
    Apc,
    /// `ESC k`, the window title of screen and tmux.
    Title,
    /// Privacy message and start of string: no terminal needs them.
    Other,
}

impl Kind {
    fn allows(self, body: &[u8]) -> bool {
        match self {
            Self::Osc => rules::osc(body),
            Self::Dcs => rules::dcs(body),
            Self::Apc => rules::apc(body),
            Self::Title | Self::Other => false,
        }
    }

    fn bytes_max(self) -> usize {
        match self {
            Self::Dcs | Self::Apc => PICTURE_BYTES_MAX,
            Self::Osc => OSC_BYTES_MAX,
            Self::Title | Self::Other => 256,
        }
    }
}

/// Printable ASCII and the controls that only move the cursor, ring, or switch character sets.
/// Left out: ENQ (answerback), CAN and SUB (file-transfer triggers, sequence breakers), ESC.
fn is_plain(byte: u8) -> bool {
    matches!(byte, 0x20..=0x7f | 0x00..=0x04 | 0x06..=0x17 | 0x19 | 0x1c..=0x1f)
}

/// DCS, SOS, CSI, ST, OSC, PM and APC as one byte.
fn is_c1_introducer(byte: u8) -> bool {
    matches!(byte, 0x90 | 0x98 | 0x9b..=0x9f)
}

fn is_c1_introducer_char(c: char) -> bool {
    u8::try_from(u32::from(c)).is_ok_and(is_c1_introducer)
}

fn character_len(lead: u8) -> usize {
    match lead {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => 1,
    }
}

/// Whether `byte` continues the well-formed UTF-8 prefix `so_far`.
fn is_next_of_character(so_far: &[u8], byte: u8) -> bool {
    match so_far {
        [0xe0] => (0xa0..=0xbf).contains(&byte),
        [0xed] => (0x80..=0x9f).contains(&byte),
        [0xf0] => (0x90..=0xbf).contains(&byte),
        [0xf4] => (0x80..=0x8f).contains(&byte),
        _ => (0x80..=0xbf).contains(&byte),
    }
}

#[cfg(test)]
mod tests;
