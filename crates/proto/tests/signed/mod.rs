//! A signed sender of layers that follows reports, as drivers of sockets have it.

use headwater_fec::{Order, Scheme};
use headwater_proto::auth::{Signing, SigningConfig, StandIn};
use headwater_proto::control::SenderControl;
use headwater_proto::delivery::{
    DeliverySender, DeliverySenderConfig, End, FileToSend, MemorySource, PlanConfig, RelativePath,
    SessionPlan,
};
use headwater_proto::{
    ChannelId, DATAGRAM_BYTES_MAX, Datagram, Destination, Input, Instant, Machine, Output,
};
use headwater_wire::Cci;
use headwater_wire::extensions::{Extensions, Lateness, Levels};
use headwater_wire::lct;

const TSI: u32 = 9;

pub struct SignedSender {
    machine: DeliverySender<Box<dyn SenderControl + Send>, MemorySource>,
    buffer: Vec<u8>,
}

/// Header fields of a packet that a control reads.
#[derive(Clone, Copy)]
pub struct Header {
    pub channel: ChannelId,
    pub cci: Cci,
    pub levels: Option<Levels>,
    pub lateness: Option<Lateness>,
}

impl SignedSender {
    /// Signs packets of a session without end.
    pub fn new(control: Box<dyn SenderControl + Send>) -> Self {
        let content = vec![7; 1 << 20];
        let path = RelativePath::new("file").expect("a name");
        let file = FileToSend { path, bytes: content.len() as u64, mode: None, modified: None };
        let plan = PlanConfig {
            scheme: Scheme::RaptorQ,
            symbol_size: 1_344,
            order: Order::Spread { rate: 100_000_000 },
        };
        let plan = SessionPlan::new(vec![file], plan).expect("a plan of one file");
        let source = MemorySource::new(&plan, &[&content]);
        let digests = source.digests();
        let config = DeliverySenderConfig::new(TSI).with_end(End::Never);
        let signing =
            Signing::new(SigningConfig::new(TSI.into(), 0xE000_0000, 1, [3; 32]), Box::new(StandIn([7; 32])));
        let machine = DeliverySender::new(config, &plan, &digests, control, source).expect("sound digests");
        Self { machine: machine.with_signing(Some(signing)), buffer: vec![0; DATAGRAM_BYTES_MAX] }
    }

    pub fn next_departure(&self) -> Option<Instant> {
        self.machine.poll_timeout()
    }

    pub fn feedback(&mut self, now: Instant, datagram: Datagram<'_>) {
        self.machine.handle(now, Input::Datagram(datagram));
    }

    pub fn on_full_link(&mut self, packets_per_second: f64) {
        self.machine.on_full_link(packets_per_second);
    }

    /// Returns the packet that leaves at `now`, if any.
    pub fn depart(&mut self, now: Instant) -> Option<Header> {
        self.machine.handle(now, Input::Timeout);
        while let Some(output) = self.machine.poll_output(now, &mut self.buffer) {
            let Output::Transmit(transmit) = output else { continue };
            let Destination::Channel(channel) = transmit.destination else { continue };
            let packet = lct::Packet::new_checked(&self.buffer[..transmit.bytes]).expect("an LCT packet");
            let cci = Cci::new(packet.cci()).expect("a CCI");
            let extensions =
                Extensions::parse(packet.extensions(), packet.codepoint()).expect("sound extensions");
            let Extensions { levels, lateness, .. } = extensions;
            return Some(Header { channel, cci, levels, lateness });
        }
        None
    }
}
