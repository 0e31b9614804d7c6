//! Authentication per genuine packet of 1408 bytes with Ed25519: the signing end (a plan always full) and the
//! verifying front (each packet in order).

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use headwater_proto::auth::{
    AuthVerdict, GROUP, PLANNED, Signer, SigningConfig, SigningEnd, Slot, VerifyingConfig, VerifyingFront,
};
use headwater_proto::{ChannelId, Duration, Instant, Seed};

mod keys;

use keys::{Check, Key};

/// Slots of a run: 40 manifests with their packets.
const SLOTS: usize = 40 * 26;

fn end() -> SigningEnd<Key> {
    let mut end = SigningEnd::new(SigningConfig::new(7, 1, 1, [2; 32]), Key::default());
    end.set_group(ChannelId::BASE, GROUP).expect("a channel");
    end
}

/// Plans up to the bound, and sends one slot.
fn send(end: &mut SigningEnd<Key>, packet: &mut [u8], buffer: &mut [u8]) -> usize {
    while end.planned(ChannelId::BASE) < PLANNED {
        let is_packet = end.next_slot(ChannelId::BASE) == Slot::Packet;
        let number = u32::from_be_bytes([packet[12], packet[13], packet[14], packet[15]]) + 1;
        packet[12..16].copy_from_slice(&number.to_be_bytes());
        let bytes = if is_packet { &*packet } else { &packet[..12] };
        end.plan(ChannelId::BASE, bytes).expect("room in the plan");
    }
    end.send(ChannelId::BASE, buffer).expect("room for a signature").expect("a planned slot")
}

/// LCT header of 12 bytes without TOI, and a payload.
fn packet() -> Vec<u8> {
    let mut packet = vec![0; 1_408];
    packet[..12].copy_from_slice(&[0x10, 0x80, 3, 0, 0, 0, 0, 1, 0, 0, 0, 7]);
    packet
}

fn auth(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("auth");
    group.throughput(Throughput::Elements(SLOTS as u64));
    let mut buffer = vec![0; 9_000];
    let (mut signing, mut content) = (end(), packet());
    group.bench_function("sign", |bencher| {
        bencher.iter(|| (0..SLOTS).map(|_| send(&mut signing, &mut content, &mut buffer)).sum::<usize>());
    });
    let (mut signing, mut content) = (end(), packet());
    let mut sent = Vec::new();
    for _ in 0..SLOTS + 26 {
        let bytes = send(&mut signing, &mut content, &mut buffer);
        sent.push(buffer[..bytes].to_vec());
    }
    let key = Key::default().public_key();
    let front = || {
        let config = VerifyingConfig::new(vec![key], 1);
        let mut front = VerifyingFront::new(config, Check::default(), Seed(1).stream("front", 0));
        front.join(ChannelId::BASE);
        // The first group is signed packet by packet: not part of the steady state.
        for datagram in &sent[..26] {
            assert_eq!(front.on_packet(Instant::ZERO, ChannelId::BASE, datagram), AuthVerdict::Verified);
        }
        front
    };
    group.bench_function("verify", |bencher| {
        bencher.iter_batched(
            front,
            |mut front| {
                for (index, datagram) in (0..).zip(&sent[26..]) {
                    let now = Instant::ZERO + Duration::from_micros(index);
                    assert_eq!(front.on_packet(now, ChannelId::BASE, datagram), AuthVerdict::Verified);
                }
            },
            BatchSize::LargeInput,
        );
    });
    group.finish();
}

criterion_group!(benches, auth);
criterion_main!(benches);
