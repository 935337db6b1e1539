//! Frames of the other side, cut out of pieces of any size: messages that come compressed are undone.

use bytes::{Buf, BufMut, BytesMut};
use flate2::{Decompress, FlushDecompress, Status};

use super::{PLAIN_BYTES, TAIL};

/// Reads frames in pieces of any size.
#[derive(Debug)]
pub(super) struct Frames {
    raw: BytesMut,
    state: State,
    /// The compressed message under way.
    message: Option<Message>,
    inflate: Decompress,
    bytes_max: usize,
}

#[derive(Debug)]
struct Message {
    opcode: u8,
    masked: bool,
    plain: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Before a frame's head.
    Head,
    /// In a payload that passes as it is.
    Passing(u64),
    /// In a payload of the compressed message.
    Packed {
        left: u64,
        mask: [u8; 4],
        at: usize,
        last: bool,
    },
    /// Something was wrong; nothing more is read.
    Broken,
}

impl Frames {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self {
            raw: BytesMut::new(),
            state: State::Head,
            message: None,
            inflate: Decompress::new(false),
            bytes_max,
        }
    }

    /// Reads on; what is plain by then is added to `ready`.
    pub(super) fn feed(&mut self, bytes: &[u8], ready: &mut BytesMut) {
        self.raw.extend_from_slice(bytes);
        while self.step(ready) {}
    }

    /// Whether there was enough for a step.
    fn step(&mut self, ready: &mut BytesMut) -> bool {
        match self.state {
            State::Broken => {
                self.raw.clear();
                false
            }
            State::Head => self.head(ready),
            State::Passing(left) => {
                let take = usize::try_from(left)
                    .unwrap_or(usize::MAX)
                    .min(self.raw.len());
                ready.extend_from_slice(&self.raw.split_to(take));
                let left = left - take as u64;
                self.state = if left == 0 {
                    State::Head
                } else {
                    State::Passing(left)
                };
                left == 0
            }
            State::Packed {
                left,
                mask,
                at,
                last,
            } => {
                let take = usize::try_from(left)
                    .unwrap_or(usize::MAX)
                    .min(self.raw.len());
                let mut piece = self.raw.split_to(take);
                for (n, byte) in piece.iter_mut().enumerate() {
                    *byte ^= mask.get((at + n) % 4).copied().unwrap_or_default();
                }
                if !self.undo(&piece, ready) {
                    return true;
                }
                let left = left - take as u64;
                if left > 0 {
                    self.state = State::Packed {
                        left,
                        mask,
                        at: (at + take) % 4,
                        last,
                    };
                    return false;
                }
                self.state = State::Head;
                if last && self.undo(&TAIL, ready) {
                    self.finish(ready);
                }
                true
            }
        }
    }

    fn head(&mut self, ready: &mut BytesMut) -> bool {
        let Some(head) = Head::read(&self.raw) else {
            return false;
        };
        let control = head.opcode >= 8;
        let joins = head.opcode == 0 && self.message.is_some() && !head.packed;
        let begins = matches!(head.opcode, 1 | 2) && head.packed && self.message.is_none();
        if !control && self.message.is_some() && !joins {
            // A message within another; the reader above has not seen the first begin.
            let masked = head.masked;
            self.broken(masked, ready);
            return true;
        }
        if !begins && !joins {
            ready.extend_from_slice(&self.raw.split_to(head.bytes));
            self.state = if head.length == 0 {
                State::Head
            } else {
                State::Passing(head.length)
            };
            return true;
        }
        self.raw.advance(head.bytes);
        if begins {
            self.message = Some(Message {
                opcode: head.opcode,
                masked: head.masked,
                plain: Vec::new(),
            });
        }
        self.state = State::Packed {
            left: head.length,
            mask: head.mask,
            at: 0,
            last: head.last,
        };
        true
    }

    /// Undoes a piece of the message; false when it cannot be.
    fn undo(&mut self, mut packed: &[u8], ready: &mut BytesMut) -> bool {
        let Some(message) = &mut self.message else {
            return false;
        };
        let mut piece = vec![0; PLAIN_BYTES];
        loop {
            let (read, made) = (self.inflate.total_in(), self.inflate.total_out());
            let status = self
                .inflate
                .decompress(packed, &mut piece, FlushDecompress::Sync);
            let read = usize::try_from(self.inflate.total_in() - read).unwrap_or(usize::MAX);
            let made = usize::try_from(self.inflate.total_out() - made).unwrap_or(usize::MAX);
            packed = packed.get(read..).unwrap_or_default();
            message
                .plain
                .extend_from_slice(piece.get(..made).unwrap_or_default());
            let masked = message.masked;
            if message.plain.len() > self.bytes_max {
                self.too_large(masked, ready);
                return false;
            }
            match status {
                // A last block ends the stream; the next message begins a new one.
                Ok(Status::StreamEnd) => self.inflate.reset(false),
                Ok(Status::Ok | Status::BufError) => {}
                Err(_) => {
                    self.broken(masked, ready);
                    return false;
                }
            }
            if packed.is_empty() && made < PLAIN_BYTES {
                return true;
            }
            if read == 0 && made == 0 {
                self.broken(masked, ready);
                return false;
            }
        }
    }

    /// The message is whole.
    fn finish(&mut self, ready: &mut BytesMut) {
        if let Some(message) = self.message.take() {
            put_head(
                ready,
                0x80 | message.opcode,
                message.masked,
                message.plain.len() as u64,
            );
            ready.extend_from_slice(&message.plain);
        }
    }

    /// Tells the reader above of a mistake: a frame of a kind that does not exist.
    fn broken(&mut self, masked: bool, ready: &mut BytesMut) {
        put_head(ready, 0x83, masked, 0);
        self.message = None;
        self.state = State::Broken;
    }

    /// Tells the reader above of a message that is too large.
    fn too_large(&mut self, masked: bool, ready: &mut BytesMut) {
        put_head(ready, 0x82, masked, self.bytes_max as u64 + 1);
        self.message = None;
        self.state = State::Broken;
    }
}

