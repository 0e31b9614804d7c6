//! What holds whatever the network does.

use headwater_netsim::tcp::{
    AckPolicy, Config, Data, Growth, Profile, Reduction, SackPipe, Segment, Sender, Sink, Variant,
};
use headwater_proto::{Duration, Ecn, Instant, Seed};
use proptest::prelude::*;

use super::path::{Fate, Path};

/// Packets in each direction that have a fate; those after them arrive.
const FATES: usize = 300;

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        6 => Just(Fate::Arrive),
        2 => Just(Fate::Lose),
        1 => (1..400_u64).prop_map(|ms| Fate::Late(Duration::from_millis(ms))),
        1 => (0..400_u64).prop_map(|ms| Fate::Twice(Duration::from_millis(ms))),
        1 => Just(Fate::Mark),
    ]
}

fn config() -> impl Strategy<Value = Config> {
    let profile = prop::sample::select(Profile::ALL.to_vec());
    let variant = prop::sample::select(vec![Variant::Reno, Variant::NewReno, Variant::Sack]);
    let pipe = prop::sample::select(vec![SackPipe::Estimate, SackPipe::Scoreboard]);
    let acks = prop::sample::select(vec![AckPolicy::EVERY_PACKET, AckPolicy::DELAYED]);
    let reduction = prop::sample::select(vec![Reduction::AtOnce, Reduction::Proportional]);
    let growth = prop::sample::select(vec![Growth::Reno, Growth::Cubic, Growth::LinuxCubic]);
    let switches = (any::<bool>(), any::<bool>(), 1..40_u32, 0..3_u64, reduction, growth);
    (profile, variant, pipe, acks, switches).prop_map(
        |(
            profile,
            variant,
            sack_pipe,
            acks,
            (ecn, limited_transmit, maximum_window, overhead, reduction, growth),
        )| Config {
            variant,
            sack_pipe,
            reduction,
            growth,
            acks,
            ecn,
            limited_transmit,
            maximum_window,
            overhead: Duration::from_millis(overhead),
            ..profile.config()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn a_transfer_ends_whole(
        config in config(),
        bytes in 0..200_000_u64,
        data in prop::collection::vec(fate(), FATES),
        acks in prop::collection::vec(fate(), FATES),
    ) {
        let at = |fates: &[Fate], number: u64| {
            usize::try_from(number).ok().and_then(|number| fates.get(number).copied()).unwrap_or(Fate::Arrive)
        };
        let mut path = Path::new(&config, Data::Bytes(bytes))
            .data(|packet| at(&data, packet.number))
            .acks(|packet| at(&acks, packet.number));
        path.run(Instant::ZERO);
        let mut steps = 0;
        while !path.sender.is_finished() {
            let next = path.next_instant();
            prop_assert!(next.is_some(), "silence with data to send");
            path.step(next.unwrap());
            steps += 1;
            prop_assert!(steps < 20_000, "no end after {}", path.now.since(Instant::ZERO));
            prop_assert!(path.sender.cwnd() >= 1.0 && path.sender.cwnd() <= f64::from(config.maximum_window));
            prop_assert!(path.sender.outstanding() <= config.maximum_window);
            // A partial acknowledgement takes two from the estimate, however many segments it covers, so the
            // estimate may exceed what is outstanding; but once it fills the window nothing but the urgent
            // segment is sent.
            let estimated = config.variant == Variant::Sack && config.sack_pipe == SackPipe::Estimate;
            let bound = if estimated { config.maximum_window + 1 } else { 2 * path.sender.outstanding() };
            prop_assert!(path.sender.pipe() <= bound, "{} above {bound}", path.sender.pipe());
            let waits = path.sender.is_finished() || path.sender.next_timeout().is_some();
            prop_assert!(waits, "nothing to wake the sender");
        }
        prop_assert_eq!(path.sink.counters().payload_bytes_in_order, bytes);
        prop_assert_eq!(path.sender.counters().payload_bytes_acked, bytes);
        prop_assert_eq!(path.sender.outstanding(), 0);
    }

    /// Segments that no honest peer sends change nothing for the worse: no panic, no growth, no false
    /// progress.
    #[test]
    fn nonsense_is_survived(
        config in config(),
        acks in prop::collection::vec((0..60_u32, any::<bool>(), any::<bool>()), 100),
        data in prop::collection::vec((any::<u32>(), any::<u16>(), any::<bool>()), 100),
    ) {
        let mut sender = Sender::new(config.clone(), Data::Greedy, Seed(1).stream("overhead", 0));
        let mut sink = Sink::new(config.clone());
        let mut now = Instant::ZERO;
        sender.start(now);
        for ((ack, syn, echo), (sequence, payload_bytes, cwr)) in acks.into_iter().zip(data) {
            now += Duration::from_millis(50);
            sender.receive(now, &Segment { ack, syn, echo, acknowledges: true, ..Segment::default() });
            sink.receive(now, &Segment { sequence, payload_bytes, cwr, ..Segment::default() }, Ecn::CongestionExperienced);
            for _ in 0..2 {
                sender.timeout(now);
                sink.timeout(now);
            }
            let mut sent = 0;
            while sender.poll_transmit(now).is_some() {
                sent += 1;
                prop_assert!(sent <= 2 * config.maximum_window + 2);
            }
            while sink.poll_transmit().is_some() {}
            prop_assert!(sender.outstanding() <= config.maximum_window);
        }
    }
}
