//! The socket of a PGM source, and what fits a packet on it.

use headwater_proto::pgm::{Control, Mode, Session, Source, SourceConfig};
use headwater_proto::{DATAGRAM_BYTES_MAX, Instant};
use headwater_wire::pgm::Gsi;

use super::options::{Framing, PgmControl, PgmSendOptions};
use crate::chance;
use crate::net::{Channels, Interface, OpenError, SenderOptions, SenderSocket};
use crate::send::SendError;

/// The UDP header, and those of a data packet without options.
const HEADER_BYTES: u32 = 8 + 24;
/// OPT_LENGTH and OPT_FRAGMENT, in packets of messages longer than one.
const FRAGMENT_BYTES: u32 = 4 + 16;
/// Longest IP packet that OpenPGM takes unless it is told otherwise.
const IP_BYTES_MAX: u32 = 1_500;
const PAYLOAD_MAX: u16 = 8_192;
const PAYLOAD_MIN: u16 = 16;

/// An open socket, and the session on it.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) socket: SenderSocket,
    pub(super) session: Session,
    pub(super) payload_bytes: u16,
    /// UDP payload of a full packet.
    packet_bytes: u16,
}

impl Opened {
    pub(super) fn new(options: &PgmSendOptions) -> Result<Self, SendError> {
        let channels = Channels::new(options.group, 1)?;
        let interface = options.interface.as_deref().map(Interface::find).transpose()?;
        let socket = SenderOptions {
            interface,
            // There receivers send their NAKs, whatever they make of the port that data comes from.
            port: options.group.port(),
            ttl: options.ttl,
            dscp: options.dscp,
            loopback: options.loopback,
            outage_max: options.outage_max,
            ..SenderOptions::default()
        };
        let socket = SenderSocket::open(&channels, &socket)?;
        let headers = HEADER_BYTES - 8 + if options.framing == Framing::Zmq { 0 } else { FRAGMENT_BYTES };
        let payload_bytes = payload_bytes(options, &socket, headers + 8)?;
        let packet_bytes = u16::try_from(headers).map_or(payload_bytes, |headers| payload_bytes + headers);
        Ok(Self { socket, session: session(options)?, payload_bytes, packet_bytes })
    }

    /// The machine, beginning at `now`.
    pub(super) fn source(&self, options: &PgmSendOptions, now: Instant) -> Source {
        let control = match options.control {
            PgmControl::Fixed(rate) => Control::Fixed(rate),
            PgmControl::LeSbcc(options) => Control::LeSbcc(Box::new(options.chain(self.packet_bytes, now))),
        };
        Source::new(self.config(options), control, now)
    }

    /// Most bytes of a message.
    pub(super) fn message_bytes_max(&self, options: &PgmSendOptions) -> usize {
        let packets = self.config(options).waiting_packets_max() as usize;
        // Of ZeroMQ's packets, two bytes are the offset and one more may be in use by the message before.
        match options.framing {
            Framing::Messages => packets * usize::from(self.payload_bytes),
            Framing::Zmq => (packets - 2) * usize::from(self.payload_bytes - 2),
        }
    }

    fn config(&self, options: &PgmSendOptions) -> SourceConfig {
        let path = self.socket.local_addr().ip();
        SourceConfig::new(self.session, path, self.payload_bytes)
            .with_mode(Mode::Pgm)
            .with_window_packets(options.window_packets)
    }
}

fn session(options: &PgmSendOptions) -> Result<Session, SendError> {
    let random: [u8; 8] = chance::random()
        .map_err(|errno| OpenError::Option { attempt: "give random bits", source: errno.into() })?;
    let [a, b, c, d, e, f, port @ ..] = random;
    let destination_port = options.destination_port.unwrap_or(options.group.port());
    // Receivers tell packets up and down by the two ports.
    let source_port = u16::from_be_bytes(port).max(1);
    let source_port = if source_port == destination_port { source_port ^ 1 } else { source_port };
    Ok(Session { gsi: Gsi([a, b, c, d, e, f]), source_port, destination_port, group: options.group.ip() })
}

/// What is asked for, or else what fits.
fn payload_bytes(options: &PgmSendOptions, socket: &SenderSocket, headers: u32) -> Result<u16, SendError> {
    let headers = headers + if options.group.is_ipv6() { 40 } else { 20 };
    let mtu = socket.interface().mtu();
    let Some(asked) = options.payload_bytes else {
        let room = mtu.unwrap_or(IP_BYTES_MAX).min(IP_BYTES_MAX).saturating_sub(headers);
        return Ok(u16::try_from(room).unwrap_or(PAYLOAD_MAX).max(PAYLOAD_MIN));
    };
    let fits_datagram = u32::from(asked) + headers <= u32::try_from(DATAGRAM_BYTES_MAX).unwrap_or(u32::MAX);
    if !(PAYLOAD_MIN..=PAYLOAD_MAX).contains(&asked) || !fits_datagram {
        let option = "the length of a packet's payload";
        return Err(SendError::Option { option, value: asked.into(), range: "from 16 to 8192 bytes" });
    }
    match mtu.filter(|mtu| headers + u32::from(asked) > *mtu) {
        Some(mtu) => {
            let interface = socket.interface().name.clone();
            Err(SendError::Mtu { symbol_size: asked, mtu, interface })
        }
        None => Ok(asked),
    }
}
