//! BCFS as the carrier of a session of files: each ALC packet is the body of a reply, and goes to those who
//! asked.
//!
//! A [`Receiver`] asks by Rainbow's window, and a [`Sender`] answers each request with the session's next
//! symbol, whichever that is: fresh for all who asked. Both are congestion controls to
//! [`delivery`](crate::delivery). What a session is, its FDT tells, as always; a receiver asks for that by
//! labels of its own, symbol by symbol, so that late ones have it at once: `docs/wire/bcfs.md`.
//!
//! Nothing proves who asked, and a reply is some 30 times longer than its request. So a sender answers fast
//! only to addresses that have shown that they hear it: each reply carries a word that only it can make,
//! different for each address (in the header's CCI), and requests bring back the last one.
//!
//! | what strangers may try | what becomes of it |
//! |---|---|
//! | requests from made-up addresses | [`UNPROVEN_PER_SECOND`] replies a second, to all together; of a highest rate a quarter at the most |
//! | floods from addresses at which they hear | [`SenderConfig::with_requests_per_second`] for each; 4096 addresses at a time, others are unproven. Where there is a highest rate, such a one may take most of it |
//! | to fill the sender's queue | [`SenderConfig::with_max_rate`]'s for a tenth of a second, at most 4096; those beyond are forgotten, and asked for again |
//! | forged replies, from the address that is asked | of the session's number they answer requests and bring false symbols, which digests find; others do nothing |

mod peers;
mod receiver;
mod sender;
#[cfg(test)]
mod tests;

use headwater_wire::bcfs::Label;

pub use peers::UNPROVEN_PER_SECOND;
pub use receiver::{Receiver, ReceiverConfig};
pub use sender::{RequestCounters, Sender, SenderConfig};

/// Name of Rainbow over BCFS, as a session's FDT spells it.
pub const NAME: &str = "rainbow";
/// Labels from here on ask for symbols of the FDT, by their number.
const DESCRIPTIONS: u32 = 1 << 31;

/// What a label asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    /// The next symbol of content.
    Content,
    /// A symbol of the FDT.
    Description(u32),
}

impl Wanted {
    fn of(label: Label) -> Self {
        label.0.checked_sub(DESCRIPTIONS).map_or(Self::Content, Self::Description)
    }

    /// `window_label` says which of the window's labels asks, where it is for content.
    fn label(self, window_label: u16) -> Label {
        match self {
            Self::Content => Label(window_label.into()),
            Self::Description(number) => Label(DESCRIPTIONS | number),
        }
    }
}
