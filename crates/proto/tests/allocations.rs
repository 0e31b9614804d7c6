//! The hot paths allocate nothing per packet, by an allocator that counts: source symbols, from a sender to a receiver
//! whose content takes no memory.

#![expect(unsafe_code, reason = "an allocator that counts calls that of the system")]
#![expect(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use headwater_fec::{Order, Scheme};
use headwater_proto::delivery::{
    BlockJob, BlockVerdict, FileIndex, FileSpec, FileToSend, HeldBlock, HeldFile, ObjectIndex, ObjectSpec,
    PlanConfig, Receiver, ReceiverConfig, RelativePath, Sender, SenderConfig, SessionPlan, Source,
    SourceError, Store, StoreError, StoreReport, StoredRepair,
};
use headwater_proto::{
    ChannelId, DATAGRAM_BYTES_MAX, Datagram, Ecn, Input, Instant, Machine, Output, Rate, fixed,
};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: every call goes to the system's allocator as it came. What grows is counted by the default `realloc`.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer came from `alloc` with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Content that is all zeros.
struct Zeros;

impl Source for Zeros {
    fn read_symbol(&mut self, _: usize, _: u32, _: u32, symbol: &mut [u8]) -> Result<(), SourceError> {
        symbol.fill(0);
        Ok(())
    }
}

/// Counts symbols and forgets them.
#[derive(Default)]
struct Counter {
    symbols: u64,
}

impl Store for Counter {
    fn create_file(&mut self, _: FileIndex, _: &FileSpec) -> Result<HeldFile, StoreError> {
        Ok(HeldFile::default())
    }

    fn create_object(&mut self, _: ObjectIndex, _: &ObjectSpec) -> Vec<HeldBlock> {
        Vec::new()
    }

    fn write_source(&mut self, _: ObjectIndex, _: u32, _: u32, _: &[u8]) -> Result<(), StoreError> {
        self.symbols += 1;
        Ok(())
    }

    fn write_repair(&mut self, _: ObjectIndex, _: u32, _: StoredRepair, _: &[u8]) -> Result<(), StoreError> {
        unreachable!("a first pass has source symbols only")
    }

    fn finish_block(&mut self, _: BlockJob) {}

    fn judge_block(&mut self, _: ObjectIndex, _: u32, _: BlockVerdict) -> Result<(), StoreError> {
        Ok(())
    }

    fn finish_file(&mut self, _: FileIndex) {}

    fn discard_file(&mut self, _: FileIndex) -> Result<(), StoreError> {
        Ok(())
    }

    fn poll_report(&mut self) -> Option<StoreReport> {
        None
    }
}

/// Both ends, and what each has allocated.
struct Pair {
    sender: Sender<fixed::Sender, Zeros>,
    receiver: Receiver<fixed::Receiver, Counter>,
    buffer: Vec<u8>,
    sender_allocations: u64,
    receiver_allocations: u64,
}

impl Pair {
    /// A file of so many symbols in several blocks, sent at a rate at which it takes 2 s: the FDT comes again on the way.
    fn new(scheme: Scheme, symbols: u64) -> Self {
        let order = Order::Spread { rate: 10_000_000_000 };
        let config = PlanConfig { scheme, symbol_size: 1408, order };
        let file = FileToSend { path: RelativePath::new("file").unwrap(), bytes: symbols * 1408, mode: None };
        let plan = SessionPlan::new(vec![file], config).unwrap();
        let digests: Vec<_> =
            plan.objects().iter().map(|object| vec![[0; 32]; object.partition.blocks() as usize]).collect();
        let control = fixed::Sender::new(Rate::from_bits(symbols * 1424 * 4).unwrap(), Instant::ZERO);
        Self {
            sender: Sender::new(SenderConfig::new(7), &plan, &digests, control, Zeros).unwrap(),
            receiver: Receiver::new(
                ReceiverConfig::default(),
                fixed::Receiver::new(),
                Counter::default(),
                Instant::ZERO,
            ),
            buffer: vec![0; DATAGRAM_BYTES_MAX],
            sender_allocations: 0,
            receiver_allocations: 0,
        }
    }

    /// Passes packets on until the receiver holds so many symbols.
    fn run_to(&mut self, symbols: u64) {
        while self.receiver.store().symbols < symbols {
            let now = self.sender.poll_timeout().unwrap();
            let before = allocations();
            self.sender.handle(now, Input::Timeout);
            let output = self.sender.poll_output(now, &mut self.buffer);
            self.sender_allocations += allocations() - before;
            let Some(Output::Transmit(transmit)) = output else { continue };
            let datagram = Datagram {
                source: "192.0.2.1:7".parse().unwrap(),
                channel: Some(ChannelId::BASE),
                ecn: Ecn::NotCapable,
                payload: &self.buffer[..transmit.bytes],
            };
            let before = allocations();
            self.receiver.handle(now, Input::Datagram(datagram));
            while self.receiver.poll_output(now, &mut []).is_some() {}
            let _next = self.receiver.poll_timeout();
            self.receiver_allocations += allocations() - before;
        }
    }
}

fn allocations() -> u64 {
    ALLOCATIONS.with(Cell::get)
}

/// Blocks are begun, and the FDT is read, in the first tenth; blocks end in the last one.
#[test]
fn source_symbols_pass_without_an_allocation() {
    for scheme in [Scheme::RaptorQ, Scheme::NoCode] {
        let symbols = 20_000;
        let mut pair = Pair::new(scheme, symbols);
        pair.run_to(symbols / 10);
        assert!(pair.sender_allocations + pair.receiver_allocations > 0, "what is counted is counted");
        (pair.sender_allocations, pair.receiver_allocations) = (0, 0);
        let fdt_packets = pair.receiver.stats().fdt_packets;
        pair.run_to(symbols * 9 / 10);
        assert!(pair.receiver.stats().fdt_packets > fdt_packets, "the FDT came again");
        assert_eq!((pair.sender_allocations, pair.receiver_allocations), (0, 0), "{scheme:?}");
    }
}
