//! Receivers that stop half-way, and others that go on with what they left.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[expect(dead_code, reason = "the driver serves other tests too")]
mod pair;

use headwater_fec::{Order, Scheme};
use headwater_proto::delivery::{
    DeliveryReceiver, DeliveryReceiverConfig, DeliverySender, DeliverySenderConfig, FileToSend, MemorySource,
    MemoryStore, PlanConfig, ReceiverEvent, ReceiverStats, RelativePath, SessionEvent, SessionPlan, Start,
    Store,
};
use headwater_proto::{Duration, Instant, Rate, Seed, fixed};
use headwater_wire::fdt;
use pair::{Link, Pair, content, sender};
use rand::RngExt;

/// A second, after which the FDT comes again, brings 500 symbols.
const RATE: Rate = Rate::from_kilobits(4_000);
const LIMIT: Instant = Instant::from_nanos(3_600_000_000_000);
const SYMBOL_SIZE: u16 = 1_000;

fn pair(contents: &[Vec<u8>], scheme: Scheme, symbol_size: u16, order: Order, loss: f64) -> Pair {
    let plan = PlanConfig { scheme, symbol_size, order };
    pair_of(contents, plan, DeliverySenderConfig::new(1), loss)
}

fn pair_of(contents: &[Vec<u8>], plan: PlanConfig, config: DeliverySenderConfig, loss: f64) -> Pair {
    let link = Link { loss, ..Link::default() };
    Pair::new(Seed(3), sender(contents, plan, config, RATE), &[link])
}

/// A sender of one sparse file that leaves its holes out.
fn pair_of_sparse(contents: &[Vec<u8>], loss: f64) -> Pair {
    let file = FileToSend {
        path: RelativePath::new("dir/file0").unwrap(),
        bytes: contents[0].len() as u64,
        mode: Some(0o644),
        modified: None,
    };
    let plan = PlanConfig { scheme: Scheme::RaptorQ, symbol_size: SYMBOL_SIZE, order: spread() };
    let plan = SessionPlan::new(vec![file], plan).unwrap().with_sparse([0].into());
    let source = MemorySource::new(&plan, &[&contents[0]]).with_holes();
    let (digests, control) = (source.digests(), fixed::FixedSender::new(RATE, Instant::ZERO));
    let sender = DeliverySender::new(DeliverySenderConfig::new(1), &plan, &digests, control, source).unwrap();
    Pair::new(Seed(3), sender, &[Link { loss, ..Link::default() }])
}

fn spread() -> Order {
    Order::Spread { rate: RATE.as_bits() }
}

/// Stops the receiver where it is; what it kept, and the symbols that it had needed.
fn stop(pair: &mut Pair) -> (MemoryStore, u64) {
    let fresh = DeliveryReceiver::new(
        DeliveryReceiverConfig::default(),
        fixed::FixedReceiver::new(),
        MemoryStore::new(0),
        pair.now,
    );
    let stopped = core::mem::replace(&mut pair.receivers[0].machine, fresh);
    let useful = stopped.stats().useful;
    (stopped.into_store().interrupted(), useful)
}

/// Starts a receiver on what another one left.
fn start(pair: &mut Pair, store: MemoryStore) {
    let end = &mut pair.receivers[0];
    end.machine = DeliveryReceiver::new(
        DeliveryReceiverConfig::default(),
        fixed::FixedReceiver::new(),
        store,
        pair.now,
    );
    (end.joined, end.started, end.ended_at) = (false, true, None);
    end.events.clear();
}

/// Runs until the FDT is known, and then for so long.
fn run_described(pair: &mut Pair, milliseconds: u64) {
    while pair.receivers[0].machine.files().next().is_none() {
        run_for(pair, 20);
    }
    run_for(pair, milliseconds);
}

/// Runs for so long, unless the receiver ends before.
fn run_for(pair: &mut Pair, milliseconds: u64) {
    let limit = pair.now + Duration::from_millis(milliseconds);
    pair.run(limit);
    if !pair.receivers[0].machine.is_ended() {
        pair.now = limit;
    }
}

