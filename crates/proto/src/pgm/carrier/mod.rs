//! PGM as the carrier of a session of files: each ALC packet is the data of an ODATA packet, and receivers'
//! NAKs report losses.
//!
//! No packet is retransmitted. The source confirms a NAK, which suppresses NAKs of other receivers, and the
//! sender's next symbol repairs the loss, whichever symbol is next. So the source keeps no data, a receiver
//! keeps no order, and a receiver with all of the content NAKs nothing. To the rest of the stack the carrier
//! is a congestion control: [`PgmCarrierSender`] puts PGM's header around each packet and sends at LE-SBCC's
//! rate, [`PgmCarrierReceiver`] NAKs missing packets.
//!
//! An ALC packet's first four bits are LCT's version, 1. In a PGM packet the same bits begin the source port,
//! which a [`PgmCarrierSender`] makes 32768 or more. So a receiver tells from each datagram alone whether a
//! packet is carried: [`open`], `docs/reference/wire/pgm.md`.

mod receiver;
#[cfg(test)]
mod tests;

use core::net::IpAddr;

use headwater_wire::cci::WebrcCci;
use headwater_wire::pgm::{Body, Packet};
use headwater_wire::{Cci, fdt};

pub use receiver::{MISSING_MAX, Opener, PgmCarrierReceiver, PgmCarrierReceiverConfig};

use super::{Answers, Mode, PgmSession, PgmSource, SourceConfig, SourceControl};
use crate::admission::AdmissionKey;
use crate::control::{Departure, Overload, SenderControl, SenderEnvelope, Value};
use crate::le_sbcc::Chain;
use crate::machine::{ChannelId, Datagram, Ecn, Transmit};
use crate::pacing::BURST;
use crate::time::Instant;

/// Name of LE-SBCC over PGM in a session's FDT.
pub const NAME: &str = "le-sbcc";
/// LCT's version, in the first four bits.
const LCT_VERSION: u8 = 1;

/// Content of a session's datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opened<'a> {
    /// A packet of the session without PGM.
    Bare(&'a [u8]),
    /// A PGM packet, and the packet of the session carried inside.
    Carried(Packet<'a>, &'a [u8]),
    /// A PGM packet without a carried packet.
    Word(Packet<'a>),
}

/// Tells a carried packet from a packet without PGM; `None` for invalid datagrams.
pub fn open(datagram: &[u8]) -> Option<Opened<'_>> {
    if datagram.first().is_none_or(|first| first >> 4 == LCT_VERSION) {
        return Some(Opened::Bare(datagram));
    }
    let packet = Packet::parse(datagram).ok()?;
    Some(match packet.body {
        Body::Odata { data, .. } | Body::Rdata { data, .. } => Opened::Carried(packet, data),
        _ => Opened::Word(packet),
    })
}

/// Ports from this port on cannot be mistaken for LCT's version.
const SOURCE_PORT_MIN: u16 = 0x8000;

/// Sends each packet as ODATA on the base channel, at LE-SBCC's rate.
///
/// CCI: slot 0, channel 0 and the low 16 bits of PGM's sequence number. NAKs count for the last
/// `window_packets` packets; each packet takes 64 bytes. Confirmations are paid out of the rate, at most
/// eight between two packets.
#[derive(Clone, Debug)]
pub struct PgmCarrierSender {
    source: PgmSource,
    envelope_bytes: usize,
}

impl PgmCarrierSender {
    /// Creates a sender at the unicast address `path`, the destination of NAKs. The first packet leaves at
    /// `now`. The highest bit of the source port is set, which makes the port 32768 or more.
    /// `window_packets`, as in [`SourceConfig::with_window_packets`], covers the packets sent in the maximum
    /// time from a packet to the NAK for the packet.
    pub fn new(session: PgmSession, path: IpAddr, window_packets: u32, chain: Chain, now: Instant) -> Self {
        let session = PgmSession { source_port: session.source_port | SOURCE_PORT_MIN, ..session };
        let config = SourceConfig::new(session, path, 1)
            .with_mode(Mode::Lean)
            .with_answers(Answers::Confirmations)
            .with_window_packets(window_packets);
        let mut source = PgmSource::new(config, SourceControl::LeSbcc(Box::new(chain)), now);
        // Files always have another symbol.
        source.set_backlogged(true);
        Self { source, envelope_bytes: Self::envelope_bytes() }
    }

    /// Size of PGM's header around each packet, in bytes.
    pub fn envelope_bytes() -> usize {
        let body = Body::Odata { sequence: 0, trail: 0, data: &[] };
        Packet::new(0, 0, headwater_wire::pgm::Gsi::default(), body).buffer_len()
    }

    /// Returns the PGM source, which receives NAKs.
    pub const fn source(&self) -> &PgmSource {
        &self.source
    }

    fn cci(&self) -> Cci {
        let sequence = self.source.next_sequence() & u32::from(u16::MAX);
        let cci = WebrcCci { slot: 0, channel: 0, sequence };
        cci.short().expect("every number is as narrow as its field")
    }
}

impl SenderControl for PgmCarrierSender {
    fn channels(&self) -> u16 {
        1
    }

    fn levels(&self) -> u16 {
        1
    }

    fn description(&self) -> Option<fdt::ControlAttributes> {
        fdt::ControlAttributes::new(NAME).ok()
    }

    fn next_departure(&self) -> Option<Instant> {
        let [next, _] = self.source.places();
        Some(next)
    }

    fn departure(&self, now: Instant) -> Option<Departure> {
        let [next, due] = self.source.places();
        (next <= now).then(|| Departure {
            channel: ChannelId::BASE,
            level: 0,
            at: due,
            cci: self.cci(),
            ecn: Ecn::NotCapable,
            levels: None,
            tells_levels: false,
            lateness: None,
        })
    }

    fn envelope(&mut self) -> Option<&mut dyn SenderEnvelope> {
        Some(self)
    }

    fn departed(&mut self, now: Instant, bytes: usize) {
        self.source.departed(now, bytes);
    }

    fn paused(&mut self, _now: Instant) {
        self.source.paused();
    }

    fn overload(&self) -> Option<Overload> {
        self.source.overload()
    }

    fn visit_counters(&self, visit: &mut dyn FnMut(&'static str, Value)) {
        self.source.visit_counters(visit);
    }

    fn feedback(&mut self, now: Instant, datagram: &Datagram<'_>) {
        self.source.datagram(now, datagram);
    }

    fn set_admission_key(&mut self, key: AdmissionKey) {
        self.source.set_admission_key(key);
    }

    fn poll_transmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        self.source.poll_word(buffer).or_else(|| self.source.poll_ncf(now, buffer))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.source.chain().map(Chain::poll_timeout)
    }

    fn timeout(&mut self, now: Instant) {
        // A departure long overdue had no packet to carry.
        let [next, _] = self.source.places();
        self.source.timeout(now, next + BURST >= now);
    }
}

impl SenderEnvelope for PgmCarrierSender {
    fn bytes(&self) -> usize {
        self.envelope_bytes
    }

    fn seal(&mut self, now: Instant, datagram: &mut [u8]) {
        self.source.seal(now, datagram);
    }
}
