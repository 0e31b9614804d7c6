//! Both ends together: loss, joins, floods, replays, trees, single bits.

mod flood;
mod loss;
mod model;
mod packets;

use headwater_wire::extensions::Lateness;
use headwater_wire::{Cci, PayloadId, alc};
use rand::{Rng, RngExt};

use super::*;
use crate::rng::{Seed, Stream};
use crate::{ChannelId, Duration, Instant};

const TSI: u64 = 7;
const STARTED: u32 = 0xE000_0000;
const KEY: PublicKey = [9; 32];
const BASE: ChannelId = ChannelId::BASE;
const BUFFER_BYTES: usize = 9_000;
/// Memory of a sample of signed packets of 1500 bytes.
const SAMPLE_BYTES: usize = 200 * 1_600;

/// A sender's end with the packets of a made-up session: each symbol is its number.
struct Source<S = StandIn> {
    tsi: u64,
    end: SigningEnd<S>,
    symbols: u32,
    numbers: u16,
    symbol_bytes: usize,
    /// Slots planned before each departure.
    slots: usize,
    /// Whether packets tell their lateness.
    is_stamped: bool,
}

impl<S: Signer> Source<S> {
    fn new(config: SigningConfig, signer: S, is_listed: bool) -> Self {
        let mut end = SigningEnd::new(config, signer);
        end.set_group(BASE, if is_listed { GROUP } else { 0 }).unwrap();
        Self { tsi: TSI, end, symbols: 0, numbers: 0, symbol_bytes: 1_300, slots: PLANNED, is_stamped: false }
    }

    fn header(&mut self, is_packet: bool) -> alc::Repr {
        self.numbers = self.numbers.wrapping_add(1);
        alc::Repr {
            tsi: self.tsi,
            toi: is_packet.then_some(1),
            close_session: false,
            close_object: false,
            psi: 0,
            codepoint: 0,
            cci: Cci::new(&[[1, 2], self.numbers.to_be_bytes()].concat()).unwrap(),
            extensions: headwater_wire::Extensions {
                lateness: self.is_stamped.then_some(Lateness { micros: 0 }),
                ..headwater_wire::Extensions::default()
            },
            payload_id: is_packet
                .then_some(PayloadId { sbn: self.symbols >> 16, esi: self.symbols & 0xFFFF }),
        }
    }

    /// Plans a manifest each `group` packets from now on, and as many slots ahead as that takes.
    fn plan_slots(&mut self, group: usize) {
        self.end.set_group(BASE, group).unwrap();
        self.slots = 2 * group + 2;
    }

    /// Plans the next slot.
    fn plan(&mut self) {
        let is_packet = self.end.next_slot(BASE) == Slot::Packet;
        let header = self.header(is_packet);
        let mut bytes = [0; BUFFER_BYTES];
        let mut length = header.emit(&mut bytes).unwrap();
        if is_packet {
            bytes[length..length + 4].copy_from_slice(&self.symbols.to_be_bytes());
            length += self.symbol_bytes;
            self.symbols += 1;
        }
        self.end.plan(BASE, &bytes[..length]).unwrap();
    }

    /// Sends the next slot, with the plan full before.
    fn send(&mut self) -> Vec<u8> {
        while self.end.planned(BASE) < self.slots {
            self.plan();
        }
        self.send_planned()
    }

    fn send_planned(&mut self) -> Vec<u8> {
        let mut buffer = vec![0; BUFFER_BYTES];
        let length = self.end.send(BASE, &mut buffer).unwrap().unwrap();
        buffer.truncate(length);
        buffer
    }
}

fn signing() -> SigningConfig {
    SigningConfig::new(TSI, STARTED, 1, [3; 32])
}

fn source() -> Source {
    Source::new(signing(), StandIn(KEY), true)
}

fn front() -> VerifyingFront<StandIn> {
    front_of(VerifyingConfig::new(vec![KEY], 1))
}

fn front_of(config: VerifyingConfig) -> VerifyingFront<StandIn> {
    let mut front = VerifyingFront::new(config, StandIn(KEY), Seed(1).stream("front", 0));
    front.join(BASE);
    front
}

fn at(index: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(index)
}

fn symbol(datagram: &[u8]) -> Option<u32> {
    let (header, symbol) = alc::parse(datagram).unwrap();
    header.payload_id.map(|_| u32::from_be_bytes(*symbol.first_chunk().unwrap()))
}

#[test]
fn a_lead_that_changes_neither_stops_nor_doubles_a_schedule() {
    const TURN: Duration = Duration::from_millis(5);
    let config = SigningConfig::new(TSI, STARTED, 1, [3; 32]);
    let mut line = SigningLine::new(Signing::new(config, Box::new(StandIn(KEY))), 4, START_LEAD_MAX);
    let mut now = Instant::ZERO + Duration::from_secs(1);
    let mut last = line.control_time(now);
    while line.step(now, None) {}
    let mut turns = |lead: Duration, count: u32| {
        for _ in 0..count {
            now += TURN;
            if line.begins_turn(now) {
                line.begin_turn(now, lead);
            }
            let time = line.control_time(now);
            assert!(time >= last && time <= (now + lead).max(last), "{last:?} to {time:?} at {now:?}");
            assert!(time.since(last).as_nanos() * 4 <= TURN.as_nanos() * 5 || count == 1);
            last = time;
        }
        last.since(now)
    };
    turns(START_LEAD_MAX, 1);
    assert_eq!(turns(START_LEAD_MAX, 20), START_LEAD_MAX);
    // 80 ms more take 320 ms, 80 ms less as long as the packets planned.
    assert!(turns(DEMAND_LEAD_MAX, 63) < DEMAND_LEAD_MAX);
    assert_eq!(turns(DEMAND_LEAD_MAX, 2), DEMAND_LEAD_MAX);
    assert!(turns(START_LEAD_MAX, 15) > START_LEAD_MAX);
    assert_eq!(turns(START_LEAD_MAX, 1), START_LEAD_MAX);
}
