//! What may reach the terminal, sequence by sequence. Control strings (OSC, DCS, APC) are refused
//! unless named here; CSI sequences pass unless named here, because their answers hold numbers only.

/// A complete CSI sequence: `CSI marker parameters intermediates final`.
#[derive(Debug)]
pub(super) struct Csi<'a> {
    /// `<`, `=`, `>` or `?`, or 0.
    pub(super) marker: u8,
    pub(super) parameters: &'a [u8],
    pub(super) intermediates: &'a [u8],
    pub(super) last: u8,
}

impl<'a> Csi<'a> {
    /// `body` is what follows `ESC [`.
    pub(super) fn parse(body: &'a [u8]) -> Option<Self> {
        let (&last, body) = body.split_last()?;
        let (marker, body) = match body.split_first() {
            Some((&m @ b'<'..=b'?', rest)) => (m, rest),
            _ => (0, body),
        };
        let at = body
            .iter()
            .position(|b| (0x20..=0x2f).contains(b))
            .unwrap_or(body.len());
        let (parameters, intermediates) = body.split_at_checked(at)?;
        let parameters_ok = parameters.iter().all(|b| matches!(b, b'0'..=b';'));
        let intermediates_ok = intermediates.iter().all(|b| (0x20..=0x2f).contains(b));
        (parameters_ok && intermediates_ok).then_some(Self {
            marker,
            parameters,
            intermediates,
            last,
        })
    }

    /// The parameters as numbers; an empty one is 0, one too large is `u32::MAX`.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> {
        self.parameters.split(|&b| b == b';').map(|p| {
            let main = p.split(|&b| b == b':').next().unwrap_or_default();
            main.iter().fold(0u32, |n, &d| {
                n.saturating_mul(10)
                    .saturating_add(u32::from(d.saturating_sub(b'0')))
            })
        })
    }

    pub(super) fn first(&self) -> u32 {
        self.numbers().next().unwrap_or(0)
    }
}

/// `body` is what follows ESC, intermediates included.
pub(super) fn escape(body: &[u8]) -> bool {
    match body {
        // Cursor and modes, index, tab stop, single shifts, identify, full reset, a lone string end.
        [b'6'..=b'9' | b'=' | b'>' | b'D' | b'E' | b'H' | b'M' | b'N' | b'O' | b'Z'] => true,
        [b'c' | b'\\' | b'l'..=b'o' | b'|' | b'}' | b'~'] => true,
        // Character sets, line size and alignment, 7-bit answers, UTF-8.
        [b'(' | b')' | b'*' | b'+' | b'-' | b'.' | b'/', rest @ ..] => rest.len() <= 2,
        [b'#', b'3'..=b'6' | b'8'] | [b' ', b'F'] | [b'%', b'G'] => true,
        // Refused: `ESC % @` (leaves UTF-8), `ESC SP G` (8-bit answers) and whatever is unknown.
        _ => false,
    }
}

pub(super) fn csi(csi: &Csi<'_>) -> bool {
    match (csi.marker, csi.intermediates, csi.last) {
        // Media copy: printing, and printer modes that swallow output.
        (_, _, b'i') => false,
        // Window operations: only sizes may be asked for, and the title saved and restored.
        (0, [], b't') => matches!(csi.first(), 14 | 16 | 18 | 22 | 23),
        (_, [], b't') | (b'>', [], b'T') => false,
        // Status: ready and cursor position; rxvt answers 7 with text.
        (0, [], b'n') => matches!(csi.first(), 0 | 3 | 5 | 6),
        // Reports of screen contents, presentation and terminal state; macros.
        (_, b"$", b'w' | b'u') | (_, b"*", b'y' | b'z') | (_, b"#", b'y') => false,
        // Conformance level: can switch to 8-bit answers.
        (_, b"\"", b'p') => false,
        // VT52 and Tektronix modes have another grammar; logging writes a file.
        (b'?', [], b'h' | b'l' | b'r') => !csi.numbers().any(|n| matches!(n, 2 | 38 | 46)),
        // Keyboard lock.
        (0, [], b'h') => !csi.numbers().any(|n| n == 2),
        _ => true,
    }
}

