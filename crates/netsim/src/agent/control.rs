//! A congestion control by itself: sessions whose packets carry its information and nothing else.

use headwater_proto::control::{Arrival, Membership, ReceiverControl, SenderControl};
use headwater_proto::{Destination, Input, Instant, Machine, Output, Transmit};
use headwater_wire::Cci;

/// Sends packets of a set length whenever a congestion control lets it.
#[derive(Clone, Debug)]
pub struct ControlSender<C> {
    control: C,
    payload_bytes: u16,
}

/// Receives them.
#[derive(Clone, Debug)]
pub struct ControlReceiver<C> {
    control: C,
    is_started: bool,
}

/// A machine that tells nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {}

impl<C> ControlSender<C> {
    /// A sender of packets of `payload_bytes` of UDP payload.
    ///
    /// # Panics
    /// When that is too short for congestion control information: 16 bytes.
    pub fn new(control: C, payload_bytes: u16) -> Self {
        assert!(payload_bytes >= 16, "a packet carries congestion control information");
        Self { control, payload_bytes }
    }

    /// The congestion control.
    pub const fn control(&self) -> &C {
        &self.control
    }
}

impl<C: SenderControl> Machine for ControlSender<C> {
    type Event = Silence;

    fn handle(&mut self, now: Instant, input: Input<'_>) {
        match input {
            Input::Timeout => self.control.timeout(now),
            Input::Datagram(datagram) => self.control.feedback(now, &datagram),
        }
    }

    fn poll_output(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Output<Silence>> {
        if let Some(transmit) = self.control.poll_transmit(now, buffer) {
            return Some(Output::Transmit(transmit));
        }
        let departure = self.control.departure(now)?;
        let bytes = usize::from(self.payload_bytes);
        let cci = departure.cci.as_bytes();
        buffer[..bytes].fill(0);
        buffer[..cci.len()].copy_from_slice(cci);
        self.control.departed(now, bytes);
        let destination = Destination::Channel(departure.channel);
        Some(Output::Transmit(Transmit { destination, bytes, ecn: departure.ecn }))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.control.next_departure().into_iter().chain(self.control.poll_timeout()).min()
    }
}

impl<C> ControlReceiver<C> {
    /// A receiver of 4-byte congestion control information, which begins when its agent does.
    pub const fn new(control: C) -> Self {
        Self { control, is_started: false }
    }

    /// The congestion control.
    pub const fn control(&self) -> &C {
        &self.control
    }
}

impl<C: ReceiverControl> Machine for ControlReceiver<C> {
    type Event = Silence;

    fn handle(&mut self, now: Instant, input: Input<'_>) {
        if !self.is_started {
            self.is_started = true;
            self.control.start(now);
        }
        let Input::Datagram(datagram) = input else { return self.control.timeout(now) };
        if datagram.channel.is_none() && self.control.answered(now, &datagram) {
            return;
        }
        let cci = datagram.payload.get(..4).map(Cci::new);
        if let (Some(channel), Some(Ok(cci))) = (datagram.channel, cci) {
            let (source, ecn, bytes) = (datagram.source, datagram.ecn, datagram.payload.len());
            self.control.arrived(now, &Arrival { source, channel, cci: &cci, ecn, bytes });
        }
    }

    fn poll_output(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Output<Silence>> {
        match self.control.poll_membership() {
            Some(Membership::Join(channel)) => Some(Output::Join(channel)),
            Some(Membership::Leave(channel)) => Some(Output::Leave(channel)),
            None => self.control.poll_transmit(now, buffer).map(Output::Transmit),
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.control.poll_timeout()
    }
}
