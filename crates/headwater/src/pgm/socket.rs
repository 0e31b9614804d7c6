//! The socket of a PGM source, and what fits a packet on it.

use headwater_proto::pgm::{Control, Mode, Session, Source, SourceConfig};
use headwater_proto::{DATAGRAM_BYTES_MAX, Duration, Instant};
use headwater_wire::pgm::Gsi;

use super::options::{Framing, PgmControl, PgmSendOptions};
use crate::chance;
use crate::send::{Link, SendError};

/// Of a data packet without options.
const HEADER_BYTES: u16 = 24;
/// OPT_LENGTH and OPT_FRAGMENT, in packets of messages longer than one.
const FRAGMENT_BYTES: u16 = 4 + 16;
/// Longest IP packet that OpenPGM takes unless it is told otherwise.
const IP_BYTES_MAX: u32 = 1_500;
/// Receivers of other makes say nothing until they miss something, and then their hosts may be seconds in
/// finding the way: less is sent meanwhile than twice what was sent before.
const BLIND_DOUBLING: Duration = Duration::from_secs(2);
const PAYLOAD_MAX: u16 = 8_192;
const PAYLOAD_MIN: u16 = 16;

/// An open socket, and the session on it.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) link: Link,
    pub(super) session: Session,
    pub(super) payload_bytes: u16,
    /// UDP payload of a full packet.
    packet_bytes: u16,
}

impl Opened {
    pub(super) fn new(options: &PgmSendOptions) -> Result<Self, SendError> {
        // To the group's own port receivers send their NAKs, whatever they make of the port that data comes
        // from.
        let link = Link::open(&options.link, 1, options.link.group.port())?;
        let headers =
            HEADER_BYTES + if options.wire.framing == Framing::Messages { FRAGMENT_BYTES } else { 0 };
        let payload_bytes = payload_bytes(options.payload_bytes, &link, u32::from(headers))?;
        let packet_bytes = payload_bytes + headers;
        Ok(Self { link, session: session(options)?, payload_bytes, packet_bytes })
    }

    /// The machine, beginning at `now`.
    pub(super) fn source(&self, options: &PgmSendOptions, now: Instant) -> Source {
        let control = match options.control {
            PgmControl::Fixed(rate) => Control::Fixed(rate),
            PgmControl::LeSbcc(options) => {
                let chain = options.chain(self.packet_bytes, Some(BLIND_DOUBLING), now);
                Control::LeSbcc(Box::new(chain))
            }
        };
        Source::new(self.config(options), control, now)
    }

    /// Most bytes of a message.
    pub(super) fn message_bytes_max(&self, options: &PgmSendOptions) -> usize {
        let packets = self.config(options).waiting_packets_max() as usize;
        // Of ZeroMQ's packets, two bytes are the offset and one more may be in use by the message before.
        match options.wire.framing {
            Framing::Messages => packets * usize::from(self.payload_bytes),
            Framing::Zmq => (packets - 2) * usize::from(self.payload_bytes - 2),
            Framing::Bytes => (packets - 1) * usize::from(self.payload_bytes),
        }
    }

    fn config(&self, options: &PgmSendOptions) -> SourceConfig {
        let path = self.link.socket.local_addr().ip();
        SourceConfig::new(self.session, path, self.payload_bytes)
            .with_mode(Mode::Pgm)
            .with_window_packets(options.window_packets)
            .with_roll_call(matches!(options.control, PgmControl::LeSbcc(_)))
    }
}

fn session(options: &PgmSendOptions) -> Result<Session, SendError> {
    let [a, b, c, d, e, f, port @ ..]: [u8; 8] = chance::random()?;
    let group = options.link.group;
    let destination_port = options.wire.port(group);
    // Receivers tell packets up and down by the two ports.
    let source_port = u16::from_be_bytes(port).max(1);
    let source_port = if source_port == destination_port { source_port ^ 1 } else { source_port };
    Ok(Session { gsi: Gsi([a, b, c, d, e, f]), source_port, destination_port, group: group.ip() })
}

/// What is asked for, or else what fits.
fn payload_bytes(asked: Option<u16>, link: &Link, headers: u32) -> Result<u16, SendError> {
    let headers = link.header_bytes() + headers;
    let interface = link.socket.interface();
    let mtu = interface.mtu();
    let Some(asked) = asked else {
        let room = mtu.unwrap_or(IP_BYTES_MAX).min(IP_BYTES_MAX).saturating_sub(headers);
        return Ok(u16::try_from(room).unwrap_or(PAYLOAD_MAX).max(PAYLOAD_MIN));
    };
    let fits_datagram = u32::from(asked) + headers <= u32::try_from(DATAGRAM_BYTES_MAX).unwrap_or(u32::MAX);
    if !(PAYLOAD_MIN..=PAYLOAD_MAX).contains(&asked) || !fits_datagram {
        let option = "the length of a packet's payload";
        return Err(SendError::Option { option, value: asked.into(), range: "from 16 to 8192 bytes" });
    }
    match mtu.filter(|mtu| headers + u32::from(asked) > *mtu) {
        Some(mtu) => Err(SendError::Mtu { symbol_size: asked, mtu, interface: interface.name.clone() }),
        None => Ok(asked),
    }
}