/// Runs to the end, beginning anew where another session has come, as the driver does.
fn run_to_the_end(pair: &mut Pair) {
    pair.run(LIMIT);
    while matches!(
        pair.receivers[0].events.last(),
        Some(ReceiverEvent::Session(SessionEvent::Superseded { .. }))
    ) {
        let (kept, _) = stop(pair);
        start(pair, kept);
        pair.run(LIMIT);
    }
}

#[test]
fn a_receiver_stopped_many_times_receives_nothing_twice() {
    for scheme in [Scheme::RaptorQ, Scheme::ReedSolomon, Scheme::LdpcTriangle] {
        let contents = [content(1, 6_000_000), content(2, 0), content(3, 300_001), content(4, 12)];
        let mut pair = pair(&contents, scheme, SYMBOL_SIZE, spread(), 0.1);
        let (mut useful, mut resumed) = (0, 0);
        for pause in [3, 100, 1, 333] {
            run_described(&mut pair, pause);
            let (kept, got) = stop(&mut pair);
            useful += got;
            start(&mut pair, kept);
            run_described(&mut pair, 0);
            let now = pair.receivers[0].machine.stats().resumed;
            assert!(now >= resumed, "{scheme}: {now} symbols resumed, {resumed} the last time");
            resumed = now;
        }
        pair.run(LIMIT);
        pair.receivers[0].assert_received(&contents);
        useful += pair.receivers[0].machine.stats().useful;
        assert!(resumed > 500, "{scheme}: {resumed}");
        // 6000 + 301 + 1 symbols, and at most one more for a block that could not be decoded at once.
        // LDPC needs some more.
        let most = if scheme == Scheme::LdpcTriangle { 6_302 + 90 } else { 6_306 };
        assert!((6_302..=most).contains(&useful), "{scheme}: {useful}");
    }
}

#[test]
fn files_in_place_are_not_received_again() {
    let contents = [content(1, 3_000_000), content(2, 20_000)];
    let mut pair = pair(&contents, Scheme::RaptorQ, SYMBOL_SIZE, spread(), 0.1);
    let done = |pair: &Pair| pair.receivers[0].machine.store().finished().count();
    while done(&pair) == 0 {
        run_for(&mut pair, 1);
    }
    assert_eq!(done(&pair), 1);
    let (kept, _) = stop(&mut pair);
    start(&mut pair, kept);
    pair.run(LIMIT);
    pair.receivers[0].assert_received(&contents);
    let completed = |event: &&ReceiverEvent| matches!(event, ReceiverEvent::FileCompleted { .. });
    assert_eq!(pair.receivers[0].events.iter().filter(completed).count(), 2, "both are told to be there");
    assert!(pair.receivers[0].machine.stats().useful < 2_990);
}

#[test]
fn what_the_disk_lost_is_found_and_received_again() {
    let contents = [content(5, 3_000_000)];
    for milliseconds in [0, 1_000] {
        let mut pair = pair(&contents, Scheme::RaptorQ, SYMBOL_SIZE, spread(), 0.1);
        run_described(&mut pair, milliseconds);
        let (mut kept, _) = stop(&mut pair);
        (0..3_000_000).step_by(1_000).for_each(|symbol| kept.damage(symbol + 7));
        start(&mut pair, kept);
        pair.run(LIMIT);
        pair.receivers[0].assert_received(&contents);
        let stats = pair.receivers[0].machine.stats();
        assert!(stats.resumed > 0 && stats.blocks_discarded > 0, "{stats:?}");
    }
}

#[test]
fn another_content_or_coding_of_the_same_name_starts_anew() {
    let before = [content(6, 1_500_000)];
    let after = [content(7, 1_500_000)];
    for (contents, symbol_size) in [(&after, SYMBOL_SIZE), (&before, SYMBOL_SIZE + 8)] {
        let mut old = pair(&before, Scheme::RaptorQ, SYMBOL_SIZE, spread(), 0.0);
        run_described(&mut old, 0);
        let (kept, useful) = stop(&mut old);
        assert!(useful > 100);
        let mut new = pair(contents, Scheme::RaptorQ, symbol_size, spread(), 0.0);
        start(&mut new, kept);
        run_to_the_end(&mut new);
        new.receivers[0].assert_received(contents);
        assert_eq!(new.receivers[0].machine.stats().resumed, 0);
    }
}

