//! Whole sessions over lossy links in virtual time.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[expect(dead_code, reason = "the driver serves other tests too")]
mod pair;

use headwater_fec::{Order, Scheme};
use headwater_proto::delivery::{
    DeliveryReceiverConfig, DeliverySenderConfig, End, PlanConfig, ReceiverEvent, SenderEvent, SessionEvent,
};
use headwater_proto::{Duration, Instant, Rate, Seed};
use pair::{Link, Pair, content, sender};

const RATE: Rate = Rate::from_kilobits(20_000);
const LIMIT: Instant = Instant::from_nanos(3_600_000_000_000);

fn plan(scheme: Scheme, symbol_size: u16) -> PlanConfig {
    PlanConfig { scheme, symbol_size, order: Order::Spread { rate: RATE.as_bits() } }
}

fn seconds(seconds: f64) -> Instant {
    Instant::ZERO + Duration::from(core::time::Duration::from_secs_f64(seconds))
}

#[test]
fn every_code_carries_files_of_every_size_over_bad_links() {
    let links = [
        Link::default(),
        Link { loss: 0.05, ..Link::default() },
        Link { loss: 0.4, reordered: 0.1, duplicated: 0.05, ..Link::default() },
        Link { loss: 0.02, joins_at: seconds(0.3), ..Link::default() },
    ];
    let contents: Vec<Vec<u8>> =
        [0, 1, 255, 256, 257, 30_000, 100_001].into_iter().map(|bytes| content(1, bytes)).collect();
    for scheme in [Scheme::NoCode, Scheme::ReedSolomon, Scheme::RaptorQ] {
        for seed in 0..2 {
            let sender = sender(&contents, plan(scheme, 256), DeliverySenderConfig::new(7), RATE);
            let mut pair = Pair::new(Seed(seed), sender, &links);
            pair.run(LIMIT);
            pair.receivers.iter().for_each(|end| end.assert_received(&contents));
        }
    }
}

/// Issue: "Symbol overhead of RaptorQ under 0.1 %; duplicates 0 in rateless order at any late join."
#[test]
fn rateless_order_has_no_duplicates_and_next_to_no_overhead_at_any_late_join() {
    let contents = [content(2, 4_000_000), content(3, 900_000)];
    let plan = plan(Scheme::RaptorQ, 1_408);
    let symbols: u64 = contents.iter().map(|content| content.len().div_ceil(1_408) as u64).sum();
    let joins = [0.0, 0.3, 1.0, 1.9, 2.5, 7.7];
    let links: Vec<Link> = joins
        .iter()
        .flat_map(|at| [0.0, 0.05, 0.3].map(|loss| Link { loss, joins_at: seconds(*at), ..Link::default() }))
        .collect();
    let mut pair = Pair::new(Seed(5), sender(&contents, plan, DeliverySenderConfig::new(1), RATE), &links);
    pair.run(LIMIT);
    let mut useful = 0;
    for end in &pair.receivers {
        end.assert_received(&contents);
        let stats = end.machine.stats();
        assert_eq!(stats.duplicates, 0);
        assert_eq!(stats.dropped, Default::default());
        useful += stats.useful;
    }
    let minimum = symbols * links.len() as u64;
    assert!(useful >= minimum);
    assert!(useful - minimum <= minimum / 1_000, "{useful} symbols where {minimum} would do");
}

/// Excess reception, beyond the symbols needed, stays near the birthday bound sqrt(2 p ln B / K).
#[test]
fn what_arrives_beyond_need_is_a_few_percent() {
    let contents = [content(4, 20_000_000)];
    let links: Vec<Link> = (0..5).map(|_| Link { loss: 0.05, ..Link::default() }).collect();
    let mut pair = Pair::new(
        Seed(6),
        sender(&contents, plan(Scheme::RaptorQ, 1_408), DeliverySenderConfig::new(1), RATE),
        &links,
    );
    pair.run(LIMIT);
    let symbols = 20_000_000_u64.div_ceil(1_408);
    for end in &pair.receivers {
        end.assert_received(&contents);
        let stats = end.machine.stats();
        assert!(stats.packets <= symbols + symbols / 50, "{} packets for {symbols} symbols", stats.packets);
    }
}

