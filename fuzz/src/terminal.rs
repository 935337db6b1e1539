//! What reaches the terminal is the same however it was cut on the way, and is let through a second time.

use term::filter::Filter;

/// Text, colours, a clipboard write, a query.
pub const SEEDS: &[&[u8]] = &[
    b"\x04plain \xe2\x82\xac \x1b[31mred\x1b[0m\r\n",
    b"\x01\x1b]52;c;aGk=\x07x\x1b[6n\x1b[?1049h",
    b"\x02\x1bP1$qm\x1b\\\x9b31m\x1b_Gf=24;\x1b\\",
];

/// Whole, in pieces, and once more over its own output.
pub fn run(bytes: &[u8]) {
    let (rest, pieces) = crate::pieces(bytes);
    let once = |pieces: &[&[u8]]| {
        let (mut filter, mut out) = (Filter::new(), Vec::new());
        for piece in pieces {
            filter.feed(piece, &mut out);
        }
        filter.finish(&mut out);
        (out, filter.removed())
    };
    let (out, removed) = once(&[rest]);
    assert_eq!((out.clone(), removed), once(&pieces));
    let (again, removed) = once(&[&out]);
    assert_eq!(
        (again, removed),
        (out, 0),
        "what was let through is let through"
    );
}
