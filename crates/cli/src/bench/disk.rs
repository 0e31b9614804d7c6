//! `headwater bench disk`: writes of a receiver, beside a plain sequential write of the same bytes.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use headwater::bench::disk_store;
use headwater::net::Poller;
use headwater_fec::{Order, SYMBOL_SIZE_DEFAULT, Scheme};
use headwater_proto::delivery::{
    BlockJob, FileIndex, FileSpec, FileToSend, ObjectIndex, ObjectSpec, PlanConfig, PlannedObject,
    RelativePath, SessionPlan, Store, StoreReport,
};

use super::report::{BenchReport, size, speed};
use super::{ROUNDS, median_by};
use crate::args::MeasureArgs;
use crate::exit::{Exit, Failure, OrExit};

/// Bytes of one call of the plain write.
const CHUNK_BYTES: usize = 1 << 20;
/// Rate in bit/s for the choice of block sizes.
const RATE_BITS: u64 = 1_000_000_000;
/// Maximum time until a report.
const REPORT_TIME: Duration = Duration::from_secs(60);

/// Times of a round.
struct Round {
    plain: Duration,
    /// All symbols handed to the store.
    written: Duration,
    /// All blocks hashed.
    whole: Duration,
}

/// Measures the store and the plain write in turns, both into the page cache.
pub fn run(args: &MeasureArgs, report: &BenchReport) -> Result<(), Failure> {
    let parent = args.dir.clone().unwrap_or_else(|| ".".into());
    let folder = tempfile::Builder::new().prefix("headwater-bench-").tempdir_in(&parent);
    let folder =
        folder.or_exit(Exit::Disk, format!("cannot make a temporary folder in '{}'", parent.display()))?;
    let bytes = args.size.0;
    report.title(&format!("{} into '{}', to the page cache", size(bytes), parent.display()));
    let began = Instant::now();
    let mut rounds = Vec::new();
    while rounds.len() < ROUNDS || began.elapsed() < args.time {
        rounds.push(round(folder.path(), bytes)?);
    }
    let median = |time: fn(&Round) -> Duration| {
        let times = rounds.iter().map(|round| time(round).as_secs_f64()).collect();
        speed(bytes, median_by(times, |seconds| *seconds))
    };
    let plain = median(|round| round.plain);
    let bare = Some(("sequential write", plain));
    report.row("disk", "sequential write, 1 MiB at a time", plain, None);
    report.row("disk", "store, symbols in spread order", median(|round| round.written), bare);
    report.row("disk", "store, until every block is hashed", median(|round| round.whole), bare);
    Ok(())
}

fn round(folder: &Path, bytes: u64) -> Result<Round, Failure> {
    let plain = folder.join("plain");
    let began = Instant::now();
    write_plainly(&plain, bytes).or_exit(Exit::Disk, "cannot write a file")?;
    let plain_time = began.elapsed();
    std::fs::remove_file(&plain).or_exit(Exit::Disk, "cannot delete a file")?;
    let (written, whole) = write_symbols(&folder.join("store"), bytes)?;
    Ok(Round { plain: plain_time, written, whole })
}

fn write_plainly(path: &Path, bytes: u64) -> io::Result<()> {
    let mut file = File::create(path)?;
    let chunk = vec![7; CHUNK_BYTES];
    let mut left = bytes;
    while left > 0 {
        let length = usize::try_from(left).unwrap_or(usize::MAX).min(CHUNK_BYTES);
        file.write_all(&chunk[..length])?;
        left -= length as u64;
    }
    Ok(())
}

/// Returns the time until all symbols are passed to the store, and until all blocks are hashed.
fn write_symbols(folder: &Path, bytes: u64) -> Result<(Duration, Duration), Failure> {
    let path = RelativePath::new("content").expect("a plain name");
    let config = PlanConfig {
        scheme: Scheme::RaptorQ,
        symbol_size: SYMBOL_SIZE_DEFAULT,
        order: Order::Spread { rate: RATE_BITS },
    };
    let files = vec![FileToSend { path: path.clone(), bytes, mode: None, modified: None }];
    let plan = SessionPlan::new(files, config).or_exit(Exit::Usage, "cannot plan a file of this size")?;
    let mut poller = Poller::new().or_exit(Exit::Other, "cannot open an event descriptor")?;
    let mut store = disk_store(folder, poller.waker()).or_exit(Exit::Disk, "cannot open the store")?;
    let file = FileIndex(0);
    let failed = "cannot write to the store";
    store.create_file(file, &FileSpec::new(path, bytes)).or_exit(Exit::Disk, failed)?;
    let began = Instant::now();
    for (index, object) in plan.objects().iter().enumerate() {
        write_object(&mut store, ObjectIndex(index), object)?;
    }
    let written = began.elapsed();
    let blocks: u32 = plan.objects().iter().map(|object| object.partition.blocks()).sum();
    for _ in 0..blocks {
        await_block(&mut store, &mut poller)?;
    }
    Ok((written, began.elapsed()))
}

/// Writes the first symbol of every block, then the second symbols, and so on, in the order of the carousel.
fn write_object(store: &mut impl Store, index: ObjectIndex, object: &PlannedObject) -> Result<(), Failure> {
    let partition = object.partition;
    let codec = std::sync::Arc::clone(&object.codec);
    let offset = object.offset;
    let spec = ObjectSpec { file: FileIndex(0), offset, partition, codec, identity: None };
    let _nothing_held = store.create_object(index, &spec);
    let symbol = vec![7; usize::from(partition.symbol_size())];
    for esi in 0..partition.max_block_symbols() {
        for block in (0..partition.blocks()).filter_map(|sbn| partition.block(sbn)) {
            if esi < block.symbols {
                store
                    .write_source(index, block.sbn, esi, &symbol)
                    .or_exit(Exit::Disk, "cannot write a symbol")?;
            }
            if esi + 1 == block.symbols {
                let job = BlockJob { object: index, sbn: block.sbn, missing: vec![], repairs: 0 };
                store.finish_block(job);
            }
        }
    }
    Ok(())
}

fn await_block(store: &mut impl Store, poller: &mut Poller) -> Result<(), Failure> {
    let until = Instant::now() + REPORT_TIME;
    loop {
        match store.poll_report() {
            Some(StoreReport::BlockDone { .. }) => return Ok(()),
            Some(StoreReport::Failed(error)) => return Err(Failure::of(Exit::Disk, error)),
            Some(_) => {}
            None if Instant::now() >= until => {
                return Err(Failure::new(Exit::Disk, "the store did not finish a block in a minute"));
            }
            None => {
                poller.wait([], Some(until)).or_exit(Exit::Other, "cannot wait for the store")?;
            }
        }
    }
}