#[test]
fn a_receiver_started_again_needs_no_fdt() {
    let contents = [content(8, 3_000_000), content(9, 10_000)];
    let mut pair = pair(&contents, Scheme::RaptorQ, SYMBOL_SIZE, spread(), 0.1);
    run_described(&mut pair, 100);
    let (kept, _) = stop(&mut pair);
    start(&mut pair, kept);
    while pair.receivers[0].machine.stats().packets < 40 {
        run_for(&mut pair, 1);
    }
    let machine = &pair.receivers[0].machine;
    let stats = machine.stats();
    assert_eq!((stats.fdt_packets, machine.files().count()), (0, 2));
    assert!(stats.useful > 30 && stats.resumed > 30, "{stats:?}");
    pair.run(LIMIT);
    pair.receivers[0].assert_received(&contents);
}

/// The same source and TSI, other files under the same TOIs.
#[test]
fn a_kept_fdt_of_another_session_is_found_out_and_leaves_no_wrong_bytes() {
    let (before, after) = (
        [content(10, 1_500_000), content(11, 500_000)],
        [content(12, 1_500_000), content(11, 500_000), content(13, 500)],
    );
    for (before, after) in [(&before[..], &after[..]), (&after[..], &before[..])] {
        let mut old = pair(before, Scheme::RaptorQ, SYMBOL_SIZE, spread(), 0.0);
        run_described(&mut old, 100);
        let (kept, _) = stop(&mut old);
        let mut new = pair(after, Scheme::RaptorQ, SYMBOL_SIZE, spread(), 0.0);
        run_described(&mut new, 300);
        start(&mut new, kept);
        new.run(LIMIT);
        let end = &new.receivers[0];
        assert!(end.machine.stats().useful > 30, "it took symbols for those of the old session");
        assert!(matches!(
            end.events.last(),
            Some(ReceiverEvent::Session(SessionEvent::Superseded { tsi: 1, .. }))
        ));
        run_to_the_end(&mut new);
        new.receivers[0].assert_received(after);
    }
}

/// Issue 23: a sender that was started again sent the symbols again that it had sent before.
#[test]
fn what_a_sender_sends_after_it_was_started_again_is_new() {
    let contents = [content(14, 9_000_000), content(15, 0), content(16, 300_001), content(17, 900)];
    let plan = PlanConfig { scheme: Scheme::RaptorQ, symbol_size: SYMBOL_SIZE, order: spread() };
    let session = |tsi: u32| {
        let start = Start::Drawn(Seed(u64::from(tsi) * 7));
        pair_of(&contents, plan, DeliverySenderConfig::new(tsi).with_start(start), 0.1)
    };
    let (mut kept, mut useful, mut beyond) = (MemoryStore::new(u64::MAX), 0, 0);
    for tsi in 1..=4 {
        let mut pair = session(tsi);
        start(&mut pair, kept);
        if tsi < 4 {
            run_described(&mut pair, 700);
        } else {
            pair.run(LIMIT);
            pair.receivers[0].assert_received(&contents);
        }
        let stats = pair.receivers[0].machine.stats();
        // The file of one symbol may be in place: it is resumed as a file.
        assert!(stats.resumed + 1 >= useful, "{stats:?}, {useful}");
        useful += stats.useful;
        beyond += stats.duplicates + stats.surplus;
        (kept, _) = stop(&mut pair);
    }
    assert!((9_302..=9_310).contains(&useful), "{useful}");
    assert!(beyond <= 93, "{beyond} symbols came twice or for nothing");
}

