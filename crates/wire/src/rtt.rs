//! Round-trip questions of receivers to their sender, and the sender's answers. The format is ours;
//! `docs/reference/wire/rtt.md` describes the fields. [`exchange`] describes the header shared with
//! [`crate::probe`].

use crate::bytes::{Writer, be16};
use crate::exchange;
pub use crate::exchange::{ExchangeError, VERSION};

/// Length of a question and of an answer in bytes.
pub const BYTES: usize = 16;

const MAGIC: [u8; 3] = *b"HWR";
const KIND_QUESTION: u8 = 0;
const KIND_ANSWER: u8 = 1;

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
            KIND_ANSWER => Ok(Message::Answer { nonce, pause_s: be16(datagram, 12) }),
            kind => Err(ExchangeError::Kind(kind)),
        }
    }

    /// The datagram.
    pub fn emit(&self) -> [u8; BYTES] {
        let (kind, nonce, pause_s) = match *self {
            Message::Question { nonce } => (KIND_QUESTION, nonce, 0),
            Message::Answer { nonce, pause_s } => (KIND_ANSWER, nonce, pause_s),
        };
        let mut bytes = [0; BYTES];
        let mut writer = Writer::new(&mut bytes);
        exchange::emit(&mut writer, MAGIC, kind, nonce);
        writer.put(&pause_s.to_be_bytes());
        bytes
    }
}
