//! A receiver in a storm of datagrams, then in an honest session: it never panics, never breaks the contract
//! of its store, and never calls a file whole that is not what the session's digest promised.
#![no_main]

#[path = "session/honest.rs"]
mod honest;
#[path = "session/storm.rs"]
mod storm;
#[path = "session/watched.rs"]
mod watched;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use headwater_proto::delivery::{DeliveryReceiver, DeliveryReceiverConfig, OBJECTS_MAX, ReceiverEvent};
use headwater_proto::{ChannelId, Datagram, Ecn, Input, Instant, Machine, Output, fixed};
use headwater_wire::alc;
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

use self::honest::Honest;
use self::storm::Step;
use self::watched::Watched;

/// Most events of one input: an FDT may announce and refuse every file, and a few more.
const EVENTS_MAX: usize = 2 * OBJECTS_MAX + 8;
/// Rounds of the honest session after the storm: enough for a block to be given up.
const ROUNDS: usize = 12;
const SENDER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 4000);
const STRANGER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 66)), 4000);

#[derive(Arbitrary, Debug)]
struct Storm<'a> {
    session: u8,
    steps: Vec<Step<'a>>,
}

struct Bench {
    receiver: DeliveryReceiver<fixed::FixedReceiver, Watched>,
    now: u64,
    events: Vec<ReceiverEvent>,
    /// Whether the FDT that the receiver knows may not be the honest one.
    is_misled: bool,
}

fuzz_target!(|storm: Storm<'_>| {
    let honest = honest::session(storm.session);
    let mut bench = Bench::new();
    for step in &storm.steps {
        bench.take(step, honest);
    }
    bench.receiver.store_mut().is_slow = false;
    // A receiver that was misled may wait for ever: one round shows that it lives.
    let rounds = if bench.is_misled { 1 } else { ROUNDS };
    for datagram in core::iter::repeat_n(&honest.datagrams, rounds).flatten() {
        if bench.receiver.is_ended() {
            break;
        }
        bench.give(SENDER, datagram);
    }
    bench.pass(2_000_000_000);
    bench.check(honest);
});

impl Bench {
    fn new() -> Self {
        let config = DeliveryReceiverConfig::default()
            .with_tsi(Some(honest::TSI.into()))
            .with_source(Some(SENDER.ip()));
        let receiver =
            DeliveryReceiver::new(config, fixed::FixedReceiver::new(), Watched::new(), Instant::ZERO);
        Self { receiver, now: 0, events: Vec::new(), is_misled: false }
    }

    fn take(&mut self, step: &Step<'_>, honest: &Honest) {
        match step {
            Step::Honest { first, count } => {
                for index in 0..usize::from(*count) {
                    let index = (usize::from(*first) + index) % honest.datagrams.len();
                    self.give(SENDER, &honest.datagrams[index]);
                }
            }
            Step::Pass { nanos } => self.pass(*nanos),
            Step::Timeout => self.pass(0),
            Step::Slow(is_slow) => self.receiver.store_mut().is_slow = *is_slow,
            _ => {
                let Some(bytes) = storm::datagram(step, honest) else { return };
                let is_foreign = matches!(step, Step::Foreign { .. });
                let is_fdt = alc::parse(&bytes).is_ok_and(|(header, _)| header.toi == Some(0));
                self.is_misled |= is_fdt && !is_foreign;
                self.give(if is_foreign { STRANGER } else { SENDER }, &bytes);
            }
        }
    }

    fn pass(&mut self, nanos: u64) {
        self.now = self.now.saturating_add(nanos);
        self.receiver.handle(Instant::from_nanos(self.now), Input::Timeout);
        self.drain();
    }

    fn give(&mut self, source: SocketAddr, payload: &[u8]) {
        let datagram = Datagram { source, channel: Some(ChannelId::BASE), ecn: Ecn::NotCapable, payload };
        self.receiver.handle(Instant::from_nanos(self.now), Input::Datagram(datagram));
        self.drain();
    }

    fn drain(&mut self) {
        let before = self.events.len();
        while let Some(output) = self.receiver.poll_output(Instant::from_nanos(self.now), &mut []) {
            match output {
                Output::Event(event) => self.events.push(event),
                Output::Join(_) | Output::Leave(_) | Output::Router(_) => {}
                Output::Transmit(_) => panic!("a receiver of a fixed rate sends nothing"),
            }
        }
        assert!(self.events.len() - before <= EVENTS_MAX);
    }

    fn check(&self, honest: &Honest) {
        let store = self.receiver.store();
        let completed = self.events.iter().filter_map(|event| match event {
            ReceiverEvent::FileCompleted { digest, .. } => Some(digest),
            _ => None,
        });
        // Files are completed in the order in which the store finished them.
        let mut right = 0;
        for (digest, (spec, bytes)) in completed.zip(store.finished()) {
            let promised = honest.files.iter().find(|(of, _)| Some(*of) == *digest);
            if let Some((_, content)) = promised {
                assert!(bytes == content, "{} is not what was promised", spec.path);
                right += 1;
            }
        }
        let mismatches =
            self.events.iter().filter(|event| matches!(event, ReceiverEvent::FileMismatch { .. })).count();
        let has_closed = self.events.contains(&ReceiverEvent::SessionClosed);
        assert!(self.receiver.is_ended(), "the session came whole and was closed");
        assert!(
            self.is_misled || has_closed || right + mismatches >= honest.files.len(),
            "every file meets its fate: {:?}",
            self.events
        );
    }
}
