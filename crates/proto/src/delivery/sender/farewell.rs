//! How a session ends: on each channel a last round of the FDT, as far as a second allows, for receivers that
//! came after the one before, then a few packets that close the session.

use crate::machine::ChannelId;
use crate::time::{Duration, Instant};

/// Packets that close the session on a channel: any one of them tells a receiver.
const CLOSE_PACKETS: u8 = 3;
/// Time for the last round of the FDT. A long one on a slow channel is cut off: its receivers have the
/// channels above.
const DESCRIPTION: Duration = Duration::from_secs(1);
/// Time after which a session is over, whatever its base channel has still to say: a user waits for it.
const PATIENCE: Duration = Duration::from_secs(2);

/// What is left to say on each channel.
///
/// The session is over when the base channel has said it, which every receiver holds, or after 2 s. Any other
/// channel that is as fast has said it by then, too; one that is done before is silent.
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
        let left = Left { symbols, closes: CLOSE_PACKETS };
        Self { channels: vec![left; channels.into()], symbols, began: None }
    }

    /// What a channel says now.
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

    /// Whether all is said, or the time for it is over. The first call begins that time.
    pub(crate) fn is_over(&mut self, now: Instant) -> bool {
        let base = self.channels.get(usize::from(ChannelId::BASE.0));
        let is_said = base.is_none_or(|left| left.symbols == 0 && left.closes == 0);
        is_said || now >= *self.began.get_or_insert(now) + PATIENCE
    }

    /// When it is over at the latest, once it has begun.
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
