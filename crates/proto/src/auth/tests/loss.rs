//! Loss amplification: packets lost for want of a manifest.

use super::*;

/// Loss of packets in bursts of a mean length, at a mean share.
struct Link {
    rng: Stream,
    share: f64,
    burst: f64,
    is_losing: bool,
}

impl Link {
    fn new(share: f64, burst: f64) -> Self {
        Self {
            rng: Seed(share.to_bits() ^ burst.to_bits()).stream("link", 0),
            share,
            burst,
            is_losing: false,
        }
    }

    fn loses(&mut self) -> bool {
        if self.burst == 1.0 {
            return self.rng.random::<f64>() < self.share;
        }
        let draw = self.rng.random::<f64>();
        self.is_losing = if self.is_losing {
            draw >= 1.0 / self.burst
        } else {
            draw < self.share / (1.0 - self.share) / self.burst
        };
        self.is_losing
    }
}

/// Returns the share of packets lost on the link and the effective share, over `packets` at `rate` packets a
/// second, with a manifest each `group` packets. A receiver joins each `join` packets.
fn amplification(
    packets: u64,
    (rate, group): (u64, usize),
    share: f64,
    burst: f64,
    join: Option<u64>,
) -> (f64, f64) {
    let interval = Duration::from_nanos(1_000_000_000 / rate);
    let (mut source, mut link) = (source(), Link::new(share, burst));
    source.plan_slots(group);
    let mut front = front();
    let (mut lost, mut arrived, mut verified, mut released_last) = (0_u32, 0_u64, 0_u64, None);
    let mut content = 0_u32;
    for index in 0..packets {
        if join.is_some_and(|join| index % join == 0) {
            verified += front.counters().verified;
            front = self::front();
            released_last = None;
        }
        let datagram = source.send();
        content += 1;
        if link.loses() {
            lost += 1;
            continue;
        }
        arrived += 1;
        let verdict = front.on_packet(Instant::ZERO + interval.saturating_mul(index), BASE, &datagram);
        while let Some(released) = front.poll_released() {
            let number = symbol(released.bytes);
            assert!(number > released_last, "in order");
            released_last = number;
        }
        if verdict == AuthVerdict::Verified && symbol(&datagram).is_some() {
            assert!(symbol(&datagram) > released_last, "a verified packet overtakes no packet that waits");
            released_last = symbol(&datagram);
        }
    }
    verified += front.counters().verified;
    let unverified = arrived - verified;
    let total = f64::from(content);
    (f64::from(lost) / total, f64::from(lost + u32::try_from(unverified).unwrap()) / total)
}

#[test]
fn effective_loss_is_at_most_1_05_of_the_link() {
    for group in [4, 11, GROUP] {
        for burst in [1.0, 5.0, 20.0] {
            for share in [0.01, 0.05, 0.1, 0.2] {
                let (lost, effective) = amplification(200_000, (1_000, group), share, burst, None);
                println!("groups of {group}, loss {share} in bursts of {burst}: {:.4}", effective / lost);
                assert!(
                    effective <= 1.05 * lost,
                    "groups of {group}, {share} in bursts of {burst}: {effective} of {lost}"
                );
            }
        }
    }
}

#[test]
fn a_receiver_that_joins_before_manifests_end_loses_nothing() {
    for joined in 60..=120 {
        let (mut source, mut front) = (source(), front());
        for index in 0..200 {
            if index == 100 {
                source.end.set_group(BASE, 0).unwrap();
            }
            let datagram = source.send();
            if index >= joined {
                front.on_packet(at(index), BASE, &datagram);
                while front.poll_released().is_some() {}
            }
        }
        front.on_timeout(at(2_000));
        let counters = front.counters();
        assert_eq!(counters.verified, 200 - joined, "joined at {joined}: {counters:?}");
    }
}

/// Packets a second of a channel, and packets between two manifests: the slowest listed channels of senders
/// that plan half a second and a tenth of a second ahead, and channels of fast sessions.
const RATES: [(u64, usize); 5] = [(20, 4), (100, 4), (100, 20), (1_000, 25), (10_000, 25)];

#[test]
fn effective_loss_is_the_same_at_each_rate() {
    for rate in RATES {
        let (lost, effective) = amplification(100_000, rate, 0.2, 5.0, None);
        println!("loss 0.2 in bursts of 5 at {rate:?}: {:.4}", effective / lost);
        assert!(effective <= 1.05 * lost, "{rate:?}: {effective} of {lost}");
    }
}

#[test]
fn joins_cost_next_to_nothing() {
    for rate in RATES {
        let (lost, effective) = amplification(100_000, rate, 0.01, 1.0, Some(500));
        println!("joins at {rate:?}: {:.4}", effective / lost);
        assert!(effective <= 1.05 * lost, "{rate:?}: {effective} of {lost}");
    }
}
