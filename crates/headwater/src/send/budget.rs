//! Storage of a session's repair symbols, chosen so that coding stays within a memory limit.

use std::collections::BTreeSet;
use std::path::PathBuf;

use headwater_fec::{Order, Partition, PlanBytes, Scheme};
use headwater_proto::Size;
use headwater_proto::delivery::{PlannedObject, SessionPlan};

use super::error::SendError;
use super::layout::{Layout, StoredBlock};
use super::options::{SendEnd, SendOptions};
use super::repair_store::check_space;

/// Default memory limit for coding.
pub(super) const MEMORY_LIMIT_DEFAULT: u64 = 256 << 20;
/// Maximum number of blocks whose repair symbols are written together: enough for runs of 11 kB, few enough
/// for a short job.
const GATHER_MAX: u64 = 8;
/// Bytes for each encoding symbol with LDPC: of the matrix while a thread encodes the block, and of the
/// sending order of each block length.
const MATRIX_BYTES: u64 = 64;
const ORDER_BYTES: u64 = 4;

/// Storage of a session's repair symbols.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RepairPlace {
    /// The session sends no repair symbols.
    Nowhere,
    /// In memory, as encoders that make the symbols: an unlimited number if the code is rateless.
    Memory {
        /// Bytes of the encoders.
        bytes: u64,
    },
    /// In a file without a name: as many symbols as source symbols, in window order 47 % of that number,
    /// sent in turns with the source symbols.
    Disk {
        /// Length of the file.
        bytes: u64,
        /// Folder of the file.
        folder: PathBuf,
    },
}

/// Plan for coding a session's blocks within the memory limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Budget {
    pub(super) place: RepairPlace,
    /// Number of encoding threads, at least 1 if anything is encoded.
    pub(super) threads: usize,
    /// Number of blocks that a thread encodes before a write to the store.
    pub(super) gather: usize,
}

impl Budget {
    /// Plans the coding with at most `workers` threads.
    ///
    /// # Errors
    /// [`SendError::Memory`] if no block can be encoded within the limit, and errors of [`check_space`].
    pub(super) fn new(plan: &SessionPlan, options: &SendOptions, workers: usize) -> Result<Self, SendError> {
        let is_single = matches!(options.end, SendEnd::Passes(0 | 1));
        // A single pass in spread order sends each source symbol once and nothing else.
        let has_repair = plan.order() == Order::Window || !is_single;
        if options.scheme == Scheme::NoCode || !has_repair || plan.symbols() == 0 {
            return Ok(Self { place: RepairPlace::Nowhere, threads: 0, gather: 0 });
        }
        let needs = Needs::of(plan, options.scheme);
        let limit = options.memory_limit.unwrap_or(MEMORY_LIMIT_DEFAULT);
        if let Some(in_memory) = needs.in_memory(limit, workers as u64) {
            return Ok(in_memory);
        }
        let folder = options.temporary_folder.clone().unwrap_or_else(std::env::temp_dir);
        Self::on_disk(plan, folder, needs.on_disk(limit, workers as u64)?)
    }
}

/// Options that the coding of the parts of an input depends on.
#[derive(Clone, Debug)]
pub(super) struct PartCoding {
    scheme: Scheme,
    memory_limit: u64,
    folder: PathBuf,
}

impl PartCoding {
    pub(super) fn of(options: &SendOptions, folder: PathBuf) -> Self {
        let memory_limit = options.memory_limit.unwrap_or(MEMORY_LIMIT_DEFAULT);
        Self { scheme: options.scheme, memory_limit, folder }
    }
}

impl Budget {
    /// Plans the coding of a part of an input. Encoders of all parts take up to half of the memory, of which
    /// `used` bytes are taken; repair symbols of further parts go to disk and are coded in the other half.
    ///
    /// # Errors
    /// As [`Budget::new`].
    pub(super) fn of_part(
        plan: &SessionPlan,
        coding: &PartCoding,
        workers: usize,
        used: u64,
    ) -> Result<Self, SendError> {
        let half = coding.memory_limit / 2;
        if coding.scheme == Scheme::NoCode || plan.symbols() == 0 {
            return Ok(Self { place: RepairPlace::Nowhere, threads: 0, gather: 0 });
        }
        let needs = Needs::of(plan, coding.scheme);
        if let Some(in_memory) = needs.in_memory(half.saturating_sub(used), workers as u64) {
            return Ok(in_memory);
        }
        Self::on_disk(plan, coding.folder.clone(), needs.on_disk(half, workers as u64)?)
    }