/// A code of a finite number of symbols goes on by the clock: a receiver gets what it would get of a sender
/// that is silent for a while, though each session is another one.
#[test]
fn a_finite_code_goes_round_by_the_clock() {
    let contents = [content(31, 6_000_000)];
    for scheme in [Scheme::ReedSolomon, Scheme::LdpcStaircase, Scheme::NoCode] {
        let plan = PlanConfig { scheme, symbol_size: SYMBOL_SIZE, order: spread() };
        // Any time of day: a second in which the cycle begins again is none of these.
        for hour in 1..4 {
            let mut clock = Duration::from_secs(3_600 * hour);
            let (mut kept, mut beyond) = (MemoryStore::new(u64::MAX), 0);
            for tsi in 1..=5 {
                let start_at = Start::ByClock { seed: Seed(u64::from(tsi)), clock, symbol_size: SYMBOL_SIZE };
                let config = DeliverySenderConfig::new(tsi).with_start(start_at);
                let mut pair = pair_of(&contents, plan, config, 0.0);
                start(&mut pair, kept);
                match tsi {
                    5 => pair.run(LIMIT),
                    _ => run_described(&mut pair, 1_000),
                }
                let stats = pair.receivers[0].machine.stats();
                beyond += stats.duplicates + stats.surplus;
                clock = clock + pair.now.since(Instant::ZERO) + Duration::from_millis(100);
                if tsi == 5 {
                    pair.receivers[0].assert_received(&contents);
                }
                (kept, _) = stop(&mut pair);
            }
            // Four sessions bring some 985 symbols each. Without a code, the symbols sent between two
            // sessions come after all of these again. Blocks of Reed-Solomon symbols are not whole all at
            // once.
            let most = if scheme == Scheme::NoCode { 4_200 } else { 120 };
            assert!(beyond <= most, "{scheme}: {beyond} of 6 000 symbols twice or for nothing");
        }
    }
}

/// Sessions that are killed at random instants, whatever they hold then: nothing that a block held is
/// received twice.
#[test]
fn any_instant_is_a_good_one_to_be_killed_at() {
    for (seed, scheme) in
        (0..4).zip([Scheme::RaptorQ, Scheme::ReedSolomon, Scheme::LdpcStaircase, Scheme::NoCode])
    {
        let contents = [content(18, 2_000_000), content(19, 70_000), content(20, 10)];
        let mut pair = pair(&contents, scheme, SYMBOL_SIZE, spread(), 0.05);
        let mut random = Seed(seed).stream("kills", 0);
        let mut held = 0;
        run_described(&mut pair, 1);
        for _ in 0..20 {
            run_for(&mut pair, random.random_range(1..100));
            if pair.receivers[0].machine.is_ended() {
                break;
            }
            let machine = &pair.receivers[0].machine;
            let (stats, is_described) = (machine.stats(), machine.files().count() == contents.len());
            let in_place: u64 = machine.files().filter(|file| file.is_done).map(|file| file.symbols).sum();
            if is_described {
                assert!(stats.resumed + in_place >= held, "{scheme}: {stats:?}, {held} before");
                held = stats.resumed + stats.useful;
            }
            let (kept, _) = stop(&mut pair);
            start(&mut pair, kept);
        }
        assert!(held > 100, "{scheme}: {held}");
        pair.run(LIMIT);
        pair.receivers[0].assert_received(&contents);
    }
}

