//! HTTP/1 framing is doubtful or not, however the bytes were cut on the way.

use net::framing::Framing;

/// A body by length, by chunks, and a smuggled one.
pub const SEEDS: &[&[u8]] = &[
    b"\x03POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcGET / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"\x01POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nT: x\r\n\r\n",
    b"\x02POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"\x07PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
];

/// Whole and in pieces.
pub fn run(bytes: &[u8]) {
    let (rest, pieces) = crate::pieces(bytes);
    let whole = Framing::default().feed(rest);
    let mut framing = Framing::default();
    let cut = pieces.iter().try_for_each(|piece| framing.feed(piece));
    assert_eq!(whole, cut);
}
