//! Compressed WebSocket messages come out plain however the bytes were cut on the way, and never larger than allowed.

use net::deflate::plain_frames;

const MOST: usize = 1000;

/// A compressed message with a ping within, a plain one, and an end of the stream.
pub const SEEDS: &[&[u8]] = &[
    b"\x03\xc1\x87\0\0\0\0\xf2H\xcd\xc9\xc9\x07\0\x89\x80\0\0\0\0",
    b"\x01\x41\x03\xf2H\xcd\x89\x00\x80\x04\xc9\xc9\x07\0",
    b"\x07\x82\x83\x01\x02\x03\x04abc\x88\0",
    b"\x02\xc2\x08\x01\x00\x00\xff\xff\x01\x00\x00",
];

/// Whole and in pieces.
pub fn run(bytes: &[u8]) {
    let (rest, pieces) = crate::pieces(bytes);
    let whole = plain_frames(&[rest], MOST);
    assert_eq!(whole, plain_frames(&pieces, MOST));
}
