//! Dates and times in many notations. Relative ones ("tomorrow") are left alone: what they mean
//! depends on a clock that the kernel does not have.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// A date or a time of day that a text names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// A day; the year is often left out.
    Day(Option<u16>, u8, u8),
    /// Hour and minute.
    Time(u8, u8),
}

impl Moment {
    /// What it is known as.
    pub(crate) fn key(self) -> String {
        match self {
            Self::Day(Some(year), month, day) => format!("{year:04}-{month:02}-{day:02}"),
            Self::Day(None, month, day) => format!("--{month:02}-{day:02}"),
            Self::Time(hour, minute) => format!("t{hour:02}:{minute:02}"),
        }
    }

    /// What else it is known as: a day in some year to those who do not say which year.
    pub(crate) fn vague(self) -> Option<String> {
        match self {
            Self::Day(Some(_), month, day) => Some(format!("*-{month:02}-{day:02}")),
            _ => None,
        }
    }

    /// Under which names it may be known for this value to derive.
    pub(crate) fn sought(self) -> [Option<String>; 2] {
        match self {
            Self::Day(Some(_), month, day) => {
                [Some(self.key()), Some(format!("--{month:02}-{day:02}"))]
            }
            Self::Day(None, month, day) => {
                [Some(self.key()), Some(format!("*-{month:02}-{day:02}"))]
            }
            Self::Time(..) => [Some(self.key()), None],
        }
    }
}

/// Every date and time in a line; also whether the line says nothing else.
pub(crate) fn moments(line: &str) -> (Vec<Moment>, bool) {
    let words = words(line);
    let mut found = Vec::new();
    let mut nothing_else = true;
    let mut at = 0;
    while at < words.len() {
        let rest = words.get(at..).unwrap_or_default();
        match time(rest).or_else(|| day(rest)) {
            Some((n, moments)) => {
                found.extend(moments);
                at += n;
            }
            None => {
                let filler = rest
                    .first()
                    .is_some_and(|word| matches!(word.text, "t" | "T" | "z" | "Z" | "at" | "on"));
                nothing_else &= filler;
                at += 1;
            }
        }
    }
    (found, nothing_else)
}

/// A run of letters or of digits, with the character behind it.
struct Word<'a> {
    text: &'a str,
    then: Option<char>,
}

fn words(line: &str) -> Vec<Word<'_>> {
    let mut words = Vec::new();
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        let same = |c: char| {
            if first.is_ascii_digit() {
                c.is_ascii_digit()
            } else {
                first.is_alphabetic() && c.is_alphabetic()
            }
        };
        let end = rest
            .char_indices()
            .skip(1)
            .find(|(_, c)| !same(*c))
            .map_or(rest.len(), |(at, _)| at);
        let (text, tail) = rest.split_at(end);
        if first.is_alphanumeric() {
            words.push(Word {
                text,
                then: tail.chars().next(),
            });
        }
        rest = tail;
    }
    words
}

impl Word<'_> {
    fn number(&self, lengths: core::ops::RangeInclusive<usize>) -> Option<u16> {
        lengths
            .contains(&self.text.len())
            .then(|| self.text.parse().ok())
            .flatten()
    }

    fn year(&self) -> Option<u16> {
        self.number(4..=4)
            .filter(|year| (1900..2200).contains(year))
    }

    fn is(&self, words: &[&str]) -> bool {
        words
            .iter()
            .any(|word| self.text.eq_ignore_ascii_case(word))
    }

    fn month(&self) -> Option<u8> {
        const NAMES: [&str; 12] = [
            "january",
            "february",
            "march",
            "april",
            "may",
            "june",
            "july",
            "august",
            "september",
            "october",
            "november",
            "december",
        ];
        if !(3..=9).contains(&self.text.len()) {
            return None;
        }
        let same = |name: &str| self.text.eq_ignore_ascii_case(name);
        let at = NAMES.iter().position(|name| {
            same(name) || name.get(..3).is_some_and(same) || (*name == "september" && same("sept"))
        })?;
        u8::try_from(at + 1).ok()
    }
}

type Read = Option<(usize, Vec<Moment>)>;