/// Issue 23: a receiver that is killed misses packets while there is none. Of a code with a finite number of
/// symbols those cost it others that it has. A receiver that loses the same packets on the way is the
/// measure: the kill itself costs nothing.
#[test]
fn a_kill_costs_no_more_than_the_packets_missed() {
    // Most of the content that comes twice or for nothing: LDPC in one block needs any symbols, a block of
    // Reed-Solomon symbols of its own, and without a code the last symbol missing may be the last of a cycle.
    let schemes = [
        (Scheme::RaptorQ, 0.002),
        (Scheme::LdpcTriangle, 0.002),
        (Scheme::LdpcStaircase, 0.002),
        (Scheme::ReedSolomon, 0.08),
        (Scheme::NoCode, 1.0),
    ];
    for (seed, (scheme, most)) in (0..).zip(schemes) {
        let contents = [content(26, 5_000_000)];
        let plan = PlanConfig { scheme, symbol_size: SYMBOL_SIZE, order: spread() };
        let sender = sender(&contents, plan, DeliverySenderConfig::new(1), RATE);
        let mut pair = Pair::new(Seed(3), sender, &[Link::default(); 2]);
        let mut random = Seed(seed).stream("kills", 0);
        let mut beyond = 0;
        let of = |stats: ReceiverStats| stats.duplicates + stats.surplus;
        run_described(&mut pair, 1);
        for _ in 0..20 {
            run_for(&mut pair, random.random_range(100..600));
            beyond += of(pair.receivers[0].machine.stats());
            if pair.receivers[0].machine.is_ended() {
                break;
            }
            let (kept, _) = stop(&mut pair);
            start(&mut pair, kept);
            // What is under way reaches neither receiver, and what is sent for a while.
            pair.lose_in_flight();
            pair.receivers.iter_mut().for_each(|end| end.set_loss(1.0));
            run_for(&mut pair, random.random_range(20..200));
            pair.receivers.iter_mut().for_each(|end| end.set_loss(0.0));
        }
        pair.run(LIMIT);
        pair.receivers.iter().for_each(|end| end.assert_received(&contents));
        beyond += of(pair.receivers[0].machine.stats());
        let control = of(pair.receivers[1].machine.stats());
        let percent = |symbols: u64| symbols as f64 / 5_000.0;
        let (killed, control) = (percent(beyond), percent(control));
        assert!(
            (killed - control).abs() <= 0.01,
            "{scheme}: {killed} killed, {control} with the same losses"
        );
        assert!(control <= most, "{scheme}: {control}");
    }
}

#[test]
fn a_file_that_is_there_is_not_received_and_one_that_differs_is() {
    let contents = [content(21, 200_000), content(22, 0), content(23, 100_000)];
    let path = |index: usize| RelativePath::new(&format!("dir/file{index}")).unwrap();
    for (loss, differs) in [(0.0, false), (0.3, false), (0.0, true), (0.3, true)] {
        let mut present = contents[0].clone();
        present[199_999] ^= u8::from(differs);
        let mut store = MemoryStore::new(u64::MAX);
        store.put_present(path(0), present);
        store.put_present(path(1), Vec::new());
        let mut pair = pair(&contents, Scheme::RaptorQ, SYMBOL_SIZE, spread(), loss);
        start(&mut pair, store);
        pair.run(LIMIT);
        let end = &pair.receivers[0];
        end.assert_received(&contents);
        let present = |event: &ReceiverEvent| match event {
            ReceiverEvent::FileCompleted { is_present, .. } => Some(*is_present),
            _ => None,
        };
        let present = end.events.iter().filter_map(present).filter(|is_present| *is_present).count();
        assert_eq!(present, if differs { 1 } else { 2 });
        let symbols = if differs { 300 } else { 100 };
        let stats = end.machine.stats();
        // Up to two spare symbols are taken while a block is decoded.
        assert!((symbols..=symbols + 4).contains(&stats.useful), "{stats:?}");
    }
}

#[test]
fn a_receiver_that_has_all_takes_nothing_but_the_fdt() {
    let contents = [content(24, 200_000), content(25, 1)];
    let mut store = MemoryStore::new(u64::MAX);
    for (index, content) in contents.iter().enumerate() {
        store.put_present(RelativePath::new(&format!("dir/file{index}")).unwrap(), content.clone());
    }
    let mut pair = pair(&contents, Scheme::RaptorQ, SYMBOL_SIZE, spread(), 0.0);
    start(&mut pair, store);
    pair.run(LIMIT);
    pair.receivers[0].assert_received(&contents);
    assert_eq!(pair.receivers[0].machine.stats().useful, 0);
    assert!(pair.receivers[0].machine.is_ended());
}

#[test]
fn an_older_version_costs_its_changed_blocks() {
    let contents = [content(26, 30_000_000), content(27, 50_000)];
    let mut present = contents[0].clone();
    present[29_999_999] ^= 1;
    let mut store = MemoryStore::new(u64::MAX);
    store.put_present(RelativePath::new("dir/file0").unwrap(), present);
    let mut pair = pair(&contents, Scheme::RaptorQ, SYMBOL_SIZE, spread(), 0.05);
    start(&mut pair, store);
    pair.run(LIMIT);
    pair.receivers[0].assert_received(&contents);
    let stats = pair.receivers[0].machine.stats();
    let total = 30_000 + 50;
    assert!(stats.reused >= 20_000 && stats.reused < total, "{stats:?}");
    // Each symbol is in one counter: found on disk, or needed.
    assert!((total..=total + 8).contains(&(stats.reused + stats.useful)), "{stats:?}");
    assert_eq!(stats.accounted(), stats.packets, "{stats:?}");
}

