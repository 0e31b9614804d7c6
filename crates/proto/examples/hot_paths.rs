//! Packets through the hot paths of both ends, for a count of instructions: `.ci/instructions.py` runs each
//! session below callgrind, which counts [`counted_send`] and [`counted_receive`].
//!
//! Usage: `hot_paths SESSION`, of `fixed`, `fixed-signed`, `layers`, `layers-signed`.

use std::collections::BTreeSet;

use headwater_fec::{Order, Scheme};
use headwater_proto::auth::{Signer, Signing, SigningConfig, VerifyingConfig};
use headwater_proto::control::SenderControl;
use headwater_proto::controls::{self, Description};
use headwater_proto::delivery::{
    DeliveryReceiver, DeliveryReceiverConfig, DeliverySender, DeliverySenderConfig, FileToSend, PlanConfig,
    RelativePath, SessionPlan, Source, SourceError, Verifying,
};
use headwater_proto::described::{DescribedReceiver, DescribedReceiverConfig};
use headwater_proto::{
    ChannelId, DATAGRAM_BYTES_MAX, Datagram, Destination, Duration, Ecn, Input, Instant, Machine, Output,
    Rate, Seed, fixed,
};

#[path = "../tests/counter/mod.rs"]
mod counter;
#[path = "../benches/keys/mod.rs"]
mod keys;

use counter::Counter;
use keys::{Check, Key};

const SYMBOL_BYTES: u16 = 1_344;
const PACKET_BYTES: u16 = 1_360;
/// More symbols than are sent.
const SYMBOLS: u64 = 1_000_000;
const RATE: Rate = Rate::from_kilobits(100_000);
/// Packets until receivers of layers have all levels, and packets of which instructions are counted.
const WARM: usize = 20_000;
const PACKETS: usize = 5_000;
const DELAY: Duration = Duration::from_millis(1);

type Sender = DeliverySender<Box<dyn SenderControl + Send>, Zeros>;
type Receiver = DeliveryReceiver<DescribedReceiver, Counter>;

struct Zeros;

impl Source for Zeros {
    fn read_symbol(&mut self, _: usize, _: u32, _: u32, symbol: &mut [u8]) -> Result<(), SourceError> {
        symbol.fill(0);
        Ok(())
    }
}

fn sender(is_layered: bool, is_signed: bool) -> Sender {
    let path = RelativePath::new("file").expect("a name");
    let file = FileToSend { path, bytes: SYMBOLS * u64::from(SYMBOL_BYTES), mode: None, modified: None };
    let order = Order::Spread { rate: RATE.as_bits() };
    let config = PlanConfig { scheme: Scheme::NoCode, symbol_size: SYMBOL_BYTES, order };
    let plan = SessionPlan::new(vec![file], config).expect("a sound plan");
    let blocks = |partition: headwater_fec::Partition| vec![[0; 32]; partition.blocks() as usize];
    let digests: Vec<_> = plan.objects().iter().map(|object| blocks(object.partition)).collect();
    let control: Box<dyn SenderControl + Send> = if is_layered {
        let base = Rate::from_kilobits(120);
        let layers = Description::new(&controls::M2C).with_rates(PACKET_BYTES, base, RATE);
        layers.sender(Instant::ZERO).expect("sound layers")
    } else {
        Box::new(fixed::FixedSender::new(RATE, Instant::ZERO))
    };
    let signing =
        is_signed.then(|| Signing::new(SigningConfig::new(7, 1, 1, [2; 32]), Box::new(Key::default())));
    DeliverySender::new(DeliverySenderConfig::new(7), &plan, &digests, control, Zeros)
        .expect("a sound session")
        .with_signing(signing)
}

fn receiver(is_signed: bool) -> Receiver {
    let control = DescribedReceiver::new(DescribedReceiverConfig::new());
    let public = Key::default().public_key();
    let verifying = is_signed.then(|| {
        let config = VerifyingConfig::new(vec![public], 256);
        Verifying::new(config, Box::new(Check::default()), Seed(1))
    });
    DeliveryReceiver::new(DeliveryReceiverConfig::default(), control, Counter::default(), Instant::ZERO)
        .with_verifying(verifying)
}

/// Packet of a sender: departure, channel, place in the buffer of all packets.
struct Sent {
    at: Instant,
    channel: ChannelId,
    place: core::ops::Range<usize>,
}

/// Sends packets, back to back in `buffer`.
fn send_packets(sender: &mut Sender, count: usize, buffer: &mut [u8], sent: &mut Vec<Sent>) {
    let mut start = 0;
    while sent.len() < count {
        let at = sender.poll_timeout().expect("the session goes on");
        sender.handle(at, Input::Timeout);
        while let Some(output) = sender.poll_output(at, &mut buffer[start..]) {
            if let Output::Transmit(transmit) = output
                && let Destination::Channel(channel) = transmit.destination
            {
                let place = start..start + transmit.bytes;
                start = place.end;
                sent.push(Sent { at, channel, place });
            }
        }
    }
}

/// Passes packets of subscribed channels to the receiver. Returns the number of packets passed.
fn receive_packets(
    receiver: &mut Receiver,
    joined: &mut BTreeSet<ChannelId>,
    sent: &[Sent],
    buffer: &[u8],
) -> usize {
    let mut passed = 0;
    let source = ([192, 0, 2, 1], 7).into();
    let mut reply = [0; DATAGRAM_BYTES_MAX];
    for Sent { at, channel, place } in sent {
        let now = *at + DELAY;
        if joined.contains(channel) {
            passed += 1;
            let payload = &buffer[place.clone()];
            let datagram = Datagram { source, channel: Some(*channel), ecn: Ecn::NotCapable, payload };
            receiver.handle(now, Input::Datagram(datagram));
        }
        if receiver.poll_timeout().is_some_and(|timeout| timeout <= now) {
            receiver.handle(now, Input::Timeout);
        }
        while let Some(output) = receiver.poll_output(now, &mut reply) {
            match output {
                Output::Join(channel) => _ = joined.insert(channel),
                Output::Leave(channel) => _ = joined.remove(&channel),
                _ => {}
            }
        }
    }
    passed
}

#[inline(never)]
fn counted_send(sender: &mut Sender, buffer: &mut [u8], sent: &mut Vec<Sent>) -> usize {
    send_packets(sender, PACKETS, buffer, sent);
    sent.len()
}

#[inline(never)]
fn counted_receive(
    receiver: &mut Receiver,
    joined: &mut BTreeSet<ChannelId>,
    sent: &[Sent],
    buffer: &[u8],
) -> usize {
    receive_packets(receiver, joined, sent, buffer)
}

#[expect(clippy::disallowed_methods, reason = "the name of the session")]
fn main() {
    let session = std::env::args().nth(1).unwrap_or_default();
    let is_signed = session.ends_with("signed");
    let (mut sender, mut receiver) = (sender(session.starts_with("layers"), is_signed), receiver(is_signed));
    let (mut joined, mut sent) = (BTreeSet::from([ChannelId::BASE]), Vec::with_capacity(PACKETS + 1_000));
    let mut buffer = vec![0; (PACKETS + 1_000) * 1_600 + DATAGRAM_BYTES_MAX];
    for _ in 0..WARM / PACKETS {
        sent.clear();
        send_packets(&mut sender, PACKETS, &mut buffer, &mut sent);
        receive_packets(&mut receiver, &mut joined, &sent, &buffer);
    }
    sent.clear();
    let count = counted_send(&mut sender, &mut buffer, &mut sent);
    let received = counted_receive(&mut receiver, &mut joined, &sent, &buffer);
    println!("{count} sent, {received} received");
}
