//! A receiver by itself, and packets as another sender, a bad one or a hostile one writes them.

use headwater_proto::delivery::{
    DeliveryReceiver, DeliveryReceiverConfig, Drops, MemoryStore, ReceiverEvent,
};
use headwater_proto::{ChannelId, Datagram, Ecn, Input, Instant, Machine, Output, fixed};
use headwater_wire::extensions::{Extensions, FdtExtension};
use headwater_wire::fdt::{File, Instance, OtiAttributes};
use headwater_wire::{Cci, Fti, PayloadId, alc};

/// A receiver under test, fed packet by packet.
pub struct Bench {
    pub receiver: DeliveryReceiver<fixed::FixedReceiver, MemoryStore>,
    pub now: u64,
    pub events: Vec<ReceiverEvent>,
    pub holds: bool,
}

impl Bench {
    pub fn new() -> Self {
        Self::with(DeliveryReceiverConfig::default())
    }

    pub fn with(config: DeliveryReceiverConfig) -> Self {
        let store = MemoryStore::new(1 << 20);
        let receiver = DeliveryReceiver::new(config, fixed::FixedReceiver::new(), store, Instant::ZERO);
        let mut bench = Self { receiver, now: 0, events: Vec::new(), holds: false };
        bench.wait(0);
        bench
    }

    pub fn wait(&mut self, milliseconds: u64) {
        self.now += milliseconds * 1_000_000;
        self.receiver.handle(Instant::from_nanos(self.now), Input::Timeout);
        self.drain();
    }

    pub fn give(&mut self, payload: &[u8]) {
        self.give_from("192.0.2.1:4000", payload);
    }

    pub fn give_from(&mut self, source: &str, payload: &[u8]) {
        let source = source.parse().unwrap();
        let datagram = Datagram { source, channel: Some(ChannelId::BASE), ecn: Ecn::NotCapable, payload };
        self.now += 1_000_000;
        self.receiver.handle(Instant::from_nanos(self.now), Input::Datagram(datagram));
        self.drain();
    }

    fn drain(&mut self) {
        while let Some(output) = self.receiver.poll_output(Instant::from_nanos(self.now), &mut []) {
            match output {
                Output::Join(_) => self.holds = true,
                Output::Leave(_) => self.holds = false,
                Output::Event(event) => self.events.push(event),
                Output::Router(_) => {}
                Output::Transmit(_) => unreachable!(),
            }
        }
    }

    pub fn dropped(&self) -> Drops {
        self.receiver.stats().dropped
    }

    pub fn received(&self) -> Vec<(&str, &[u8])> {
        self.receiver.store().finished().map(|(spec, bytes)| (spec.path.as_str(), bytes)).collect()
    }

    pub fn refusals(&self) -> usize {
        self.events.iter().filter(|event| matches!(event, ReceiverEvent::FileRefused { .. })).count()
    }
}

pub fn packet(
    toi: Option<u128>,
    codepoint: u8,
    extensions: Extensions,
    id: Option<PayloadId>,
    payload: &[u8],
) -> Vec<u8> {
    let header = alc::Repr {
        tsi: 1,
        toi,
        close_session: toi.is_none(),
        close_object: false,
        psi: 0,
        codepoint,
        cci: Cci::ZERO,
        extensions,
        payload_id: id,
    };
    let mut bytes = vec![0; header.buffer_len()];
    header.emit(&mut bytes).unwrap();
    bytes.extend_from_slice(payload);
    bytes
}

pub fn close() -> Vec<u8> {
    packet(None, 0, Extensions::default(), None, &[])
}

pub fn fdt(instance_id: u32, instance: &Instance) -> Vec<u8> {
    let xml = instance.to_xml();
    let fti = Fti::NoCode { transfer_length: xml.len() as u64, symbol_size: u16::MAX, max_block: 1 };
    let fdt = Some(FdtExtension { version: 2, instance_id });
    let extensions = Extensions { fdt, fti: Some(fti), ..Extensions::default() };
    packet(Some(0), 0, extensions, Some(PayloadId { sbn: 0, esi: 0 }), xml.as_bytes())
}

pub fn complete(files: Vec<File>) -> Instance {
    Instance { expires: 1, complete: true, files, ..Instance::default() }
}

pub fn symbol(toi: u128, esi: u32, payload: &[u8]) -> Vec<u8> {
    packet(Some(toi), 0, Extensions::default(), Some(PayloadId { sbn: 0, esi }), payload)
}

/// A file without a code, its coding told in the FDT.
pub fn file(toi: u128, name: &str, bytes: u64, symbol_size: u16) -> File {
    let fti = Fti::NoCode { transfer_length: bytes, symbol_size, max_block: 64 };
    File {
        toi,
        content_location: name.to_owned(),
        transfer_length: Some(bytes),
        oti: OtiAttributes::from(&fti),
        ..File::default()
    }
}
