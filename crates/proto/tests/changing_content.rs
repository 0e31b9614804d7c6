//! Content that is hashed while it is sent, and files that their sender withdraws.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[expect(dead_code, reason = "the driver serves other tests too")]
mod pair;

use std::collections::BTreeSet;

use headwater_fec::{Order, Scheme};
use headwater_proto::delivery::{
    DeliverySender, DeliverySenderConfig, Digest, End, FileToSend, MemorySource, PlanConfig, ReceiverEvent,
    RelativePath, SenderEvent, SessionPlan, Source, SourceError, Withdrawal,
};
use headwater_proto::{DATAGRAM_BYTES_MAX, Duration, Input, Instant, Machine, Output, Rate, Seed, fixed};
use headwater_wire::alc;
use pair::{FixedSender, Link, Pair, content};

const RATE: Rate = Rate::from_kilobits(8_000);
const LIMIT: Instant = Instant::from_nanos(600_000_000_000);
const SYMBOL_SIZE: u16 = 500;

/// A sender that knows the digests of the first `known` blocks of each object, and the digests of all.
fn sender(
    contents: &[Vec<u8>],
    scheme: Scheme,
    order: Order,
    config: DeliverySenderConfig,
    known: usize,
) -> (FixedSender, Vec<Vec<Digest>>) {
    let file = |(index, content): (usize, &Vec<u8>)| FileToSend {
        path: RelativePath::new(&format!("dir/file{index}")).unwrap(),
        bytes: content.len() as u64,
        mode: None,
        modified: None,
    };
    let config_of_plan = PlanConfig { scheme, symbol_size: SYMBOL_SIZE, order };
    let plan = SessionPlan::new(contents.iter().enumerate().map(file).collect(), config_of_plan).unwrap();
    let source = MemorySource::new(&plan, &contents.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let digests = source.digests();
    let first: Vec<Vec<Digest>> =
        digests.iter().map(|digests| digests[..known.min(digests.len())].to_vec()).collect();
    let control = fixed::FixedSender::new(RATE, Instant::ZERO);
    (DeliverySender::new(config, &plan, &first, control, source).unwrap(), digests)
}

fn spread() -> Order {
    Order::Spread { rate: RATE.as_bits() }
}

fn run_for(pair: &mut Pair, milliseconds: u64) {
    let limit = pair.now + Duration::from_millis(milliseconds);
    pair.run(limit);
    pair.now = pair.now.max(limit);
}

fn changed(file: usize) -> SourceError {
    SourceError::File { file, why: Withdrawal::Changed, message: "it changed".into() }
}

/// Reed-Solomon has blocks of 127 symbols: 500 000 bytes are 8 blocks.
#[test]
fn files_are_whole_once_their_digests_have_come() {
    let contents = [content(1, 500_000), content(2, 20_000), content(3, 0)];
    for (scheme, order) in [(Scheme::ReedSolomon, spread()), (Scheme::ReedSolomon, Order::Window)] {
        let (sender, digests) = sender(&contents, scheme, order, DeliverySenderConfig::new(1), 1);
        let late = Link { joins_at: Instant::ZERO + Duration::from_millis(2_500), ..Link::default() };
        let lossy = Link { loss: 0.1, corrupted: 0.01, ..Link::default() };
        let mut pair = Pair::new(Seed(5), sender, &[Link::default(), lossy, late]);
        // Everything has been sent several times, and nothing tells that it is right.
        run_for(&mut pair, 3_000);
        let is_done = |pair: &Pair, end: usize, file: usize| {
            pair.receivers[end].machine.files().nth(file).is_some_and(|file| file.is_done)
        };
        assert!((0..3).all(|end| !is_done(&pair, end, 0)), "{scheme}: whole without a digest");
        assert!(is_done(&pair, 0, 1), "{scheme}: a file of one block, whose digest was known");
        assert!(pair.receivers.iter().all(|end| end.ended_at.is_none()));
        // Block by block, as they are hashed.
        for digest in &digests[0][1..] {
            pair.sender.add_digests(0, &[*digest]);
            run_for(&mut pair, 300);
        }
        pair.run(LIMIT);
        for end in &pair.receivers {
            end.assert_received(&contents);
        }
        assert!(
            pair.receivers[1].machine.stats().blocks_discarded > 0,
            "{scheme}: what was corrupt was found"
        );
    }
}

#[test]
fn a_withdrawn_file_is_told_and_the_others_arrive() {
    let contents = [content(1, 200_000), content(2, 600_000), content(3, 1_000), content(4, 150_000)];
    for order in [spread(), Order::Window] {
        for scheme in [Scheme::RaptorQ, Scheme::ReedSolomon, Scheme::NoCode] {
            let (sender, _) = sender(&contents, scheme, order, DeliverySenderConfig::new(1), usize::MAX);
            let late = Link { joins_at: Instant::ZERO + Duration::from_millis(900), ..Link::default() };
            let mut pair = Pair::new(Seed(6), sender, &[Link { loss: 0.05, ..Link::default() }, late]);
            run_for(&mut pair, 300);
            pair.sender.withdraw(1, Withdrawal::Changed, changed(1));
            pair.sender.withdraw(1, Withdrawal::Changed, changed(1));
            pair.run(LIMIT);
            let told = |event: &&SenderEvent| matches!(event, SenderEvent::FileWithdrawn { file: 1, .. });
            assert_eq!(pair.sender_events.iter().filter(told).count(), 1);
            for end in &pair.receivers {
                let refused: Vec<_> = end
                    .events
                    .iter()
                    .filter_map(|event| match event {
                        ReceiverEvent::FileRefused { location, reason } => Some((location, reason)),
                        _ => None,
                    })
                    .collect();
                assert_eq!(refused.len(), 1, "{scheme}, {order:?}: {:?}", end.events);
                assert_eq!(refused[0].0, "dir/file1");
                assert!(refused[0].1.contains("changed while it was being sent"), "{}", refused[0].1);
                assert!(matches!(end.events.last(), Some(ReceiverEvent::SessionCompleted { refused: 1 })));
                let store = end.machine.store();
                let mut names: Vec<_> = store.finished().map(|(spec, _)| spec.path.as_str()).collect();
                names.sort_unstable();
                assert_eq!(names, ["dir/file0", "dir/file2", "dir/file3"]);
            }
        }
    }
}

/// Each source symbol of the files that are left once, and no repair symbol, which nobody encodes for a
/// single pass.
#[test]
fn a_single_pass_without_a_withdrawn_file_is_still_a_pass() {
    let contents = [content(1, 100_000), content(2, 300_000), content(3, 77_000), content(4, 100_000)];
    let config = DeliverySenderConfig::new(1).with_end(End::Passes(1));
    for at in [0, 50, 250, 500] {
        let (sender, _) = sender(&contents, Scheme::NoCode, spread(), config, usize::MAX);
        let mut pair = Pair::new(Seed(7), sender, &[Link::default()]);
        run_for(&mut pair, at);
        pair.sender.withdraw(1, Withdrawal::Unreadable, changed(1));
        pair.run(LIMIT);
        let end = &pair.receivers[0];
        let completed = |event: &&ReceiverEvent| matches!(event, ReceiverEvent::FileCompleted { .. });
        assert_eq!(end.events.iter().filter(completed).count(), 3, "withdrawn at {at} ms: {:?}", end.events);
        assert_eq!(end.machine.stats().duplicates, 0);
        assert!(pair.sender_events.contains(&SenderEvent::PassCompleted(1)));
    }
}

#[test]
fn a_session_without_files_left_ends() {
    let contents = [content(1, 100_000)];
    let (sender, _) = sender(&contents, Scheme::RaptorQ, spread(), DeliverySenderConfig::new(1), usize::MAX);
    let mut pair = Pair::new(Seed(8), sender, &[Link::default()]);
    run_for(&mut pair, 50);
    pair.sender.withdraw(0, Withdrawal::Unreadable, changed(0));
    pair.run(LIMIT);
    assert!(pair.sender_events.contains(&SenderEvent::SourceFailed(changed(0))));
    assert!(pair.sender.is_finished());
    let end = &pair.receivers[0];
    assert!(matches!(
        end.events.last(),
        Some(ReceiverEvent::SessionClosed | ReceiverEvent::SessionCompleted { .. })
    ));
}

/// A pass that is over before its content is hashed goes on with the description alone, until receivers can
/// verify it.
#[test]
fn passes_end_once_their_digests_are_told() {
    let contents = [content(1, 500_000), content(2, 20_000)];
    for scheme in [Scheme::NoCode, Scheme::ReedSolomon] {
        let config = DeliverySenderConfig::new(1).with_end(End::Passes(1));
        let (sender, digests) = sender(&contents, scheme, spread(), config, 0);
        let mut pair = Pair::new(Seed(9), sender, &[Link::default()]);
        run_for(&mut pair, 3_000);
        assert!(!pair.sender.is_finished(), "{scheme}");
        assert!(pair.receivers[0].ended_at.is_none(), "{scheme}");
        let symbols = pair.sender.stats().symbols;
        for (object, digests) in digests.iter().enumerate() {
            pair.sender.add_digests(object, digests);
        }
        pair.run(LIMIT);
        assert_eq!(pair.sender.stats().symbols, symbols, "{scheme}: a single pass");
        pair.receivers[0].assert_received(&contents);
    }
    // One that is closed tells what it knows.
    let (sender, digests) = sender(&contents, Scheme::ReedSolomon, spread(), DeliverySenderConfig::new(1), 0);
    let mut pair = Pair::new(Seed(9), sender, &[Link::default()]);
    run_for(&mut pair, 900);
    for (object, digests) in digests.iter().enumerate() {
        pair.sender.add_digests(object, digests);
    }
    pair.sender.close();
    pair.run(LIMIT);
    pair.receivers[0].assert_received(&contents);
}

#[test]
fn empty_files_beside_a_withdrawn_one_arrive() {
    let contents = [content(1, 0), content(2, 400_000)];
    for at in [10, 1_500] {
        let (sender, _) =
            sender(&contents, Scheme::RaptorQ, spread(), DeliverySenderConfig::new(1), usize::MAX);
        let late = Link { joins_at: Instant::ZERO + Duration::from_millis(at + 2_000), ..Link::default() };
        let mut pair = Pair::new(Seed(10), sender, &[late]);
        run_for(&mut pair, at);
        pair.sender.withdraw(1, Withdrawal::Changed, changed(1));
        pair.run(LIMIT);
        let events = &pair.receivers[0].events;
        assert!(matches!(events.last(), Some(ReceiverEvent::SessionCompleted { refused: 1 })), "{events:?}");
    }
}

/// Content of which one file cannot be read from some symbol on.
struct Failing {
    inner: MemorySource,
    object: usize,
    left: u32,
}

impl Source for Failing {
    fn read_symbol(
        &mut self,
        object: usize,
        sbn: u32,
        esi: u32,
        symbol: &mut [u8],
    ) -> Result<(), SourceError> {
        let is_lost = object == self.object && self.left == 0;
        self.left -= u32::from(object == self.object && self.left > 0);
        if is_lost { Err(changed(object)) } else { self.inner.read_symbol(object, sbn, esi, symbol) }
    }
}

#[test]
fn a_read_that_fails_withdraws_its_file_and_leaves_the_others_one_pass() {
    let contents = [content(1, 50_000), content(2, 100_000), content(3, 30_000)];
    let refs: Vec<&[u8]> = contents.iter().map(Vec::as_slice).collect();
    for order in [spread(), Order::Window] {
        for left in [0, 1, 7, 90] {
            let file = |(index, content): (usize, &Vec<u8>)| FileToSend {
                path: RelativePath::new(&format!("file{index}")).unwrap(),
                bytes: content.len() as u64,
                mode: None,
                modified: None,
            };
            let plan = PlanConfig { scheme: Scheme::NoCode, symbol_size: SYMBOL_SIZE, order };
            let plan = SessionPlan::new(contents.iter().enumerate().map(file).collect(), plan).unwrap();
            let inner = MemorySource::new(&plan, &refs);
            let digests = inner.digests();
            let source = Failing { inner, object: 1, left };
            let config = DeliverySenderConfig::new(1).with_end(End::Passes(1));
            let control = fixed::FixedSender::new(RATE, Instant::ZERO);
            let mut sender = DeliverySender::new(config, &plan, &digests, control, source).unwrap();
            let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
            let (mut sent, mut events) = (Vec::new(), Vec::new());
            while let Some(now) = sender.poll_timeout() {
                sender.handle(now, Input::Timeout);
                while let Some(output) = sender.poll_output(now, &mut buffer) {
                    match output {
                        Output::Transmit(transmit) => {
                            let (header, _) = alc::parse(&buffer[..transmit.bytes]).unwrap();
                            sent.extend(
                                header.toi.zip(header.payload_id).filter(|(toi, _)| ![0, 2].contains(toi)),
                            );
                        }
                        Output::Event(event) => events.push(event),
                        other => panic!("{other:?}"),
                    }
                }
            }
            let distinct: BTreeSet<_> = sent.iter().map(|(toi, id)| (*toi, id.sbn, id.esi)).collect();
            assert_eq!((sent.len(), distinct.len()), (160, 160), "{order:?}, {left}: each symbol once");
            assert!(events.contains(&SenderEvent::FileWithdrawn { file: 1, error: changed(1) }));
            assert!(events.contains(&SenderEvent::Finished));
        }
    }
}
