use std::collections::VecDeque;

use headwater_wire::fdt::Instance;
use headwater_wire::{PayloadId, alc};

use super::assembly::{Assembly, Progress};

/// Maximum number of FDT instances reassembled at the same time.
const ASSEMBLIES_MAX: usize = 2;
/// Accepted versions of FLUTE: RFC 3926 and RFC 6726.
const VERSIONS: core::ops::RangeInclusive<u8> = 1..=2;
/// Maximum number of recent FDT instances remembered.
const INSTANCES_MAX: usize = 16;

/// Reassembly of the FDT at a receiver. Memory: two instances in progress.
#[derive(Debug, Default)]
pub(crate) struct Hearing {
    assemblies: VecDeque<Assembly>,
    known: VecDeque<u32>,
    last: Option<u32>,
}

/// Result of a packet of the FDT.
pub(crate) enum Heard {
    /// The packet brought nothing new.
    Nothing,
    /// The packet brought a new part of an instance.
    Part,
    /// The packet completed an instance.
    Whole { instance_id: u32, instance: Box<Instance>, xml: Vec<u8> },
    /// The packet or the instance cannot be read.
    Bad,
}

impl Hearing {
    /// Returns the instance of the last packet.
    pub(crate) fn last(&self) -> Option<u32> {
        self.last
    }

    /// Takes a packet of TOI 0.
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
                // An unreadable instance is not remembered: a corrupt symbol may have spoiled the instance,
                // which will be sent again.
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

    /// Returns the index of an instance's assembly. A new assembly replaces the oldest if there are too many.
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
