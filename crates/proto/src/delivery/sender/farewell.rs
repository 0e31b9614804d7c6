//! How a session ends: on each channel a last round of the FDT, whole, for receivers that came after the one before, then a
//! few packets that close the session.

use crate::machine::ChannelId;

/// Packets that close the session on a channel: any one of them tells a receiver.
const CLOSE_PACKETS: u8 = 3;

/// What is left to say on each channel.
///
/// The session is over when the base channel has said it, which every receiver holds. Any other channel that is as fast
/// has said it by then, too; one that is done before is silent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Farewell {
    channels: Vec<Left>,
    symbols: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Left {
    symbols: u64,
    closes: u8,
}

/// What a channel says next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// A symbol of the FDT, by its number.
    Describe(u64),
    /// The session is closed.
    Close,
    /// Nothing.
    Silence,
}

impl Farewell {
    /// Of a session whose FDT has so many symbols.
    pub(crate) fn new(channels: u16, symbols: u64) -> Self {
        Self { channels: vec![Left { symbols, closes: CLOSE_PACKETS }; channels.into()], symbols }
    }

    /// What a channel says now.
    pub(crate) fn next(&mut self, channel: ChannelId) -> Word {
        let Some(left) = self.channels.get_mut(usize::from(channel.0)) else { return Word::Silence };
        if left.symbols > 0 {
            left.symbols -= 1;
            Word::Describe(self.symbols - left.symbols - 1)
        } else if left.closes > 0 {
            left.closes -= 1;
            Word::Close
        } else {
            Word::Silence
        }
    }

    /// Whether all is said.
    pub(crate) fn is_over(&self) -> bool {
        let base = self.channels.get(usize::from(ChannelId::BASE.0));
        base.is_none_or(|left| left.symbols == 0 && left.closes == 0)
    }
}