    fn on_disk(
        plan: &SessionPlan,
        folder: PathBuf,
        (threads, gather): (usize, usize),
    ) -> Result<Self, SendError> {
        let bytes = store_layout(plan, 1).bytes();
        check_space(&folder, bytes)?;
        Ok(Self { place: RepairPlace::Disk { bytes, folder }, threads, gather })
    }
}

/// Returns the layout of a session's repair symbols: as many as source symbols if the code has enough (n =
/// 2k), in window order the symbols of the distinct passes (n = 1.47 k).
pub(super) fn store_layout(plan: &SessionPlan, gather: usize) -> Layout {
    let objects = plan.objects();
    let blocks = |object: &PlannedObject| {
        let (partition, codec) = (object.partition, object.codec.clone());
        (0..partition.blocks()).map(move |sbn| {
            let symbols = partition.block(sbn).expect("below the number of blocks").symbols;
            let repairs_max = codec.encoding_symbols(symbols).saturating_sub(symbols);
            StoredBlock { symbols, repairs_max }
        })
    };
    let blocks: Vec<StoredBlock> = objects.iter().flat_map(blocks).collect();
    let symbol_size = objects.first().map_or(0, |object| object.partition.symbol_size());
    Layout::new(&blocks, symbol_size, gather, plan.order())
}

/// Memory for coding, in bytes.
#[derive(Clone, Copy, Debug)]
struct Needs {
    /// Longest block with what encoding takes beside it, at least 1.
    block: u64,
    /// Encoder of the longest block.
    encoder: u64,
    /// Encoders of all blocks.
    encoders: u64,
    /// Memory shared by all threads.
    shared: u64,
    /// Additional memory while the shared part is made, if the shared part is complete before the first
    /// encoder.
    making: u64,
}

impl Needs {
    fn of(plan: &SessionPlan, scheme: Scheme) -> Self {
        let is_ldpc = matches!(scheme, Scheme::LdpcStaircase | Scheme::LdpcTriangle);
        let mut needs = Self { block: 1, encoder: 0, encoders: 0, shared: 0, making: 0 };
        let mut lengths = BTreeSet::new();
        for object in plan.objects() {
            let symbol_size = u64::from(object.partition.symbol_size());
            for (symbols, blocks) in
                lengths_of(&object.partition).into_iter().filter(|(_, blocks)| *blocks > 0)
            {
                if lengths.insert(symbols) && is_ldpc {
                    needs.shared += ORDER_BYTES * u64::from(object.codec.encoding_symbols(symbols));
                }
                let encoder = object.codec.encoder_bytes(symbols);
                let encoded = u64::from(object.codec.encoding_symbols(symbols));
                let matrix = if is_ldpc { MATRIX_BYTES * encoded } else { 0 };
                let making = object.codec.encoding_bytes(symbols) + matrix;
                needs.block = needs.block.max(u64::from(symbols) * symbol_size + making);
                needs.encoder = needs.encoder.max(encoder);
                needs.encoders = needs.encoders.saturating_add(blocks * encoder);
            }
        }
        if scheme == Scheme::RaptorQ {
            let plans = PlanBytes::of(lengths);
            let (before, beside) = if plans.is_one { (plans.making, 0) } else { (0, plans.making) };
            (needs.making, needs.shared) = (before, plans.kept + beside);
        }
        needs
    }

    /// Returns a plan with all encoders in memory, if they fit next to the blocks being encoded.
    fn in_memory(&self, limit: u64, workers: u64) -> Option<Budget> {
        let left = limit.checked_sub(self.shared)?.checked_sub(self.encoders.max(self.making))?;
        let threads = (left / self.block).min(workers);
        let budget =
            |threads| Budget { place: RepairPlace::Memory { bytes: self.encoders }, threads, gather: 1 };
        usize::try_from(threads).ok().filter(|threads| *threads > 0).map(budget)
    }

