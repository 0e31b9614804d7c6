//! Reassembly of messages from packets in order.

use headwater_wire::pgm::Fragment;

/// A message under way, of at most `bytes_max` bytes.
#[derive(Clone, Debug)]
pub(super) struct Assembly {
    message: Vec<u8>,
    /// Fragment option of the message's first packet.
    whole: Option<Fragment>,
    bytes_max: u32,
    /// Number of messages that could not be reassembled.
    broken: u64,
}

impl Assembly {
    pub(super) fn new(bytes_max: u32) -> Self {
        Self { message: Vec::new(), whole: None, bytes_max, broken: 0 }
    }

    pub(super) const fn broken(&self) -> u64 {
        self.broken
    }

    /// Records a lost packet, which breaks the message under way.
    pub(super) fn lost(&mut self) {
        self.broken += u64::from(self.whole.take().is_some());
    }

    /// Takes the next packet, and returns the message that the packet completes, if any.
    pub(super) fn packet<'a>(&'a mut self, data: &'a [u8], fragment: Option<Fragment>) -> Option<&'a [u8]> {
        let Some(fragment) = fragment else {
            self.lost();
            return Some(data);
        };
        if fragment.offset == 0 {
            self.lost();
            self.message.clear();
            if fragment.length > self.bytes_max {
                self.broken += 1;
                return None;
            }
            self.whole = Some(fragment);
        }
        // Without a beginning there is no message to extend: a late receiver, or a loss already counted.
        let whole = self.whole?;
        let bytes = self.message.len() + data.len();
        let is_next = (fragment.first, fragment.length) == (whole.first, whole.length)
            && fragment.offset as usize == self.message.len()
            && bytes <= whole.length as usize;
        if !is_next {
            self.lost();
            return None;
        }
        self.message.extend_from_slice(data);
        if bytes < whole.length as usize {
            return None;
        }
        self.whole = None;
        Some(&self.message)
    }
}