/// `14:30`, `14:30:00`, `2 pm`, `2:30pm`.
fn time(words: &[Word<'_>]) -> Read {
    let hour = words.first()?.number(1..=2)?;
    let (minute, n) = match words.first()?.then {
        Some(':') => {
            let seconds = words.get(1)?.then == Some(':') && words.get(2)?.number(2..=2).is_some();
            (words.get(1)?.number(2..=2)?, if seconds { 3 } else { 2 })
        }
        _ => (0, 1),
    };
    let (hour, n) = match words.get(n) {
        Some(word) if word.is(&["pm"]) => (hour % 12 + 12, n + 1),
        Some(word) if word.is(&["am"]) => (hour % 12, n + 1),
        _ if n > 1 => (hour, n),
        _ => return None,
    };
    let moment = Moment::Time(u8::try_from(hour).ok()?, u8::try_from(minute).ok()?);
    (hour < 24 && minute < 60).then(|| (n, alloc::vec![moment]))
}

/// `2024-05-26`, `26.05.2024`, `05/26/2024`, `May 26th, 2024`, `26 May`, `the 26th of May`.
fn day(words: &[Word<'_>]) -> Read {
    let first = words.first()?;
    if let Some(month) = first.month() {
        let (n, day) = ordinal(words.get(1..)?)?;
        return Some(with_year(words, n + 1, month, day));
    }
    let joined = matches!(first.then, Some('-' | '/' | '.'));
    if let (true, Some(year), Some(b), Some(c)) = (
        joined,
        first.year(),
        words.get(1).and_then(|w| w.number(1..=2)),
        words.get(2).and_then(|w| w.number(1..=2)),
    ) {
        return Some((3, alloc::vec![a_day(Some(year), b, c)?]));
    }
    if let (true, Some(a), Some(b), Some(year)) = (
        joined,
        first.number(1..=2),
        words.get(1).and_then(|w| w.number(1..=2)),
        words.get(2).and_then(Word::year),
    ) {
        // Where both readings are days, the text does not say which it means.
        let mut both: Vec<Moment> = [a_day(Some(year), b, a), a_day(Some(year), a, b)]
            .into_iter()
            .flatten()
            .collect();
        both.dedup();
        return (!both.is_empty()).then_some((3, both));
    }
    let (mut n, day) = ordinal(words)?;
    if words.get(n)?.is(&["of"]) {
        n += 1;
    }
    let month = words.get(n)?.month()?;
    Some(with_year(words, n + 1, month, day))
}

fn with_year(words: &[Word<'_>], n: usize, month: u8, day: u16) -> (usize, Vec<Moment>) {
    let year = words.get(n).and_then(Word::year);
    let moments = a_day(year, u16::from(month), day).into_iter().collect();
    (n + usize::from(year.is_some()), moments)
}

/// A day of the month: `26` or `26th`.
fn ordinal(words: &[Word<'_>]) -> Option<(usize, u16)> {
    let day = words.first()?.number(1..=2)?;
    let suffix = words.first()?.then.is_some_and(char::is_alphabetic)
        && words.get(1)?.is(&["st", "nd", "rd", "th"]);
    Some((1 + usize::from(suffix), day))
}

fn a_day(year: Option<u16>, month: u16, day: u16) -> Option<Moment> {
    let (month, day) = (u8::try_from(month).ok()?, u8::try_from(day).ok()?);
    ((1..=12).contains(&month) && (1..=31).contains(&day)).then_some(Moment::Day(year, month, day))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notations() {
        for (text, expect) in [
            ("2024-05-26", &["2024-05-26"][..]),
            ("2024-05-26T09:30:00Z", &["2024-05-26", "t09:30"]),
            ("26.05.2024 9:30", &["2024-05-26", "t09:30"]),
            ("05/26/2024", &["2024-05-26"]),
            ("05/06/2024", &["2024-06-05", "2024-05-06"]),
            ("May 26th", &["--05-26"]),
            ("May 26, 2024 at 2 pm", &["2024-05-26", "t14:00"]),
            ("26th of May 2024", &["2024-05-26"]),
            ("3 Sept", &["--09-03"]),
            ("12:15am", &["t00:15"]),
            ("2024-13-45", &[]),
            ("25:00", &[]),
            ("7", &[]),
        ] {
            let (found, all) = moments(text);
            let keys: Vec<String> = found.iter().map(|m| m.key()).collect();
            assert_eq!(keys, expect, "{text}");
            assert_eq!(all, !expect.is_empty(), "{text}");
        }
        assert!(!moments("2024-05-26 to evil").1);
    }
}
