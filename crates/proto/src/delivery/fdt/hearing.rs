use std::collections::VecDeque;

use headwater_wire::fdt::Instance;
use headwater_wire::{PayloadId, alc};

use super::assembly::{Assembly, Progress};

/// FDT instances put together at the same time.
const ASSEMBLIES_MAX: usize = 2;
/// Versions of FLUTE that are read: RFC 3926 and RFC 6726.
const VERSIONS: core::ops::RangeInclusive<u8> = 1..=2;
/// FDT instances remembered as known.
const INSTANCES_MAX: usize = 16;

/// The FDT as a receiver hears it. Memory: two instances being put together.
#[derive(Debug, Default)]
pub(crate) struct Hearing {
    assemblies: VecDeque<Assembly>,
    known: VecDeque<u32>,
    last: Option<u32>,
}

/// What a packet of the FDT brought.
pub(crate) enum Heard {
    /// Nothing new.
    Nothing,
    /// A part of an instance.
    Part,
    /// An instance is whole.
    Whole { instance_id: u32, instance: Box<Instance>, xml: Vec<u8> },
    /// Nothing that can be read.
    Bad,
}

impl Hearing {
    /// The instance of which a packet came last.
    pub(crate) fn last(&self) -> Option<u32> {
        self.last
    }

    /// A packet of TOI 0 came.
    pub(crate) fn hear(&mut self, header: &alc::Repr, id: PayloadId, payload: &[u8]) -> Heard {
        let known = header.extensions.fdt.filter(|fdt| VERSIONS.contains(&fdt.version));
        let (Some(extension), Some(_)) = (known, header.extensions.fti) else { return Heard::Bad };
        let instance_id = extension.instance_id;
        self.last = Some(instance_id);
        if self.known.contains(&instance_id) {
            return Heard::Nothing;
        }
        let Some(index) = self.assembly(instance_id, header) else { return Heard::Bad };
        match self.assemblies[index].put(id, payload) {
            Progress::Useless => Heard::Nothing,
            Progress::Needed => Heard::Part,
            Progress::Whole(xml) => {
                self.assemblies.remove(index);
                // Not remembered if it cannot be read: a corrupt symbol may have spoiled it, and it will come
                // again.
                let Ok(instance) = Instance::parse(&xml) else { return Heard::Bad };
                self.remember(instance_id);
                Heard::Whole { instance_id, instance: Box::new(instance), xml }
            }
            Progress::Broken => {
                self.assemblies.remove(index);
                Heard::Bad
            }
        }
    }

    /// The assembly of an instance, begun if there is none; the oldest one makes room.
    fn assembly(&mut self, instance_id: u32, header: &alc::Repr) -> Option<usize> {
        let fti = header.extensions.fti?;
        if let Some(index) = self.assemblies.iter().position(|one| one.is_of(instance_id, &fti)) {
            return Some(index);
        }
        let assembly = Assembly::new(instance_id, fti, header.extensions.content_encoding)?;
        if self.assemblies.len() == ASSEMBLIES_MAX {
            self.assemblies.pop_front();
        }
        self.assemblies.push_back(assembly);
        Some(self.assemblies.len() - 1)
    }

    fn remember(&mut self, instance_id: u32) {
        if self.known.len() == INSTANCES_MAX {
            self.known.pop_front();
        }
        self.known.push_back(instance_id);
    }
}
