//! Forged packets and lying receivers.

use super::*;

/// Who forges NAKs for what was just sent, fifty times a second, cannot be told from a receiver behind a dead
/// link: it holds the rate down, to the floor at most, and for no longer than it goes on.
#[test]
fn a_liar_holds_the_rate_down_to_the_floor_at_most_and_while_it_lies() {
    let source = PgmSource::new(config(Mode::Lean), le_sbcc(), Instant::ZERO);
    let mut bed = Bed::new(source, 1, lossless());
    bed.send_all(&messages(100), 10);
    let feed = |bed: &mut Bed, millis: u64, lies: bool| {
        for _ in 0..millis / 20 {
            while bed.source.send(&[1; 100]) {}
            if lies {
                let last = u32::try_from(bed.source.counters().originals - 1).expect("they are few");
                bed.give_source(host(66), &nak(last, []));
            }
            bed.run(Duration::from_millis(20));
        }
        bed.source.rate().as_bits()
    };
    let before = feed(&mut bed, 10_000, false);
    let least = feed(&mut bed, 60_000, true);
    assert!(least >= 200 * 8, "a packet of 200 bytes a second at least: {least}");
    let after = feed(&mut bed, 20_000, false);
    assert!(after > before / 2, "{before}, {least} and {after} bit/s");
}

#[test]
fn forged_data_and_path_messages_cannot_make_a_receiver_grow() {
    let mut receiver =
        PgmReceiverMachine::new(receiver_config(), Messages::default(), Seed(1).stream("receiver", 0));
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    let mut draw = Seed(2).stream("forger", 0);
    for step in 0..3_000_u32 {
        let now = Instant::ZERO + Duration::from_millis(u64::from(step));
        let jump = draw.next_u32() % 600;
        let sequence = match step % 5 {
            0 => draw.next_u32(),
            _ => (step / 5).wrapping_mul(211).wrapping_add(jump),
        };
        let (trail, lead) = (sequence.wrapping_sub(jump), sequence.wrapping_add(jump));
        let body = match step % 3 {
            0 => Body::Spm { sequence: step, trail, lead, path: host(1).ip() },
            1 => Body::Odata { sequence, trail, data: &[1; 90] },
            _ => Body::Rdata { sequence, trail, data: &[2; 101] },
        };
        let len = Packet::new(40_961, 7_500, SESSION.gsi, body).emit(&mut buffer).expect("there is room");
        let (source, channel) = (host(1 + (step % 7 / 6) as u8), Some(crate::ChannelId::BASE));
        let payload = buffer[..len].to_vec();
        receiver.handle(
            now,
            Input::Datagram(Datagram { source, channel, ecn: Ecn::NotCapable, payload: &payload }),
        );
        while receiver.poll_output(now, &mut buffer).is_some() {}
        assert!(receiver.missing() <= 512);
    }
    let counters = receiver.counters();
    assert!(counters.foreign > 0 && counters.malformed.contradictory > 0 && counters.packets > 0);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(24) })]

    #[test]
    fn whatever_is_lost_messages_come_in_order_and_whole(
        seed in any::<u64>(), share in 0.0..0.5_f64, first in any::<u32>(), window in 16..600_u32,
    ) {
        let config = config(Mode::Pgm).with_first_sequence(first).with_window_packets(window);
        let mut bed = Bed::new(PgmSource::new(config, le_sbcc(), Instant::ZERO), 2, random(Seed(seed).stream("loss", 0), share));
        let sent: Vec<_> = (0..120_u8).map(|number| vec![number; 20 + usize::from(number)]).collect();
        bed.send_all(&sent, 5);
        bed.loss = lossless();
        bed.run(Duration::from_secs(60));
        for receiver in 0..2 {
            let got = bed.messages(receiver);
            let mut all = sent.iter();
            prop_assert!(got.iter().all(|message| all.any(|one| one == message)), "in order, each once, unchanged");
            prop_assert_eq!(bed.receivers[receiver].missing(), 0);
            if let Some(first) = got.first().filter(|_| bed.receivers[receiver].counters().lost == 0) {
                prop_assert_eq!(got.len(), 120 - usize::from(first[0]));
            }
        }
    }
}