/// `body` is the string between `ESC ]` and its end.
pub(super) fn osc(body: &[u8]) -> bool {
    let Some(body) = printable(body) else {
        return false;
    };
    let (number, rest) = match body.split_once(';') {
        Some((number, rest)) => (number, Some(rest)),
        None => (body, None),
    };
    if number.is_empty() || number.len() > 4 || !number.bytes().all(|b| b.is_ascii_digit()) {
        return false;
    }
    match (number.parse::<u16>().unwrap_or(u16::MAX), rest) {
        // Titles, colours and their queries (the answers hold colours only).
        (0..=2, Some(_)) => true,
        (4 | 5 | 10..=19, Some(colours)) => colours.bytes().all(is_colour_byte),
        (104 | 105 | 110..=119, rest) => rest.unwrap_or("").bytes().all(is_colour_byte),
        (8, Some(link)) => hyperlink(link),
        (9, Some(text)) => notification(text),
        (22, Some(shape)) => shape
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_'),
        (133, Some(_)) => true,
        (777, Some(text)) => text.starts_with("notify;"),
        _ => false,
    }
}

/// `body` is the string between `ESC P` and its end.
pub(super) fn dcs(body: &[u8]) -> bool {
    let at = body
        .iter()
        .position(|b| !matches!(b, b'0'..=b'?'))
        .unwrap_or(body.len());
    let Some((parameters, rest)) = body.split_at_checked(at) else {
        return false;
    };
    match rest {
        // Sixel pictures.
        [b'q', data @ ..] if parameters.iter().all(|b| matches!(b, b'0'..=b'9' | b';')) => data
            .iter()
            .all(|b| matches!(b, 0x20..=0x7e | b'\n' | b'\r')),
        // Capability query: question and answer are hexadecimal.
        [b'+', b'q', names @ ..] => {
            parameters.is_empty() && names.iter().all(|&b| b.is_ascii_hexdigit() || b == b';')
        }
        // Begin and end of a synchronised update.
        [b's'] => matches!(parameters, b"=1" | b"=2"),
        _ => false,
    }
}

/// `body` is the string between `ESC _` and its end: kitty graphics with the data in the sequence.
/// Any other medium names a file or shared memory for the terminal to read, and to delete.
pub(super) fn apc(body: &[u8]) -> bool {
    let Some(b'G') = body.first() else {
        return false;
    };
    let mut parts = body.get(1..).unwrap_or_default().splitn(2, |&b| b == b';');
    let control = parts.next().unwrap_or_default();
    let data = parts.next().unwrap_or_default();
    let control_ok = control.is_empty()
        || control.split(|&b| b == b',').all(|pair| match pair {
            [b't', b'=', medium @ ..] => medium == b"d",
            [key, b'=', value @ ..] => {
                key.is_ascii_alphabetic()
                    && value
                        .iter()
                        .all(|b| b.is_ascii_alphanumeric() || *b == b'-')
            }
            _ => false,
        });
    control_ok
        && data
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'=' | b'-' | b'_'))
}

/// The string as text, if it holds no control, neither 7-bit nor 8-bit.
fn printable(body: &[u8]) -> Option<&str> {
    std::str::from_utf8(body)
        .ok()
        .filter(|text| !text.contains(char::is_control))
}

fn is_colour_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b';' | b':' | b'/' | b'#' | b'?' | b'.' | b'-' | b' ')
}

/// `params;uri`: only links that a browser opens; an empty one ends a link.
fn hyperlink(link: &str) -> bool {
    let Some((_, uri)) = link.split_once(';') else {
        return false;
    };
    let lower = uri.get(..8).unwrap_or(uri).to_ascii_lowercase();
    uri.is_empty() || lower.starts_with("http://") || lower.starts_with("https://")
}

/// A desktop notification, or progress (`4;...`). The other numbered forms are ConEmu's, which run
/// macros and programs.
fn notification(text: &str) -> bool {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    match text.get(digits..).and_then(|rest| rest.chars().next()) {
        _ if digits == 0 => true,
        Some(';') | None => {
            text.starts_with("4;") && text.bytes().all(|b| b.is_ascii_digit() || b == b';')
        }
        Some(_) => true,
    }
}
