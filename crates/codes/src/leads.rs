//! Where escapes may begin: one pass over a text for all of them.

use alloc::vec::Vec;

use crate::lanes;

/// Where each byte stands that an escape begins with.
#[derive(Default)]
pub struct Leads {
    pub(crate) percent: Vec<u32>,
    pub(crate) backslash: Vec<u32>,
    pub(crate) ampersand: Vec<u32>,
    pub(crate) equals: Vec<u32>,
    /// Of `0x` the second byte.
    pub(crate) x: Vec<u32>,
}

impl Leads {
    /// Looks for them in a text of less than 4 GB.
    pub fn fill(&mut self, text: &[u8]) {
        for places in [
            &mut self.percent,
            &mut self.backslash,
            &mut self.ampersand,
            &mut self.equals,
            &mut self.x,
        ] {
            places.clear();
        }
        let (blocks, rest) = text.as_chunks::<64>();
        for (nth, block) in blocks.iter().enumerate() {
            self.block(text, nth * 64, block);
        }
        if !rest.is_empty() {
            let mut block = [0; 64];
            for (to, byte) in block.iter_mut().zip(rest) {
                *to = *byte;
            }
            self.block(text, blocks.len() * 64, &block);
        }
    }

    #[inline(always)]
    fn block(&mut self, text: &[u8], start: usize, block: &[u8; 64]) {
        let sixteens = block.as_chunks::<16>().0.iter().rev();
        let mut leads = sixteens.fold(0, |leads: u64, bytes| {
            leads << 16 | u64::from(lanes::leads(*bytes))
        });
        while leads != 0 {
            let at = start + leads.trailing_zeros() as usize;
            leads &= leads - 1;
            let places = match text.get(at) {
                Some(b'%') => &mut self.percent,
                Some(b'\\') => &mut self.backslash,
                Some(b'&') => &mut self.ampersand,
                Some(b'=') => &mut self.equals,
                Some(b'x') if at > 0 && text.get(at - 1) == Some(&b'0') => &mut self.x,
                _ => continue,
            };
            places.push(u32::try_from(at).unwrap_or(u32::MAX));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lead_is_told_once_and_in_order() {
        for len in [0, 5, 63, 64, 65, 200] {
            let text: Vec<u8> = (0..len).map(|n| b"%\\a&=0xx\0\xff"[n * 7 % 10]).collect();
            let mut leads = Leads::default();
            // What was there before is gone.
            leads.fill(b"%%==");
            leads.fill(&text);
            for (places, lead) in [
                (&leads.percent, &b"%"[..]),
                (&leads.backslash, b"\\"),
                (&leads.ampersand, b"&"),
                (&leads.equals, b"="),
                (&leads.x, b"0x"),
            ] {
                let expect: Vec<u32> = (0..text.len())
                    .filter(|at| text[..=*at].ends_with(lead))
                    .map(|at| at as u32)
                    .collect();
                assert_eq!(*places, expect, "{len}");
            }
        }
    }
}