#[test]
fn holes_are_neither_sent_nor_awaited() {
    let mut sparse = vec![0; 30_000_000];
    sparse[..1_000_000].copy_from_slice(&content(28, 1_000_000));
    for (contents, is_all_zero) in [([sparse], false), ([vec![0; 30_000_000]], true)] {
        let mut pair = pair_of_sparse(&contents, 0.05);
        start(&mut pair, MemoryStore::new(u64::MAX));
        pair.run(LIMIT);
        pair.receivers[0].assert_received(&contents);
        let stats = pair.receivers[0].machine.stats();
        assert!(is_all_zero || stats.reused >= 20_000, "{stats:?}");
        let sent = pair.sender.stats().symbols;
        assert!(sent < 15_000, "{sent} symbols, all zero: {is_all_zero}");
    }
}

/// The preface of a long FDT has the digest of a file without the digests of its blocks.
#[test]
fn holes_are_found_once_the_digests_follow_a_preface() {
    let mut sparse = vec![0; 30_000_000];
    sparse[..1_000_000].copy_from_slice(&content(29, 1_000_000));
    let contents = [sparse];
    let mut pair = pair_of_sparse(&contents, 0.0);
    start(&mut pair, MemoryStore::new(u64::MAX));
    run_described(&mut pair, 1);
    let kept = stop(&mut pair).0.kept_description().unwrap();
    let mut preface = fdt::Instance::parse(&kept.xml).unwrap();
    preface.complete = false;
    let entry = &mut preface.files[0].headwater;
    (entry.block_digests, entry.digests_follow) = (Vec::new(), true);
    assert!(entry.digest.is_some() && entry.is_sparse);
    let mut pair = pair_of_sparse(&contents, 0.0);
    start(&mut pair, MemoryStore::new(u64::MAX));
    let machine = &mut pair.receivers[0].machine;
    assert!(machine.put_description(Instant::ZERO, preface.to_xml().as_bytes()).unwrap());
    pair.run(LIMIT);
    pair.receivers[0].assert_received(&contents);
}

/// The preface of a long FDT has the digest of a file without the digests of its blocks. A file that is there
/// is not received in part until these arrive.
#[test]
fn a_file_that_is_there_is_not_received_between_a_preface_and_the_digests() {
    let contents = [content(30, 600_000)];
    for differs in [false, true] {
        let mut pair = pair(&contents, Scheme::ReedSolomon, SYMBOL_SIZE, spread(), 0.0);
        start(&mut pair, MemoryStore::new(u64::MAX));
        // The next round of the FDT is 700 ms away.
        run_described(&mut pair, 300);
        let kept = stop(&mut pair).0.kept_description().unwrap();
        let mut preface = fdt::Instance::parse(&kept.xml).unwrap();
        preface.complete = false;
        let entry = &mut preface.files[0].headwater;
        (entry.block_digests, entry.digests_follow) = (Vec::new(), true);
        let mut present = contents[0].clone();
        present[599_999] ^= u8::from(differs);
        let mut store = MemoryStore::new(u64::MAX);
        store.put_present(RelativePath::new("dir/file0").unwrap(), present);
        start(&mut pair, store);
        let now = pair.now;
        let machine = &mut pair.receivers[0].machine;
        assert!(machine.put_description(now, preface.to_xml().as_bytes()).unwrap());
        pair.run(LIMIT);
        let end = &pair.receivers[0];
        end.assert_received(&contents);
        let stats = end.machine.stats();
        assert!(stats.packets > 200, "content arrived before the digests: {stats:?}");
        assert_eq!(stats.accounted(), stats.packets, "{stats:?}");
        let symbols = if differs { 600 } else { 0 };
        assert!((symbols..=symbols + 4).contains(&(stats.useful + stats.reused)), "{stats:?}");
    }
}
