//! Round-trip questions of receivers to their sender, the sender's answers, and receivers' reports of the
//! levels they hold, which are answered on the base channel ([`crate::extensions::Levels`]). The format is
//! ours; `docs/reference/wire/rtt.md` describes the fields. [`exchange`] describes the header shared with
//! [`crate::probe`].

use crate::bytes::{Writer, be16};
use crate::exchange;
pub use crate::exchange::{ExchangeError, VERSION};

/// Length of a question and of an answer in bytes.
pub const BYTES: usize = 16;

const MAGIC: [u8; 3] = *b"HWR";
const KIND_QUESTION: u8 = 0;
const KIND_ANSWER: u8 = 1;
const KIND_REPORT: u8 = 2;
/// Flag of a receiver that starts.
const STARTING: u8 = 0x80;
/// Bits of a receiver's loss class.
const LOSS_SHIFT: u32 = 4;

/// Whether a datagram begins as one of this format does.
pub fn is_exchange(datagram: &[u8]) -> bool {
    datagram.starts_with(&MAGIC)
}

/// A question or its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Message {
    /// From a receiver to the source address of the sender's packets.
    Question {
        /// Drawn at random for each question; an answer must repeat the nonce.
        nonce: u64,
    },
    /// Sent back to the requester immediately.
    Answer {
        /// Nonce of the question.
        nonce: u64,
        /// Approximate wait before the receiver's next question, in seconds.
        pause_s: u16,
    },
    /// From a receiver to the source address of the sender's packets, without an answer to the receiver.
    Report(Demand),
}

/// Levels that a receiver needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Demand {
    /// Highest level held or being joined.
    pub level: u8,
    /// Whether the receiver starts: the next join may be of several levels.
    pub is_starting: bool,
    /// Part of the packets that the receiver lost of late.
    pub loss: LossClass,
}

/// Part of packets lost, in classes: 0 not told, 1 below 5 %, 2 below 10 %, 3 below 20 %, 4 below 30 %,
/// 5 below 50 %, 6 below 70 %, 7 above.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LossClass(u8);

impl LossClass {
    /// Largest code: three bits.
    pub const MAX: u8 = 7;
    /// Parts at which classes 2 to 7 begin.
    const BOUNDS: [f64; 6] = [0.05, 0.1, 0.2, 0.3, 0.5, 0.7];
    /// Class from which a receiver loses most packets.
    pub const HEAVY: Self = Self(6);

    /// Returns the class of a code, of which the low three bits count.
    pub const fn from_code(code: u8) -> Self {
        Self(code & Self::MAX)
    }

    /// Returns the class of a part of packets, from 0 to 1.
    pub fn of(part: f64) -> Self {
        let above = Self::BOUNDS.iter().filter(|bound| **bound <= part).count();
        Self(u8::try_from(above).unwrap_or(Self::MAX - 1) + 1)
    }

    /// Returns the code on the wire.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// Whether at least half of the packets are lost.
    pub const fn is_heavy(self) -> bool {
        self.0 >= Self::HEAVY.0
    }

    /// Returns the least part of packets lost.
    pub fn least(self) -> f64 {
        usize::from(self.0).checked_sub(2).map_or(0.0, |index| Self::BOUNDS[index])
    }
}

impl Message {
    /// Reads a datagram. Reserved bits are ignored.
    ///
    /// # Errors
    /// [`ExchangeError`], if the datagram is no question or answer of this version.
    pub fn parse(datagram: &[u8]) -> Result<Message, ExchangeError> {
        let (kind, nonce) = exchange::parse(datagram, MAGIC, BYTES)?;
        match kind {
            KIND_QUESTION => Ok(Message::Question { nonce }),
            KIND_REPORT => {
                let (flags, level) = (datagram[14], datagram[15]);
                let loss = LossClass::from_code(flags >> LOSS_SHIFT);
                Ok(Message::Report(Demand { level, is_starting: flags & STARTING != 0, loss }))
            }
            KIND_ANSWER => Ok(Message::Answer { nonce, pause_s: be16(datagram, 12) }),
            kind => Err(ExchangeError::Kind(kind)),
        }
    }

    /// The datagram.
    pub fn emit(&self) -> [u8; BYTES] {
        let (kind, nonce, rest) = match *self {
            Message::Question { nonce } => (KIND_QUESTION, nonce, [0; 4]),
            Message::Answer { nonce, pause_s } => {
                let [high, low] = pause_s.to_be_bytes();
                (KIND_ANSWER, nonce, [high, low, 0, 0])
            }
            Message::Report(Demand { level, is_starting, loss }) => {
                let starting = if is_starting { STARTING } else { 0 };
                (KIND_REPORT, 0, [0, 0, starting | loss.code() << LOSS_SHIFT, level])
            }
        };
        let mut bytes = [0; BYTES];
        let mut writer = Writer::new(&mut bytes);
        exchange::emit(&mut writer, MAGIC, kind, nonce);
        writer.put(&rest);
        bytes
    }
}
