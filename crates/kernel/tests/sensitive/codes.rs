//! Codes, applied: what an exfiltrator would do, written without the kernel's help.

/// One way to write bytes as other bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    Percent,
    PercentSome,
    Json,
    JsonSome,
    Xescape,
    Octal,
    Html,
    HtmlDecimal,
    Quoted,
    Base64,
    Base64Url,
    Base64Wrapped,
    Base64Crlf,
    Base32,
    Base32Lower,
    Hex,
    HexUpper,
    HexColons,
    HexSpaces,
    HexLines,
    Numbers,
    Utf16Le,
    Utf16Be,
    Upper,
}

impl Code {
    pub(crate) const ALL: [Self; 24] = [
        Self::Percent,
        Self::PercentSome,
        Self::Json,
        Self::JsonSome,
        Self::Xescape,
        Self::Octal,
        Self::Html,
        Self::HtmlDecimal,
        Self::Quoted,
        Self::Base64,
        Self::Base64Url,
        Self::Base64Wrapped,
        Self::Base64Crlf,
        Self::Base32,
        Self::Base32Lower,
        Self::Hex,
        Self::HexUpper,
        Self::HexColons,
        Self::HexSpaces,
        Self::HexLines,
        Self::Numbers,
        Self::Utf16Le,
        Self::Utf16Be,
        Self::Upper,
    ];

    /// Whether only text can be written in it.
    pub(crate) fn is_for_text(self) -> bool {
        matches!(
            self,
            Self::Json
                | Self::JsonSome
                | Self::Html
                | Self::HtmlDecimal
                | Self::Utf16Le
                | Self::Utf16Be
        )
    }

    /// Whether any text may happen to be in this code.
    pub(crate) fn is_noise(self) -> bool {
        matches!(
            self,
            Self::Base64
                | Self::Base64Url
                | Self::Base64Wrapped
                | Self::Base64Crlf
                | Self::Base32
                | Self::Base32Lower
                | Self::Hex
                | Self::HexUpper
                | Self::HexLines
        )
    }

    /// Writes bytes in this code.
    pub(crate) fn apply(self, bytes: &[u8]) -> Vec<u8> {
        let each = |f: &dyn Fn(usize, u8) -> String| -> Vec<u8> {
            bytes
                .iter()
                .enumerate()
                .map(|(i, b)| f(i, *b))
                .collect::<String>()
                .into_bytes()
        };
        let text = || std::str::from_utf8(bytes).unwrap().to_string();
        let units = || text().encode_utf16().collect::<Vec<_>>();
        match self {
            Self::Percent => each(&|_, b| format!("%{b:02X}")),
            Self::PercentSome => bytes
                .iter()
                .enumerate()
                .flat_map(|(i, b)| {
                    if i % 3 == 1 || *b == b'%' {
                        format!("%{b:02x}").into_bytes()
                    } else {
                        vec![*b]
                    }
                })
                .collect(),
            Self::Json => units()
                .iter()
                .map(|u| format!("\\u{u:04x}"))
                .collect::<String>()
                .into_bytes(),
            Self::JsonSome => text()
                .chars()
                .enumerate()
                .map(|(i, c)| {
                    if i % 4 == 2 || c == '\\' || c == '"' {
                        let mut units = [0; 2];
                        c.encode_utf16(&mut units)
                            .iter()
                            .map(|u| format!("\\u{u:04X}"))
                            .collect()
                    } else {
                        c.to_string()
                    }
                })
                .collect::<String>()
                .into_bytes(),
            Self::Xescape => each(&|_, b| format!("\\x{b:02x}")),
            Self::Octal => each(&|_, b| format!("\\{b:03o}")),
            Self::Html => text()
                .chars()
                .map(|c| format!("&#x{:x};", c as u32))
                .collect::<String>()
                .into_bytes(),
            Self::HtmlDecimal => text()
                .chars()
                .map(|c| format!("&#{};", c as u32))
                .collect::<String>()
                .into_bytes(),
            Self::Quoted => bytes
                .iter()
                .enumerate()
                .flat_map(|(i, b)| {
                    let mut out = if i % 2 == 0 || *b == b'=' {
                        format!("={b:02X}").into_bytes()
                    } else {
                        vec![*b]
                    };
                    if i % 5 == 3 {
                        out.extend(b"=\r\n");
                    }
                    out
                })
                .collect(),
            Self::Base64 => base(bytes, 6, STANDARD, true),
            Self::Base64Url => base(bytes, 6, URL, false),
            Self::Base64Wrapped => wrapped(&base(bytes, 6, STANDARD, true), 16, b"\n"),
            Self::Base64Crlf => wrapped(&base(bytes, 6, STANDARD, true), 76, b"\r\n  "),
            Self::Base32 => base(bytes, 5, b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", true),
            Self::Base32Lower => base(bytes, 5, b"abcdefghijklmnopqrstuvwxyz234567", false),
            Self::Hex => each(&|_, b| format!("{b:02x}")),
            Self::HexUpper => each(&|i, b| {
                if i % 2 == 0 {
                    format!("{b:02X}")
                } else {
                    format!("{b:02x}")
                }
            }),
            Self::HexColons => each(&|i, b| format!("{}{b:02x}", if i == 0 { "" } else { ":" })),
            Self::HexSpaces => each(&|i, b| format!("{}{b:02X}", if i == 0 { "" } else { " " })),
            Self::HexLines => wrapped(&Self::Hex.apply(bytes), 32, b"\n"),
            Self::Numbers => each(&|i, b| format!("{}0x{b:02x}", if i == 0 { "" } else { ", " })),
            Self::Utf16Le => units().iter().flat_map(|u| u.to_le_bytes()).collect(),
            Self::Utf16Be => units().iter().flat_map(|u| u.to_be_bytes()).collect(),
            Self::Upper => bytes.to_ascii_uppercase(),
        }
    }
}

const STANDARD: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Base64 or base32, bit by bit.
pub(crate) fn base(bytes: &[u8], bits: usize, alphabet: &[u8], padded: bool) -> Vec<u8> {
    let stream: Vec<u8> = bytes
        .iter()
        .flat_map(|b| (0..8).rev().map(move |i| b >> i & 1))
        .collect();
    let mut out: Vec<u8> = stream
        .chunks(bits)
        .map(|digit| {
            let value = digit
                .iter()
                .chain(std::iter::repeat(&0))
                .take(bits)
                .fold(0, |v, b| v << 1 | *b);
            alphabet[usize::from(value)]
        })
        .collect();
    let group = if bits == 6 { 4 } else { 8 };
    while padded && !out.len().is_multiple_of(group) {
        out.push(b'=');
    }
    out
}

fn wrapped(text: &[u8], width: usize, end: &[u8]) -> Vec<u8> {
    text.chunks(width).collect::<Vec<_>>().join(end)
}
