//! Text of the agent's making, safe to print: nothing in it moves the cursor, hides or reorders
//! what a person reads before deciding.

/// One line of text in which every character shows.
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\t' => shown.push(' '),
            c if c.is_control() || hides(c) => shown.extend(c.escape_unicode()),
            c => shown.push(c),
        }
    }
    shown
}

/// Characters that are there but do not show, or change the order of what does.
fn hides(c: char) -> bool {
    matches!(
        u32::from(c),
        0x00AD | 0x034F | 0x061C | 0x115F..=0x1160 | 0x17B4..=0x17B5 | 0x180B..=0x180F | 0x200B..=0x200F
            | 0x2028..=0x202E | 0x2060..=0x206F | 0x3164 | 0xFE00..=0xFE0F | 0xFEFF | 0xFFA0 | 0xFFF0..=0xFFFB
            | 0x1D173..=0x1D17A | 0xE0000..=0xE0FFF
    )
}

/// At most so many characters, and a sign when there are more.
pub(crate) fn shortened(text: &str, characters_max: usize) -> String {
    match text.char_indices().nth(characters_max) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_hides() {
        for (text, expect) in [
            ("plain ü 漢", "plain ü 漢"),
            ("a\u{1b}[2Jb", "a\\u{1b}[2Jb"),
            ("x\r\nEvil", "x\\u{d}\\u{a}Evil"),
            ("safe\u{202e}gpj.exe", "safe\\u{202e}gpj.exe"),
            ("a\u{200b}b\u{e0041}", "a\\u{200b}b\\u{e0041}"),
            ("tab\there", "tab here"),
        ] {
            assert_eq!(printable(text), expect);
        }
    }

    #[test]
    fn short_stays_and_long_is_cut() {
        assert_eq!(shortened("äöü", 3), "äöü");
        assert_eq!(shortened("äöüß", 3), "äöü…");
    }
}
