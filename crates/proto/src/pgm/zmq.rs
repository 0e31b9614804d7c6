//! Packing of ZeroMQ's `epgm://` sockets in PGM packets: a stream of frames, cut into packets.
//!
//! ```text
//! packet:  offset (16 bits) of the first frame that begins in it, 0xFFFF if none | bytes of the stream
//! frame:   length (8 bits) of flags and body | flags (8 bits) | body
//!          0xFF | length (64 bits) of flags and body | flags (8 bits) | body, from 254 bytes of body on
//! ```
//!
//! Frames are frames of ZMTP 1.0; flag 1 says that another part of the same message follows. A receiver
//! starts at the first frame that begins in a packet, and again after a loss. libzmq aborts on packets
//! without the two offset bytes, and on messages fragmented by PGM (OPT_FRAGMENT). So a stream for libzmq is
//! packed into packets here, with a PGM message for each packet.

use super::bytes::Filler;

/// Replaces the offset in a packet in which no frame begins.
const NO_FRAME: u16 = 0xFFFF;
const NO_FRAME_HEAD: [u8; OFFSET_LEN] = NO_FRAME.to_be_bytes();
const OFFSET_LEN: usize = 2;
/// First byte of a long length.
const LONG: u8 = 0xFF;
/// Bytes before the body of a short frame, and of a long frame.
const SHORT_HEAD_LEN: usize = 2;
const LONG_HEAD_LEN: usize = 10;

/// Packs messages, each of a single part, into packets.
#[derive(Clone, Debug)]
pub struct Packer(Filler);

impl Packer {
    /// Creates a packer for packets of at most `packet_bytes`, at least 3.
    pub fn new(packet_bytes: u16) -> Self {
        Self(Filler::with_head(packet_bytes, &NO_FRAME_HEAD))
    }

    /// Maximum number of packets that [`Self::push`] fills for a message of `message_bytes` bytes.
    pub const fn packets(&self, message_bytes: usize) -> usize {
        self.0.packets(LONG_HEAD_LEN + message_bytes)
    }

    /// Adds a message, and passes full packets to `packet`.
    pub fn push(&mut self, message: &[u8], mut packet: impl FnMut(&[u8])) {
        let begun = self.0.packet_mut();
        if begun[..OFFSET_LEN] == NO_FRAME_HEAD {
            let offset = u16::try_from(begun.len() - OFFSET_LEN).unwrap_or(NO_FRAME);
            begun[..OFFSET_LEN].copy_from_slice(&offset.to_be_bytes());
        }
        let length = message.len() as u64 + 1;
        match u8::try_from(length) {
            Ok(length) if length != LONG => self.0.push(&[length, 0], &mut packet),
            _ => {
                let mut head = [0; LONG_HEAD_LEN];
                head[0] = LONG;
                head[1..9].copy_from_slice(&length.to_be_bytes());
                self.0.push(&head, &mut packet);
            }
        }
        self.0.push(message, &mut packet);
    }

    /// Whether there is a last packet, which is not full.
    pub const fn has_rest(&self) -> bool {
        self.0.has_rest()
    }

    /// Passes the last packet, which is not full, to `packet`, if there is a last packet.
    pub fn flush(&mut self, packet: impl FnMut(&[u8])) {
        self.0.flush(packet);
    }
}

/// Unpacks messages from packets: each part of a message counts as a message.
#[derive(Clone, Debug)]
pub struct Unpacker {
    /// Whether the beginning of a frame is known.
    has_joined: bool,
    head: [u8; LONG_HEAD_LEN],
    head_len: usize,
    /// Bytes received of the body under way, and length of the body once the head is known.
    body: Vec<u8>,
    body_len: Option<usize>,
    message_bytes_max: usize,
    broken: u64,
}

impl Unpacker {
    /// Creates an unpacker for messages of at most `message_bytes_max`, which also bounds the buffered bytes.
    pub const fn new(message_bytes_max: u32) -> Self {
        Self {
            has_joined: false,
            head: [0; LONG_HEAD_LEN],
            head_len: 0,
            body: Vec::new(),
            body_len: None,
            message_bytes_max: message_bytes_max as usize,
            broken: 0,
        }
    }

    /// Number of packets not of this kind, and of messages too long or truncated by a loss.
    pub const fn broken(&self) -> u64 {
        self.broken
    }

    /// Records that packets were lost before the next packet.
    pub fn lost(&mut self) {
        self.broken += u64::from(self.head_len > 0);
        self.leave();
    }

    /// Takes the next packet, and passes the messages that the packet completes to `message`.
    pub fn packet(&mut self, packet: &[u8], mut message: impl FnMut(&[u8])) {
        let Some((offset, mut stream)) = packet.split_first_chunk() else {
            return self.refuse();
        };
        if !self.has_joined {
            let offset = u16::from_be_bytes(*offset);
            if offset == NO_FRAME {
                return;
            }
            let Some(first) = stream.get(usize::from(offset)..) else { return self.refuse() };
            (stream, self.has_joined) = (first, true);
        }
        while !stream.is_empty() {
            let Some(rest) = self.take(stream, &mut message) else { return self.refuse() };
            stream = rest;
        }
    }

