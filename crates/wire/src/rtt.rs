//! Round-trip questions of receivers to their sender, and its answers. The format is ours; `docs/wire/rtt.md` describes it.
//!
//! An answer is as long as its question, so it never amplifies what a forged source asks for. The first byte reads as LCT
//! version 4, which no LCT receiver takes for a packet of its session.

use crate::bytes::{Writer, be, be16};

/// Length of a question and of an answer in bytes.
pub const BYTES: usize = 16;
/// The version of this format.
pub const VERSION: u8 = 1;

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

/// Why a datagram is neither.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It does not begin as they do.
    #[error("no round-trip question or answer")]
    Magic,
    /// A version that this code does not know.
    #[error("a round-trip question of version {0}, but only {VERSION} is known")]
    Version(u8),
    /// Its length is another one.
    #[error("{0} bytes, but a round-trip question has {BYTES}")]
    Length(usize),
    /// Neither a question nor an answer.
    #[error("a round-trip question of unknown kind {0}")]
    Kind(u8),
}

impl Message {
    /// Reads a datagram. Reserved bits are ignored.
    ///
    /// # Errors
    /// [`Error`], for whatever is no question and no answer of this version.
    pub fn parse(datagram: &[u8]) -> Result<Message, Error> {
        if !datagram.starts_with(&MAGIC) {
            return Err(Error::Magic);
        }
        if let Some(version) = datagram.get(3).map(|byte| byte >> 4)
            && version != VERSION
        {
            return Err(Error::Version(version));
        }
        if datagram.len() != BYTES {
            return Err(Error::Length(datagram.len()));
        }
        let nonce = be(&datagram[4..12]);
        match datagram[3] & 0x0F {
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
        writer.put(&MAGIC);
        writer.put(&[VERSION << 4 | kind]);
        writer.put(&nonce.to_be_bytes());
        writer.put(&pause_s.to_be_bytes());
        bytes
    }
}
