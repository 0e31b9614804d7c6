//! What a source sends and what receivers make of it: the seam to content.

use rand::Rng;

use crate::rng::Stream;
use crate::time::Instant;

/// Gives symbols without end.
pub trait Fountain {
    /// Writes the next symbol, with all that tells which one it is, at the start of `room`; its length. `None` while there is
    /// nothing to give: the request goes unanswered.
    fn next(&mut self, now: Instant, room: &mut [u8]) -> Option<usize>;
}

/// Takes symbols until it has enough.
pub trait Basin {
    /// A symbol came, or bytes that somebody gave out for one.
    fn take(&mut self, now: Instant, body: &[u8]);

    /// Whether it has all that it wants: nothing more is asked for.
    fn is_full(&self) -> bool;
}

/// Encoding symbol IDs of a block.
const IDS: u32 = 1 << 24;

/// Turns of blocks: in each round every block sends one symbol, the round's number being its encoding symbol ID.
///
/// Each round begins with another block, drawn at random, so that a receiver that gets each second or third symbol gets as many
/// of each block; were all rounds alike, it could get those of some blocks only.
#[derive(Clone, Debug)]
pub struct Turns {
    blocks: u32,
    draw: Stream,
    round: u32,
    /// Symbols sent in this round.
    turn: u32,
    /// The block that began it.
    first: u32,
}

impl Turns {
    /// Turns of so many blocks, at least one.
    pub fn new(blocks: u32, draw: Stream) -> Self {
        Self { blocks: blocks.max(1), draw, round: 0, turn: 0, first: 0 }
    }

    /// The next symbol's block and encoding symbol ID. IDs have 24 bits, as RaptorQ's (RFC 6330), and wrap after so many rounds.
    pub fn next_symbol(&mut self) -> (u32, u32) {
        if self.turn == 0 {
            let drawn = (u64::from(self.draw.next_u32()) * u64::from(self.blocks)) >> 32;
            self.first = u32::try_from(drawn).unwrap_or_default();
        }
        let block = (u64::from(self.first) + u64::from(self.turn)) % u64::from(self.blocks);
        let symbol = (u32::try_from(block).unwrap_or_default(), self.round);
        self.turn += 1;
        if self.turn == self.blocks {
            (self.turn, self.round) = (0, (self.round + 1) % IDS);
        }
        symbol
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::Seed;

    #[test]
    fn no_symbol_comes_twice_and_blocks_keep_pace() {
        let mut turns = Turns::new(7, Seed(1).stream("turns", 0));
        let sent: Vec<(u32, u32)> = (0..700).map(|_| turns.next_symbol()).collect();
        assert_eq!(sent.iter().collect::<BTreeSet<_>>().len(), 700);
        for block in 0..7 {
            assert!(sent.iter().filter(|(one, _)| *one == block).map(|(_, id)| *id).eq(0..100));
        }
    }

    #[test]
    fn ids_stay_within_those_of_the_code() {
        let mut turns = Turns { round: 0xFF_FFFF, ..Turns::new(2, Seed(1).stream("turns", 0)) };
        let ids: Vec<u32> = (0..4).map(|_| turns.next_symbol().1).collect();
        assert_eq!(ids, [0xFF_FFFF, 0xFF_FFFF, 0, 0]);
    }

    /// Whatever part of the symbols comes at a regular beat, blocks get nearly as many each.
    #[test]
    fn any_part_of_them_helps() {
        for blocks in [2_u32, 3, 8, 12] {
            for beat in 2..=12 {
                let mut turns = Turns::new(blocks, Seed(2).stream("turns", 0));
                let mut counts = vec![0_u32; blocks as usize];
                for step in 0..blocks * beat * 1_000 {
                    let (block, _) = turns.next_symbol();
                    counts[block as usize] += u32::from(step % beat == 0);
                }
                let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
                assert!(most - least <= 250, "{counts:?} of 1000 each by beat {beat}");
            }
        }
    }
}
