//! PGM as the carrier of a session of files: each ALC packet is the data of an ODATA packet, and receivers'
//! NAKs report losses.
//!
//! No packet is retransmitted. The source confirms a NAK, which suppresses NAKs of other receivers, and the
//! sender's next symbol repairs the loss, whichever symbol is next. So the source keeps no data, a receiver
//! keeps no order, and a receiver with all of the content NAKs nothing. To the rest of the stack the carrier
//! is a congestion control: [`Sender`] puts PGM's header around each packet and sends at LE-SBCC's rate,
//! [`Receiver`] NAKs missing packets.
//!
//! An ALC packet's first four bits are LCT's version, 1. In a PGM packet the same bits begin the source port,
//! which a [`Sender`] makes 32768 or more. So a receiver tells from each datagram alone whether a packet is
//! carried: [`open`], `docs/wire/pgm.md`.

mod receiver;
mod sender;
#[cfg(test)]
mod tests;

use headwater_wire::pgm::{Body, Packet};

pub use self::receiver::{MISSING_MAX, Opener, Receiver, ReceiverConfig};
pub use self::sender::Sender;

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
