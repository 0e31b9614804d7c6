//! File transfer over BCFS: each reply carries an ALC packet, and goes to the receivers that requested it.
//!
//! A [`Receiver`] sends requests by Rainbow's window. A [`Sender`] answers each request with the next symbol
//! of the session, new for all receivers of the reply. Both are congestion controls of
//! [`delivery`](crate::delivery). The FDT describes the session as usual. A receiver requests the FDT symbol
//! by symbol, by separate labels, so that a late receiver gets the FDT at once: `docs/wire/bcfs.md`.
//!
//! Requests are not authenticated, and a reply is some 30 times longer than its request. A sender therefore
//! limits the replies to addresses that have not proven reception. Each reply carries a token that only the
//! sender can make, different for each address (in the CCI of the header), and requests return the last
//! token.
//!
//! | attack | defence |
//! |---|---|
//! | requests from spoofed addresses | [`UNPROVEN_PER_SECOND`] replies a second to all unproven addresses |
//! | floods from proven addresses | [`SenderConfig::with_requests_per_second`] for each address |
//! | floods to fill the sender's queue | bounded queue; receivers repeat dropped requests |
//! | forged replies, from the requested address | digests detect false symbols |
//!
//! Replies to unproven addresses take at most a quarter of a maximum rate. The sender remembers 4096 proven
//! addresses at a time; further addresses are unproven. A proven address may take most of a maximum rate. The
//! queue holds the requests of a tenth of a second at [`SenderConfig::with_max_rate`], at most 4096. Forged
//! replies with the session's number answer requests and bring false symbols; other forged replies have no
//! effect.

mod peers;
mod receiver;
mod sender;
#[cfg(test)]
mod tests;

use headwater_wire::bcfs::Label;

pub use peers::UNPROVEN_PER_SECOND;
pub use receiver::{Receiver, ReceiverConfig};
pub use sender::{RequestCounters, Sender, SenderConfig};

/// Name of Rainbow over BCFS in a session's FDT.
pub const NAME: &str = "rainbow";
/// First label for symbols of the FDT; the offset is the symbol's number.
const DESCRIPTIONS: u32 = 1 << 31;

/// Content that a label requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    /// Next symbol of content.
    Content,
    /// Symbol of the FDT, by number.
    Description(u32),
}

impl Wanted {
    fn of(label: Label) -> Self {
        label.0.checked_sub(DESCRIPTIONS).map_or(Self::Content, Self::Description)
    }

    /// Returns the label of a request; `window_label` is the window's label, used for content.
    fn label(self, window_label: u16) -> Label {
        match self {
            Self::Content => Label(window_label.into()),
            Self::Description(number) => Label(DESCRIPTIONS | number),
        }
    }
}
