//! Server-sent events, as far as model streams need them: the data of each event.

/// A line that is longer is not read on.
const DATA_BYTES_MAX: usize = 32 << 20;

/// Cuts a byte stream into the data of its events.
#[derive(Debug, Default)]
pub(crate) struct Events {
    line: Vec<u8>,
    data: Vec<u8>,
    after_return: bool,
    overflow: bool,
}

impl Events {
    /// Hands the data of every event that `bytes` completes to `event`.
    pub(crate) fn push(&mut self, bytes: &[u8], event: &mut dyn FnMut(&[u8])) {
        for &byte in bytes {
            let after_return = std::mem::replace(&mut self.after_return, byte == b'\r');
            match byte {
                b'\n' if after_return => {}
                b'\n' | b'\r' => self.line_ends(event),
                _ if self.line.len() + self.data.len() >= DATA_BYTES_MAX => self.overflow = true,
                _ => self.line.push(byte),
            }
        }
    }

    /// The stream has ended; an event without its empty line counts too.
    pub(crate) fn finish(&mut self, event: &mut dyn FnMut(&[u8])) {
        if !self.line.is_empty() {
            self.line_ends(event);
        }
        self.line_ends(event);
    }

    fn line_ends(&mut self, event: &mut dyn FnMut(&[u8])) {
        let line = std::mem::take(&mut self.line);
        if line.is_empty() {
            let data = std::mem::take(&mut self.data);
            if !data.is_empty() && !std::mem::take(&mut self.overflow) {
                event(&data);
            }
            return;
        }
        if let Some(value) = line.strip_prefix(b"data:") {
            let value = value.strip_prefix(b" ").unwrap_or(value);
            if !self.data.is_empty() {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Events;

    #[test]
    fn events_whatever_the_line_ends_and_cuts() {
        let stream = b"event: a\r\ndata: one\r\n\r\n: comment\ndata:two\ndata: lines\n\n\rdata: x\r\rdata: last";
        for cut in 0..stream.len() {
            let (mut events, mut seen) = (Events::default(), Vec::new());
            let mut note = |data: &[u8]| seen.push(String::from_utf8(data.to_vec()).unwrap());
            events.push(&stream[..cut], &mut note);
            events.push(&stream[cut..], &mut note);
            events.finish(&mut note);
            assert_eq!(seen, ["one", "two\nlines", "x", "last"]);
        }
    }
}
