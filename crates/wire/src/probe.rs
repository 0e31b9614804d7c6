//! Probes of `headwater doctor`: a small datagram to a session's group, and the answer of a peer that reports
//! the arrival of the probe. The format is ours; `docs/reference/wire/doctor.md` describes the fields.
//! [`exchange`] describes the header shared with [`crate::rtt`].

use crate::bytes::{Writer, be16};
use crate::exchange;
pub use crate::exchange::{ExchangeError, VERSION};

/// Length of a request and of a reply in bytes.
pub const BYTES: usize = 20;

const MAGIC: [u8; 3] = *b"HWD";
const KIND_REQUEST: u8 = 0;
const KIND_REPLY: u8 = 1;
const SEEN_TTL: u8 = 0b01;
const SEEN_TRAFFIC_CLASS: u8 = 0b10;

/// Fields of a request. A reply repeats all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Request {
    /// Drawn at random by the requester; the requester ignores replies with a different nonce.
    pub nonce: u64,
    /// Number of the probe, from 0.
    pub sequence: u16,
    /// Time to live (IPv4) or hop limit (IPv6) of the probe as sent.
    pub ttl: u8,
    /// Traffic class octet of the probe as sent: differentiated services (6 bits), ECN (2 bits).
    pub traffic_class: u8,
}

/// Header fields of a request on arrival; `None` if the answering system does not report the field.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct ProbeArrival {
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
    /// Sent back to the requester.
    Reply(Request, ProbeArrival),
}

impl Message {
    /// Reads a datagram. Reserved bits are ignored.
    ///
    /// # Errors
    /// [`ExchangeError`], if the datagram is no request or reply of this version.
    pub fn parse(datagram: &[u8]) -> Result<Message, ExchangeError> {
        let (kind, nonce) = exchange::parse(datagram, MAGIC, BYTES)?;
        let request =
            Request { nonce, sequence: be16(datagram, 12), ttl: datagram[14], traffic_class: datagram[15] };
        match kind {
            KIND_REQUEST => Ok(Message::Request(request)),
            KIND_REPLY => {
                let seen = |flag, value| (datagram[18] & flag != 0).then_some(value);
                let ttl = seen(SEEN_TTL, datagram[16]);
                let traffic_class = seen(SEEN_TRAFFIC_CLASS, datagram[17]);
                Ok(Message::Reply(request, ProbeArrival { ttl, traffic_class }))
            }
            kind => Err(ExchangeError::Kind(kind)),
        }
    }

    /// The datagram.
    pub fn emit(&self) -> [u8; BYTES] {
        let (kind, request, seen) = match *self {
            Message::Request(request) => (KIND_REQUEST, request, ProbeArrival::default()),
            Message::Reply(request, seen) => (KIND_REPLY, request, seen),
        };
        let flag = |is_seen: bool, flag| if is_seen { flag } else { 0 };
        let flags =
            flag(seen.ttl.is_some(), SEEN_TTL) | flag(seen.traffic_class.is_some(), SEEN_TRAFFIC_CLASS);
        let mut bytes = [0; BYTES];
        let mut writer = Writer::new(&mut bytes);
        exchange::emit(&mut writer, MAGIC, kind, request.nonce);
        writer.put(&request.sequence.to_be_bytes());
        writer.put(&[request.ttl, request.traffic_class]);
        writer.put(&[seen.ttl.unwrap_or(0), seen.traffic_class.unwrap_or(0), flags]);
        bytes
    }
}
