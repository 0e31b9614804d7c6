//! PGM as the carrier of a session of files: each ALC packet is the data of one ODATA packet, and receivers'
//! NAKs tell of losses.
//!
//! Nothing is sent again: a NAK is confirmed, so that others keep theirs, and the sender's next symbol
//! repairs, whichever it is. So the source keeps no data, a receiver no order, and who has all of it asks for
//! nothing. It is a congestion control to the rest: [`Sender`] puts PGM's header around each packet and gives
//! LE-SBCC's rate, [`Receiver`] NAKs what is missing.
//!
//! An ALC packet's first four bits are LCT's version, 1; in a PGM packet they begin the source's port, which
//! a [`Sender`] makes 32768 or more. So a receiver knows by each datagram alone whether it is carried:
//! [`open`], `docs/wire/pgm.md`.

mod receiver;
mod sender;
#[cfg(test)]
mod tests;

use headwater_wire::pgm::{Body, Packet};

pub use self::receiver::{MISSING_MAX, Opener, Receiver, ReceiverConfig};
pub use self::sender::Sender;

/// Name of LE-SBCC over PGM, as a session's FDT spells it.
pub const NAME: &str = "le-sbcc";
/// LCT's version, in the first four bits.
const LCT_VERSION: u8 = 1;

/// What a datagram of a session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opened<'a> {
    /// A packet of the session by itself.
    Bare(&'a [u8]),
    /// A PGM packet that carries one, and the one.
    Carried(Packet<'a>, &'a [u8]),
    /// A PGM packet that carries nothing.
    Word(Packet<'a>),
}

/// Tells a carried packet from one by itself; `None` for what is neither.
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
