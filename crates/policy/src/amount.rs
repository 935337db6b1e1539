//! Amounts with units: `"4GiB"`, `"7d"`.

use crate::error::listed;
use crate::read::{Document, Item};

pub(crate) const SIZES: [(&str, u64); 7] = [
    ("B", 1),
    ("kB", 1000),
    ("KiB", 1 << 10),
    ("MB", 1_000_000),
    ("MiB", 1 << 20),
    ("GB", 1_000_000_000),
    ("GiB", 1 << 30),
];

pub(crate) const DURATIONS: [(&str, u64); 4] = [("s", 1), ("m", 60), ("h", 3600), ("d", 86_400)];

/// A number with a unit in a text (`"4GiB"`), or the bare number of the smallest unit.
pub(crate) fn quantity(
    document: &Document<'_>,
    item: Item<'_>,
    units: &[(&str, u64)],
    example: &str,
) -> Option<u64> {
    if !item.is_string_or_list() {
        return document.number(item, 1..u64::from(u32::MAX) * 4096, example);
    }
    let word = document.string(item, example)?;
    let digits = word.text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = word.text.get(digits.len()..).unwrap_or_default().trim();
    let factor = units
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(unit))
        .map(|(_, n)| *n);
    let value = digits
        .parse::<u64>()
        .ok()
        .zip(factor)
        .and_then(|(n, factor)| n.checked_mul(factor));
    if value.is_none_or(|value| value == 0) {
        document.wrong_help(
            word.span,
            format!("`{}` is not an amount", word.text),
            "a number and a unit belong here",
            format!(
                "write {example}; units are {}",
                listed(units.iter().map(|(name, _)| *name))
            ),
        );
        return None;
    }
    value
}