#[test]
fn the_sender_is_not_touched_by_the_number_of_receivers() {
    let contents = [content(7, 500_000)];
    let config = DeliverySenderConfig::new(1).with_end(End::Passes(2));
    let run = |receivers: usize| {
        let links = vec![Link::default(); receivers];
        let mut pair =
            Pair::new(Seed(1), sender(&contents, plan(Scheme::RaptorQ, 1_024), config, RATE), &links);
        pair.run(LIMIT);
        // Whoever is done leaves; the sender goes on to its own end.
        pair.receivers.iter().for_each(|end| end.assert_received(&contents));
        pair.trace()
    };
    assert_eq!(run(1), run(20));
}

fn windows(scheme: Scheme, symbol_size: u16) -> PlanConfig {
    PlanConfig { scheme, symbol_size, order: Order::Window }
}

/// Window order: below the inline share blocks are whole one window after another, and what is left after the
/// first pass comes with small passes: time over ideal is a few percent.
#[test]
fn a_push_in_windows_ends_soon_after_the_first_pass() {
    let contents = [content(4, 36_000 * 64)];
    let symbols = 36_000;
    for (loss, most_over) in [(0.0, 0.012), (0.005, 0.035)] {
        let links = vec![Link { loss, delay: Duration::from_micros(100), ..Link::default() }; 2];
        let sender = sender(&contents, windows(Scheme::RaptorQ, 64), DeliverySenderConfig::new(1), RATE);
        let mut pair = Pair::new(Seed(9), sender, &links);
        pair.run(LIMIT);
        for end in &pair.receivers {
            end.assert_received(&contents);
            let stats = end.machine.stats();
            assert_eq!(stats.duplicates, 0, "rateless symbols come once");
        }
        // Until the last receiver was done; the FDT's packets are no content.
        let sent = pair.sender.stats().symbols as f64 / f64::from(symbols) - 1.0;
        assert!(sent <= most_over, "{sent:.4} over ideal at a loss of {loss}");
    }
}

/// Late joiners and heavy losses cost time, never the file: also where repair symbols are few or none.
#[test]
fn windows_serve_whoever_comes_late_or_loses_much() {
    let contents = [content(6, 2_500 * 64), content(7, 100), content(8, 64 * 1_500)];
    let links = [
        Link { loss: 0.2, ..Link::default() },
        Link { loss: 0.01, joins_at: seconds(0.1), ..Link::default() },
        Link { loss: 0.4, joins_at: seconds(0.4), ..Link::default() },
    ];
    for scheme in [Scheme::NoCode, Scheme::ReedSolomon, Scheme::RaptorQ] {
        let sender = sender(&contents, windows(scheme, 64), DeliverySenderConfig::new(1), RATE);
        let mut pair = Pair::new(Seed(2), sender, &links);
        pair.run(LIMIT);
        pair.receivers.iter().for_each(|end| end.assert_received(&contents));
    }
}

#[test]
fn a_pass_in_windows_has_every_source_symbol_and_a_share_of_repair() {
    let contents = [content(8, 100_000)];
    let config = DeliverySenderConfig::new(9).with_end(End::Passes(1));
    let link = Link { loss: 0.005, ..Link::default() };
    let mut pair =
        Pair::new(Seed(2), sender(&contents, windows(Scheme::RaptorQ, 100), config, RATE), &[link]);
    pair.run(LIMIT);
    assert_eq!(pair.sender.stats().symbols, 1_010);
    assert!(pair.sender_events.contains(&SenderEvent::PassCompleted(1)));
    pair.receivers[0].assert_received(&contents);
}