/// A frame's head.
pub(super) struct Head {
    pub(super) last: bool,
    pub(super) packed: bool,
    pub(super) opcode: u8,
    pub(super) masked: bool,
    pub(super) mask: [u8; 4],
    pub(super) length: u64,
    pub(super) bytes: usize,
}

impl Head {
    /// `None` when there is too little of it.
    pub(super) fn read(raw: &[u8]) -> Option<Self> {
        let (&first, &second) = (raw.first()?, raw.get(1)?);
        let masked = second & 0x80 != 0;
        let (length, at) = match second & 0x7f {
            126 => (
                u64::from(u16::from_be_bytes(raw.get(2..4)?.try_into().ok()?)),
                4,
            ),
            127 => (u64::from_be_bytes(raw.get(2..10)?.try_into().ok()?), 10),
            short => (u64::from(short), 2),
        };
        let bytes = at + if masked { 4 } else { 0 };
        let mask = if masked {
            raw.get(at..bytes)?.try_into().ok()?
        } else {
            [0; 4]
        };
        (raw.len() >= bytes).then_some(Self {
            last: first & 0x80 != 0,
            packed: first & 0x40 != 0,
            opcode: first & 0x0f,
            masked,
            mask,
            length,
            bytes,
        })
    }
}

/// A head as the reader above expects it from this side; a mask of zeros changes nothing.
pub(super) fn put_head(out: &mut BytesMut, first: u8, masked: bool, length: u64) {
    let mask = if masked { 0x80 } else { 0 };
    out.put_u8(first);
    match (u8::try_from(length), u16::try_from(length)) {
        (Ok(length), _) if length < 126 => out.put_u8(mask | length),
        (_, Ok(length)) => {
            out.put_u8(mask | 126);
            out.put_u16(length);
        }
        _ => {
            out.put_u8(mask | 127);
            out.put_u64(length);
        }
    }
    if masked {
        out.put_u32(0);
    }
}

/// Masks a payload, or takes the mask off.
pub(super) fn mask(bytes: &mut [u8], mask: [u8; 4]) {
    for (byte, key) in bytes.iter_mut().zip(mask.iter().cycle()) {
        *byte ^= key;
    }
}