    /// Returns the number of threads, and the number of blocks that each thread may gather.
    fn on_disk(&self, limit: u64, workers: u64) -> Result<(usize, usize), SendError> {
        // While the single plan for all blocks is made, no thread has an encoder.
        let encoder = self.encoder.max(self.making);
        let left = limit.saturating_sub(self.shared);
        let least = encoder.saturating_add(self.block);
        let threads = (left / least).min(workers);
        if threads == 0 {
            let needed = Size(self.shared.saturating_add(least));
            return Err(SendError::Memory { needed, limit: Size(limit) });
        }
        let gather = ((left / threads - encoder) / self.block).min(GATHER_MAX);
        let small = |value| usize::try_from(value).expect("bounded by constants");
        Ok((small(threads), small(gather)))
    }
}

/// Returns the lengths of an object's blocks in symbols, at most two lengths, and the number of blocks of
/// each length.
fn lengths_of(partition: &Partition) -> [(u32, u64); 2] {
    let last = partition.blocks().checked_sub(1).and_then(|sbn| partition.block(sbn));
    let short = last.map_or(0, |block| block.symbols);
    let long = partition.symbols() - u64::from(short) * u64::from(partition.blocks());
    [(short + u32::from(long > 0), long), (short, u64::from(partition.blocks()) - long)]
}

#[cfg(test)]
mod tests {
    use headwater_proto::delivery::{FileToSend, PlanConfig, RelativePath};

    use super::*;

    const MIB: u64 = 1 << 20;

    fn plan(bytes: u64, scheme: Scheme) -> SessionPlan {
        let file = FileToSend { path: RelativePath::new("file").unwrap(), bytes, mode: None, modified: None };
        let order = Order::Spread { rate: 50_000_000 };
        SessionPlan::new(vec![file], PlanConfig { scheme, symbol_size: 1_408, order }).unwrap()
    }

    fn needs(bytes: u64) -> Needs {
        Needs::of(&plan(bytes, Scheme::RaptorQ), Scheme::RaptorQ)
    }

    /// What coding takes at its peak, as the comments at the encoders and the writers of a store say.
    fn peak(needs: &Needs, threads: usize, gather: usize) -> u64 {
        needs.shared + threads as u64 * (needs.encoder.max(needs.making) + gather as u64 * needs.block)
    }

    #[test]
    fn what_fits_stays_in_memory_and_the_rest_goes_to_disk() {
        let limit = MEMORY_LIMIT_DEFAULT;
        let small = needs(90_000_000).in_memory(limit, 2).unwrap();
        assert_eq!(
            (small.threads, small.place),
            (2, RepairPlace::Memory { bytes: needs(90_000_000).encoders })
        );
        assert_eq!(needs(260_000_000).in_memory(limit, 2), None);
        // Beside the last encoders there is room for one block, not for two.
        let tight = needs(100_000_000);
        let least = tight.shared + tight.encoders + tight.block;
        assert_eq!(tight.in_memory(least, 2).unwrap().threads, 1);
        assert_eq!(tight.in_memory(least - 1, 2), None);
    }

    /// The longest file of the M2C paper's tables, at the rate of their links: as few blocks as the simulator
    /// has.
    #[test]
    fn the_papers_largest_file_is_coded_in_long_blocks() {
        let file = FileToSend {
            path: RelativePath::new("file").unwrap(),
            bytes: 103_740_000,
            mode: None,
            modified: None,
        };
        let config = PlanConfig {
            scheme: Scheme::RaptorQ,
            symbol_size: 1_448,
            order: Order::Spread { rate: 4_000_000 },
        };
        let plan = SessionPlan::new(vec![file], config).unwrap();
        let needs = Needs::of(&plan, Scheme::RaptorQ);
        assert_eq!(plan.objects()[0].partition.blocks(), 5);
        assert!(needs.in_memory(MEMORY_LIMIT_DEFAULT, 2).is_some(), "{needs:?}");
    }

