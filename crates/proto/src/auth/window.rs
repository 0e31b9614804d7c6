//! Numbers of verified signatures on a channel: each number counts once, and each leaf of a tree once.

use headwater_wire::auth::Authentication;

use super::SIGNATURE_BYTES;
use super::hash::Message;

/// Numbers below the highest verified number that still count, each once.
const NUMBERS: u32 = 64;
/// Latest trees whose leaves still count.
const TREES: usize = 16;

/// Verified signature of a tree.
#[derive(Clone, Copy, Debug)]
struct Tree {
    number: u32,
    message: Message,
    signature: [u8; SIGNATURE_BYTES],
    /// Leaves that have come, one bit each.
    leaves: u16,
}

impl Tree {
    /// Whether root and signature of a packet are those of the tree.
    fn is_of(&self, auth: &Authentication, message: &Message) -> bool {
        self.message.as_bytes() == message.as_bytes() && self.signature == auth.signature
    }
}

/// Use of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NumberUse {
    /// No verified signature has the number.
    New,
    /// The packet is another leaf of a verified tree.
    Leaf,
    /// The packet claims a verified number, but is not of the number's tree.
    Contradiction,
    /// The packet has come, or the number is too old.
    Replay,
}

/// Numbers of a channel, in 2.5 kB.
#[derive(Debug)]
pub(crate) struct NumberWindow {
    highest: u32,
    /// Bit k: the number `highest - k` is verified.
    seen: u64,
    trees: [Option<Tree>; TREES],
}

impl NumberWindow {
    pub(crate) fn new() -> Self {
        Self { highest: 0, seen: 0, trees: [None; TREES] }
    }

    /// Highest verified number; 0 for none.
    pub(crate) fn highest(&self) -> u32 {
        self.highest
    }

    /// Classifies a packet by its number.
    pub(crate) fn classify(&self, auth: &Authentication, message: &Message) -> NumberUse {
        let Some(back) = self.highest.checked_sub(auth.number) else { return NumberUse::New };
        if back >= NUMBERS {
            return NumberUse::Replay;
        }
        if self.seen >> back & 1 == 0 {
            return NumberUse::New;
        }
        match &self.trees[auth.number as usize % TREES] {
            Some(tree) if auth.depth > 0 && tree.number == auth.number => {
                if !tree.is_of(auth, message) {
                    NumberUse::Contradiction
                } else if tree.leaves >> auth.leaf & 1 == 1 {
                    NumberUse::Replay
                } else {
                    NumberUse::Leaf
                }
            }
            _ => NumberUse::Replay,
        }
    }

    /// Whether the packet is a leaf of a verified tree.
    pub(crate) fn is_leaf(&self, auth: &Authentication, message: &Message) -> bool {
        self.trees[auth.number as usize % TREES]
            .as_ref()
            .is_some_and(|tree| auth.depth > 0 && tree.number == auth.number && tree.is_of(auth, message))
    }

    /// Records a verified packet.
    pub(crate) fn record(&mut self, auth: &Authentication, message: &Message) {
        if let Some(ahead @ 1..) = auth.number.checked_sub(self.highest) {
            self.seen = self.seen.checked_shl(ahead).unwrap_or(0);
            self.highest = auth.number;
        }
        self.seen |= 1 << (self.highest - auth.number);
        self.record_tree(auth, message);
    }

    /// Records the tree of a verified packet, if the packet is a leaf.
    pub(crate) fn record_tree(&mut self, auth: &Authentication, message: &Message) {
        if auth.depth > 0 {
            let place = &mut self.trees[auth.number as usize % TREES];
            let leaf = 1 << auth.leaf;
            match place {
                Some(tree) if tree.number == auth.number => tree.leaves |= leaf,
                // A late packet of an old tree does not displace a newer tree.
                Some(tree) if tree.number > auth.number => {}
                _ => {
                    let (number, signature) = (auth.number, auth.signature);
                    *place = Some(Tree { number, message: *message, signature, leaves: leaf });
                }
            }
        }
    }
}