#[test]
fn passes_and_closing_end_a_session() {
    let contents = [content(8, 100_000)];
    let config = DeliverySenderConfig::new(9).with_end(End::Passes(2));
    let lost = Link { loss: 0.9, ..Link::default() };
    let mut pair =
        Pair::new(Seed(2), sender(&contents, plan(Scheme::RaptorQ, 1_000), config, RATE), &[lost; 8]);
    pair.run(LIMIT);
    assert!(pair.sender.is_finished());
    assert_eq!(pair.sender.stats().symbols, 200);
    assert_eq!(
        pair.sender_events,
        [SenderEvent::PassCompleted(1), SenderEvent::PassCompleted(2), SenderEvent::Finished]
    );
    let closed =
        pair.receivers.iter().filter(|end| end.events.last() == Some(&ReceiverEvent::SessionClosed)).count();
    assert!(closed > 0, "with 90 % loss some receiver hears the close and nobody has the file");
}

#[test]
fn a_session_of_empty_files_is_an_fdt() {
    let contents = [Vec::new(), Vec::new()];
    let config = DeliverySenderConfig::new(9).with_end(End::Passes(3));
    let link = Link { joins_at: seconds(0.5), ..Link::default() };
    let mut pair = Pair::new(Seed(2), sender(&contents, plan(Scheme::RaptorQ, 1_000), config, RATE), &[link]);
    pair.run(LIMIT);
    pair.receivers[0].assert_received(&contents);
    assert!(pair.sender.stats().packets < 10);
}

#[test]
fn corruption_is_found_and_repaired() {
    let contents = [content(9, 200_000)];
    let link = Link { corrupted: 0.004, loss: 0.02, ..Link::default() };
    let mut discarded = 0;
    for seed in 0..8 {
        let sender = sender(&contents, plan(Scheme::RaptorQ, 1_000), DeliverySenderConfig::new(1), RATE);
        let mut pair = Pair::new(Seed(seed), sender, &[link]);
        pair.configure(0, DeliveryReceiverConfig::default().with_tsi(Some(1)));
        pair.run(seconds(60.0));
        pair.receivers[0].assert_received(&contents);
        discarded += pair.receivers[0].machine.stats().blocks_discarded;
    }
    assert!(discarded > 0, "some seed must spoil a block");
}

/// A receiver that comes after the first FDT of a session shorter than the FDT's interval still learns its
/// files.
#[test]
fn a_short_session_describes_itself_again_before_it_ends() {
    let contents = [content(13, 300_000)];
    let config = DeliverySenderConfig::new(1).with_end(End::Passes(3));
    let link = Link { joins_at: seconds(0.02), ..Link::default() };
    let mut pair = Pair::new(Seed(1), sender(&contents, plan(Scheme::RaptorQ, 1_000), config, RATE), &[link]);
    pair.run(LIMIT);
    pair.receivers[0].assert_received(&contents);
}

#[test]
fn another_session_on_the_group_is_told_of_and_ignored() {
    let contents = [content(10, 50_000)];
    let mut pair = Pair::new(
        Seed(4),
        sender(&contents, plan(Scheme::RaptorQ, 1_000), DeliverySenderConfig::new(1), RATE),
        &[Link::default()],
    );
    pair.configure(0, DeliveryReceiverConfig::default().with_tsi(Some(2)));
    pair.run(seconds(5.0));
    let stats = pair.receivers[0].machine.stats();
    assert!(stats.packets > 0 && stats.dropped.foreign == stats.packets);
    let events = &pair.receivers[0].events;
    assert!(matches!(events[..], [ReceiverEvent::Session(SessionEvent::Other { tsi: 1, .. })]), "{events:?}");
}

/// A large file travels in segments; forced by tiny symbols, so that it has more than 255 blocks.
#[test]
fn segments_make_one_file_again() {
    let bytes = 1_002 * 16 * 260;
    let contents = [content(11, bytes), content(12, 10)];
    let link = Link { loss: 0.0003, joins_at: seconds(0.2), ..Link::default() };
    let plan = PlanConfig { scheme: Scheme::RaptorQ, symbol_size: 16, order: Order::Window };
    let mut pair = Pair::new(Seed(4), sender(&contents, plan, DeliverySenderConfig::new(1), RATE), &[link]);
    pair.run(LIMIT);
    pair.receivers[0].assert_received(&contents);
}