    /// Neither has a plan of its own: an empty file, and blocks that differ by one symbol.
    #[test]
    fn one_plan_serves_a_file_and_empty_ones() {
        let file = |name, bytes| FileToSend {
            path: RelativePath::new(name).unwrap(),
            bytes,
            mode: None,
            modified: None,
        };
        let order = Order::Spread { rate: 4_000_000 };
        let config = PlanConfig { scheme: Scheme::RaptorQ, symbol_size: 1_448, order };
        let plan = SessionPlan::new(vec![file("a", 103_740_000), file("b", 0)], config).unwrap();
        let needs = Needs::of(&plan, Scheme::RaptorQ);
        assert!(needs.making > 0 && needs.in_memory(MEMORY_LIMIT_DEFAULT, 2).is_some(), "{needs:?}");
    }

    /// Short blocks have 27 intermediate symbols: they take as much memory as much longer ones.
    #[test]
    fn many_short_files_take_more_than_their_length() {
        let files = (0..10_000).map(|name| FileToSend {
            path: RelativePath::new(&format!("{name}")).unwrap(),
            bytes: 100,
            mode: None,
            modified: None,
        });
        let order = Order::Spread { rate: 50_000_000 };
        let config = PlanConfig { scheme: Scheme::RaptorQ, symbol_size: 1_408, order };
        let plan = SessionPlan::new(files.collect(), config).unwrap();
        let needs = Needs::of(&plan, Scheme::RaptorQ);
        assert!(needs.encoders > 10_000 * 20 * 1_408, "{needs:?}");
        assert_eq!(needs.in_memory(MEMORY_LIMIT_DEFAULT, 2), None);
    }

    #[test]
    fn a_store_is_written_within_the_limit_however_long_the_content() {
        for bytes in [130 << 20, 4_000_000_000, 99_000_000_000, 1_000_000_000_000] {
            let needs = needs(bytes);
            for workers in [1, 2, 4] {
                let (threads, gather) = needs.on_disk(MEMORY_LIMIT_DEFAULT, workers).unwrap();
                assert!(threads >= 1 && gather >= 1 && threads as u64 <= workers);
                let peak = peak(&needs, threads, gather);
                assert!(peak <= MEMORY_LIMIT_DEFAULT, "{bytes} bytes, {threads} x {gather}: {peak}");
            }
        }
        assert_eq!(needs(4_000_000_000).on_disk(MEMORY_LIMIT_DEFAULT, 2).unwrap(), (2, 8));
    }

    /// The paper's largest file is one block, encoded in memory; longer content has its repair symbols on
    /// disk, and blocks that fit the limit.
    #[test]
    fn ldpc_is_encoded_within_the_limit() {
        let limit = MEMORY_LIMIT_DEFAULT;
        for scheme in [Scheme::LdpcStaircase, Scheme::LdpcTriangle] {
            let one = Needs::of(&plan(103_740_000, scheme), scheme);
            assert_eq!(one.in_memory(limit, 2).unwrap().threads, 1);
            let many = Needs::of(&plan(4_000_000_000, scheme), scheme);
            assert_eq!(many.in_memory(limit, 2), None);
            let (threads, gather) = many.on_disk(limit, 2).unwrap();
            assert_eq!((threads, gather), (1, 1));
            assert!(peak(&many, threads, gather) <= limit);
        }
    }

    #[test]
    fn a_limit_below_a_single_block_is_refused_with_what_is_needed() {
        let needs = needs(4_000_000_000);
        let Err(SendError::Memory { needed, limit }) = needs.on_disk(4 * MIB, 2) else { panic!() };
        assert_eq!(limit.0, 4 * MIB);
        assert_eq!(needs.on_disk(needed.0, 2).unwrap(), (1, 1));
    }

    #[test]
    fn a_store_has_as_many_repair_symbols_as_the_code_gives_up_to_n_of_2k() {
        let bytes = |scheme| store_layout(&plan(1_408 * 20_000, scheme), 1).bytes() / 1_408;
        assert_eq!([Scheme::RaptorQ, Scheme::ReedSolomon, Scheme::NoCode].map(bytes), [20_000, 20_000, 0]);
    }
}