    /// Takes a part of the stream, at least a byte of a stream that is not empty; `None` for invalid data.
    fn take<'a>(&mut self, stream: &'a [u8], message: &mut impl FnMut(&[u8])) -> Option<&'a [u8]> {
        let Some(body_len) = self.body_len else {
            let (byte, rest) = stream.split_first()?;
            self.head[self.head_len] = *byte;
            self.head_len += 1;
            self.body_len = self.body_len()?;
            if self.body_len == Some(0) {
                self.end();
                message(&[]);
            }
            return Some(rest);
        };
        let (now, rest) = stream.split_at(stream.len().min(body_len - self.body.len()));
        if now.len() == body_len {
            // The usual case, which needs no copy.
            self.end();
            message(now);
            return Some(rest);
        }
        self.body.extend_from_slice(now);
        if self.body.len() == body_len {
            message(&self.body);
            self.end();
        }
        Some(rest)
    }

    /// Returns the body length in the head, once the head is complete; the outer `None` refuses the length.
    #[expect(clippy::option_option, reason = "not known yet, and not taken at all")]
    fn body_len(&self) -> Option<Option<usize>> {
        let length = match (self.head[0], self.head_len) {
            (LONG, LONG_HEAD_LEN) => {
                let mut length = [0; 8];
                length.copy_from_slice(&self.head[1..9]);
                u64::from_be_bytes(length)
            }
            (LONG, _) => return Some(None),
            (_, 0..SHORT_HEAD_LEN) => return Some(None),
            (length, _) => u64::from(length),
        };
        let body_len = usize::try_from(length.checked_sub(1)?).ok()?;
        (body_len <= self.message_bytes_max).then_some(Some(body_len))
    }

    fn end(&mut self) {
        (self.head_len, self.body_len) = (0, None);
        self.body.clear();
    }

    fn refuse(&mut self) {
        self.broken += 1;
        self.leave();
    }

    fn leave(&mut self) {
        self.has_joined = false;
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pack(packet_bytes: u16, messages: &[Vec<u8>], flushed: &[bool]) -> Vec<Vec<u8>> {
        let mut packer = Packer::new(packet_bytes);
        let mut packets = Vec::new();
        for (index, message) in messages.iter().enumerate() {
            let (most, before) = (packer.packets(message.len()), packets.len());
            packer.push(message, |packet| packets.push(packet.to_vec()));
            assert!(packets.len() - before <= most);
            if flushed.get(index) == Some(&true) {
                packer.flush(|packet| packets.push(packet.to_vec()));
            }
        }
        packer.flush(|packet| packets.push(packet.to_vec()));
        packets
    }

    fn unpack<'a>(unpacker: &mut Unpacker, packets: impl IntoIterator<Item = &'a Vec<u8>>) -> Vec<Vec<u8>> {
        let mut messages = Vec::new();
        packets
            .into_iter()
            .for_each(|packet| unpacker.packet(packet, |message| messages.push(message.to_vec())));
        messages
    }

    #[test]
    fn packets_are_those_of_libzmq() {
        let packets = pack(8, &[b"one".to_vec(), vec![], b"three".to_vec()], &[]);
        assert_eq!(
            packets,
            [
                b"\x00\x00\x04\x00one\x01".to_vec(),
                b"\x00\x01\x00\x06\x00thr".to_vec(),
                b"\xff\xffee".to_vec()
            ]
        );
        let long = pack(300, &[vec![7; 253], vec![8; 254]], &[true]);
        assert_eq!(long[0][..4], [0, 0, 254, 0]);
        assert_eq!(long[1][..12], [0, 0, 255, 0, 0, 0, 0, 0, 0, 0, 255, 0]);
    }

    #[test]
    fn it_begins_where_a_frame_does_and_again_after_a_loss() {
        let messages: Vec<_> = (0..9_u8).map(|number| vec![number; 20]).collect();
        let packets = pack(16, &messages, &[]);
        let mut unpacker = Unpacker::new(100);
        let got = unpack(&mut unpacker, &packets[3..8]);
        assert_eq!(got, messages[2..5]);
        unpacker.lost();
        assert_eq!(unpack(&mut unpacker, &packets[9..]), messages[6..], "the one cut off is not given");
        assert_eq!(unpacker.broken(), 1);
    }

    #[test]
    fn what_makes_no_sense_is_counted_and_the_next_frame_begins_anew() {
        let mut unpacker = Unpacker::new(100);
        let wrong: [&[u8]; 5] = [
            b"",
            b"\x00",
            b"\x00\x09abc",
            b"\x00\x00\x00\x00",
            b"\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\x00",
        ];
        for (count, packet) in (1..).zip(wrong) {
            assert!(unpack(&mut unpacker, [&packet.to_vec()]).is_empty());
            assert_eq!(unpacker.broken(), count, "{packet:?}");
        }
        assert_eq!(unpack(&mut unpacker, &pack(16, &[vec![1; 101]], &[])), Vec::<Vec<u8>>::new(), "too long");
        assert_eq!(unpack(&mut unpacker, &pack(16, &[vec![1; 100]], &[])), [vec![1; 100]]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

        #[test]
        fn messages_come_out_as_they_went_in(
            sizes in prop::collection::vec(0..600_usize, 0..20), packet_bytes in 3..700_u16, flushed in prop::collection::vec(any::<bool>(), 20),
        ) {
            let messages: Vec<Vec<u8>> = (0..255_u8).zip(&sizes).map(|(byte, size)| vec![byte; *size]).collect();
            let packets = pack(packet_bytes, &messages, &flushed);
            prop_assert!(packets.iter().all(|packet| (3..=usize::from(packet_bytes)).contains(&packet.len())));
            prop_assert_eq!(unpack(&mut Unpacker::new(600), &packets), messages);
        }

        #[test]
        fn anything_may_come(packets in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..20)) {
            let mut unpacker = Unpacker::new(50);
            prop_assert!(unpack(&mut unpacker, &packets).iter().all(|message| message.len() <= 50));
            prop_assert!(unpacker.body.len() <= 50);
        }
    }
}
