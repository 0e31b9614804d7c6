//! Round-trip questions of receivers to their sender, and its answers. The format is ours; `docs/wire/rtt.md`
//! describes it. See [`exchange`] for what they have in common with [`crate::probe`].

use crate::bytes::{Writer, be16};
use crate::exchange;
pub use crate::exchange::{Error, VERSION};

/// Length of a question and of an answer in bytes.
pub const BYTES: usize = 16;

const MAGIC: [u8; 3] = *b"HWR";
const KIND_QUESTION: u8 = 0;
const KIND_ANSWER: u8 = 1;

/// A question or its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Message {
    /// From a receiver to the address that its sender's packets come from.
    Question {
        /// Chosen at random for each question; an answer with another one is none.
        nonce: u64,
    },
    /// Back to whoever asked, at once.
    Answer {
        /// The question's.
        nonce: u64,
        /// Seconds that the receiver shall wait, about, before it asks again.
        pause_s: u16,
    },
}

impl Message {
    /// Reads a datagram. Reserved bits are ignored.
    ///
    /// # Errors
    /// [`Error`], for whatever is no question and no answer of this version.
    pub fn parse(datagram: &[u8]) -> Result<Message, Error> {
        let (kind, nonce) = exchange::parse(datagram, MAGIC, BYTES)?;
        match kind {
            KIND_QUESTION => Ok(Message::Question { nonce }),
            KIND_ANSWER => Ok(Message::Answer { nonce, pause_s: be16(datagram, 12) }),
            kind => Err(Error::Kind(kind)),
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
