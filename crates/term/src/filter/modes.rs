//! Remembers which terminal modes the agent changed, to change them back when it ends.

use super::rules::Csi;
use std::collections::BTreeSet;

/// Private modes that are normally off and that a full-screen program switches on.
const NORMALLY_OFF: &[u32] = &[
    1, 5, 9, 45, 47, 66, 69, 1000, 1001, 1002, 1003, 1004, 1005, 1006, 1007, 1015, 1016, 1047,
    1049, 2004, 2026, 2027, 2031, 2048, 9001,
];
/// Private modes that are normally on: wrap and visible cursor.
const NORMALLY_ON: &[u32] = &[7, 25];

#[derive(Debug, Default)]
pub(super) struct Modes {
    changed: BTreeSet<u32>,
    keyboard_pushes: u32,
    keyboard_set: bool,
    other_keys: bool,
    keypad: bool,
    styled: bool,
    region: bool,
}

impl Modes {
    pub(super) fn note(&mut self, csi: &Csi<'_>) {
        match (csi.marker, csi.intermediates, csi.last) {
            (b'?', [], b'h' | b'l') => {
                for number in csi.numbers() {
                    let usual = if NORMALLY_OFF.contains(&number) {
                        b'l'
                    } else if NORMALLY_ON.contains(&number) {
                        b'h'
                    } else {
                        continue;
                    };
                    if csi.last == usual {
                        self.changed.remove(&number);
                    } else {
                        self.changed.insert(number);
                    }
                }
            }
            (b'>', [], b'u') => self.keyboard_pushes = self.keyboard_pushes.saturating_add(1),
            (b'<', [], b'u') => {
                self.keyboard_pushes = self.keyboard_pushes.saturating_sub(csi.first().max(1));
            }
            (b'=', [], b'u') => self.keyboard_set = true,
            (b'>', [], b'm') => self.other_keys = csi.numbers().nth(1).unwrap_or(0) != 0,
            (0, [], b'm') => self.styled = csi.numbers().last() != Some(0),
            (0, [], b'r') => self.region = csi.parameters.iter().any(|b| !matches!(b, b'0' | b';')),
            (0, b"!", b'p') => *self = Self::default(),
            _ => {}
        }
    }

    pub(super) fn note_escape(&mut self, sequence: &[u8]) {
        match sequence {
            [0x1b, b'='] => self.keypad = true,
            [0x1b, b'>'] => self.keypad = false,
            [0x1b, b'c'] => *self = Self::default(),
            _ => {}
        }
    }

    /// Appends what brings the usual modes back, and forgets them.
    pub(super) fn undo(&mut self, out: &mut Vec<u8>) {
        let Self {
            changed,
            keyboard_pushes,
            keyboard_set,
            other_keys,
            keypad,
            styled,
            region,
        } = std::mem::take(self);
        if region {
            out.extend_from_slice(b"\x1b7\x1b[r\x1b8");
        }
        if keyboard_pushes > 0 {
            out.extend_from_slice(format!("\x1b[<{keyboard_pushes}u").as_bytes());
        }
        if keyboard_set {
            out.extend_from_slice(b"\x1b[=0u");
        }
        if other_keys {
            out.extend_from_slice(b"\x1b[>4m");
        }
        if keypad {
            out.extend_from_slice(b"\x1b>");
        }
        for mode in changed {
            let usual = if NORMALLY_ON.contains(&mode) {
                'h'
            } else {
                'l'
            };
            out.extend_from_slice(format!("\x1b[?{mode}{usual}").as_bytes());
        }
        if styled {
            out.extend_from_slice(b"\x1b[0m");
        }
    }
}
