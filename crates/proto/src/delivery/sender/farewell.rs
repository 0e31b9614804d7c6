//! End of a session: each channel sends a last round of the FDT, for at most a second, for receivers that
//! joined after the previous round, and then a few packets that close the session.

use crate::machine::ChannelId;
use crate::time::{Duration, Instant};

/// Packets that close the session on a channel: a single packet informs a receiver.
const CLOSE_PACKETS: u8 = 3;
/// Maximum time for the last round of the FDT. On a slow channel, a long round is cut off: the channel's
/// receivers get the FDT from the channels above.
const DESCRIPTION: Duration = Duration::from_secs(1);
/// Maximum time until the session is over, even if the base channel has packets left: a user waits for the
/// end.
const PATIENCE: Duration = Duration::from_secs(2);

/// Packets left to send on each channel.
///
/// The session is over when the base channel, to which every receiver subscribes, has sent all its packets,
/// or after 2 s. By then, any other channel of at least the same rate has sent all its packets, too. A
/// channel without packets left is silent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Farewell {
    channels: Vec<Left>,
    symbols: u64,
    began: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Left {
    symbols: u64,
    closes: u8,
}

/// Next packet of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// Symbol of the FDT, by number.
    Describe(u64),
    /// Packet that closes the session.
    Close,
    /// No packet.
    Silence,
}

impl Farewell {
    /// Creates the farewell of a session with an FDT of `symbols` symbols.
    pub(crate) fn new(channels: u16, symbols: u64) -> Self {
        let left = Left { symbols, closes: CLOSE_PACKETS };
        Self { channels: vec![left; channels.into()], symbols, began: None }
    }

    /// Returns the next packet of a channel.
    pub(crate) fn next(&mut self, now: Instant, channel: ChannelId) -> Word {
        let may_describe = now < *self.began.get_or_insert(now) + DESCRIPTION;
        let Some(left) = self.channels.get_mut(usize::from(channel.0)) else { return Word::Silence };
        if !may_describe {
            left.symbols = 0;
        }
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

    /// Whether all packets are sent, or the time limit has passed. The first call starts the time.
    pub(crate) fn is_over(&mut self, now: Instant) -> bool {
        let base = self.channels.get(usize::from(ChannelId::BASE.0));
        let is_said = base.is_none_or(|left| left.symbols == 0 && left.closes == 0);
        is_said || now >= *self.began.get_or_insert(now) + PATIENCE
    }

    /// Returns the latest end, once the farewell has begun.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.began.map(|began| began + PATIENCE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: ChannelId = ChannelId::BASE;

    fn at(milliseconds: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(milliseconds)
    }

    #[test]
    fn a_short_description_is_told_whole_and_the_session_closed() {
        let mut farewell = Farewell::new(2, 2);
        assert!(!farewell.is_over(at(0)));
        let words: Vec<_> = (0..6).map(|turn| farewell.next(at(turn * 10), BASE)).collect();
        let expected =
            [Word::Describe(0), Word::Describe(1), Word::Close, Word::Close, Word::Close, Word::Silence];
        assert_eq!(words, expected);
        assert!(farewell.is_over(at(60)));
    }

    #[test]
    fn a_long_description_is_cut_off_so_that_closing_takes_no_longer_than_two_seconds() {
        let mut farewell = Farewell::new(1, 500);
        assert!(!farewell.is_over(at(0)));
        let mut closes = 0;
        // Ten packets a second.
        for turn in 0.. {
            let now = at(turn * 100);
            if farewell.is_over(now) {
                assert!(now <= at(1_400), "{now:?}");
                break;
            }
            match farewell.next(now, BASE) {
                Word::Describe(number) => assert_eq!(number, turn),
                Word::Close => closes += 1,
                Word::Silence => panic!("silent before it is over"),
            }
        }
        assert_eq!(closes, 3);
        // A base that never gets a turn ends, too.
        let mut mute = Farewell::new(1, 1);
        assert!(!mute.is_over(at(0)) && !mute.is_over(at(1_999)));
        assert_eq!(mute.deadline(), Some(at(2_000)));
        assert!(mute.is_over(at(2_000)));
    }
}
