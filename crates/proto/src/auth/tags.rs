//! Open tags of a channel, in two generations: when the newer one is full, the older one is dropped.

use headwater_wire::auth::Tag;

/// Tags of a generation: 12 manifests list so many new ones. A channel holds 300 to 600 tags in 16 kB.
pub(crate) const GENERATION: usize = 300;

const SLOTS: usize = 1 << 10;

/// State of a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TagState {
    /// Listed, and no packet has come.
    Open,
    /// The packet has come.
    Seen,
    /// In no manifest that is still remembered.
    Unlisted,
}

#[derive(Clone, Debug)]
struct Generation {
    tags: Vec<(Tag, bool)>,
    /// Place of each tag plus 1, by the tag's first bytes; 0 for none. Signed manifests alone fill the table,
    /// so that a stranger cannot lengthen a search.
    slots: [u16; SLOTS],
}

impl Generation {
    fn new() -> Self {
        Self { tags: Vec::with_capacity(GENERATION), slots: [0; SLOTS] }
    }

    /// Returns the slot of a tag, or the empty slot for the tag.
    fn slot(&self, tag: &Tag) -> usize {
        let mut slot = usize::from(u16::from_be_bytes([tag[0], tag[1]])) % SLOTS;
        while let place @ 1.. = self.slots[slot]
            && self.tags[usize::from(place) - 1].0 != *tag
        {
            slot = (slot + 1) % SLOTS;
        }
        slot
    }

    fn find(&mut self, tag: &Tag) -> Option<&mut bool> {
        let place = usize::from(self.slots[self.slot(tag)]);
        place.checked_sub(1).map(|place| &mut self.tags[place].1)
    }

    fn insert(&mut self, tag: Tag) {
        let slot = self.slot(&tag);
        self.tags.push((tag, false));
        self.slots[slot] = u16::try_from(self.tags.len()).expect("at most 300");
    }
}

/// Tags of a channel.
#[derive(Clone, Debug)]
pub(crate) struct Tags {
    newer: Generation,
    older: Generation,
}

impl Tags {
    pub(crate) fn new() -> Self {
        Self { newer: Generation::new(), older: Generation::new() }
    }

    /// Bytes of memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + 2 * GENERATION * size_of::<(Tag, bool)>()
    }

    /// Opens a tag, unless the tag is known.
    pub(crate) fn open(&mut self, tag: Tag) {
        if self.newer.find(&tag).is_some() || self.older.find(&tag).is_some() {
            return;
        }
        if self.newer.tags.len() == GENERATION {
            core::mem::swap(&mut self.newer, &mut self.older);
            self.newer.tags.clear();
            self.newer.slots.fill(0);
        }
        self.newer.insert(tag);
    }

    /// Returns the state of a packet's tag, and marks an open tag as seen.
    pub(crate) fn see(&mut self, tag: &Tag) -> TagState {
        let found = self.newer.find(tag).or_else(|| self.older.find(tag));
        match found {
            None => TagState::Unlisted,
            Some(is_seen) if *is_seen => TagState::Seen,
            Some(is_seen) => {
                *is_seen = true;
                TagState::Open
            }
        }
    }
}
