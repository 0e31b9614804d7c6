//! Probes of `headwater doctor`: a small datagram to a session's group, and the answer of a peer that tells how it
//! arrived. The format is ours; `docs/wire/doctor.md` describes it.
//!
//! A request and its answer have the same length, so an answer never amplifies what a forged source asks for. The first
//! byte reads as LCT version 4, which no LCT receiver takes for a packet of its session.

use crate::bytes::{Writer, be, be16};

/// Length of a request and of a reply in bytes.
pub const BYTES: usize = 20;
/// The version of this format.
pub const VERSION: u8 = 1;

const MAGIC: [u8; 3] = *b"HWD";
const KIND_REQUEST: u8 = 0;
const KIND_REPLY: u8 = 1;
const SEEN_TTL: u8 = 0b01;
const SEEN_TRAFFIC_CLASS: u8 = 0b10;

/// What is asked, and what a reply repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Request {
    /// Chosen at random by the asking end; a reply with another one is not for it.
    pub nonce: u64,
    /// Number of the probe, from 0.
    pub sequence: u16,
    /// Time to live (IPv4) or hop limit (IPv6) that it was sent with.
    pub ttl: u8,
    /// Traffic class octet that it was sent with: differentiated services (6 bits), ECN (2 bits).
    pub traffic_class: u8,
}

/// How a request arrived; `None` where the answering system does not tell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Seen {
    /// Time to live or hop limit.
    pub ttl: Option<u8>,
    /// Traffic class octet.
    pub traffic_class: Option<u8>,
}

/// A probe or its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Message {
    /// Sent to the group.
    Request(Request),
    /// Sent back to whoever asked.
    Reply(Request, Seen),
}

/// Why a datagram is no probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Its length is another one.
    #[error("{0} bytes, but a probe has {BYTES}")]
    Length(usize),
    /// It does not begin as a probe does.
    #[error("no probe")]
    Magic,
    /// A version that this code does not know.
    #[error("a probe of version {0}, but only {VERSION} is known")]
    Version(u8),
    /// Neither a request nor a reply.
    #[error("a probe of unknown kind {0}")]
    Kind(u8),
}

impl Message {
    /// Reads a datagram. Reserved bits are ignored.
    ///
    /// # Errors
    /// [`Error`], for whatever is no request and no reply of this version.
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
        let request = Request {
            nonce: be(&datagram[4..12]),
            sequence: be16(datagram, 12),
            ttl: datagram[14],
            traffic_class: datagram[15],
        };
        match datagram[3] & 0x0F {
            KIND_REQUEST => Ok(Message::Request(request)),
            KIND_REPLY => {
                let seen = |flag, value| (datagram[18] & flag != 0).then_some(value);
                let ttl = seen(SEEN_TTL, datagram[16]);
                let traffic_class = seen(SEEN_TRAFFIC_CLASS, datagram[17]);
                Ok(Message::Reply(request, Seen { ttl, traffic_class }))
            }
            kind => Err(Error::Kind(kind)),
        }
    }

    /// The datagram.
    pub fn emit(&self) -> [u8; BYTES] {
        let (kind, request, seen) = match *self {
            Message::Request(request) => (KIND_REQUEST, request, Seen::default()),
            Message::Reply(request, seen) => (KIND_REPLY, request, seen),
        };
        let flag = |is_seen: bool, flag| if is_seen { flag } else { 0 };
        let flags =
            flag(seen.ttl.is_some(), SEEN_TTL) | flag(seen.traffic_class.is_some(), SEEN_TRAFFIC_CLASS);
        let mut bytes = [0; BYTES];
        let mut writer = Writer::new(&mut bytes);
        writer.put(&MAGIC);
        writer.put(&[VERSION << 4 | kind]);
        writer.put(&request.nonce.to_be_bytes());
        writer.put(&request.sequence.to_be_bytes());
        writer.put(&[request.ttl, request.traffic_class]);
        writer.put(&[seen.ttl.unwrap_or(0), seen.traffic_class.unwrap_or(0), flags]);
        bytes
    }
}
