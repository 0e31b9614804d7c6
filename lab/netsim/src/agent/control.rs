//! Congestion control without content: sessions whose packets carry congestion control information only.

use headwater_proto::control::{Arrival, Membership, ReceiverControl, SenderControl};
use headwater_proto::{Destination, Duration, Input, Instant, Machine, Output, Transmit};
use headwater_wire::Cci;

/// Sends packets of a fixed length whenever the congestion control allows.
#[derive(Clone, Debug)]
pub struct ControlSender<C> {
    control: C,
    payload_bytes: u16,
}

/// Receives the packets of a [`ControlSender`].
#[derive(Clone, Debug)]
pub struct ControlReceiver<C> {
    control: C,
    cci_bytes: u16,
    /// Length of each presence and absence, and the instant of the next change.
    cycle: Option<(Duration, Instant)>,
    is_away: bool,
    is_started: bool,
}

/// Event type of a machine without events.
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
            Input::Routed(..) => {}
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
    /// Creates a receiver of 4-byte congestion control information, which begins when its agent starts.
    pub const fn new(control: C) -> Self {
        Self { control, cci_bytes: 4, cycle: None, is_away: false, is_started: false }
    }

    /// Sets the size of the congestion control information: 4, 8, 12 or 16 bytes.
    #[must_use]
    pub fn with_cci_bytes(mut self, bytes: u16) -> Self {
        self.cci_bytes = bytes;
        self
    }

    /// Lets the receiver alternate between absent and present each `cycle`. The first absence begins one
    /// cycle after the start.
    #[must_use]
    pub fn with_cycle(mut self, cycle: Option<Duration>) -> Self {
        self.cycle = cycle.filter(|cycle| *cycle > Duration::ZERO).map(|cycle| (cycle, Instant::ZERO));
        self
    }

    /// The congestion control.
    pub const fn control(&self) -> &C {
        &self.control
    }
}

impl<C: ReceiverControl> ControlReceiver<C> {
    /// Starts the control, or changes between present and absent.
    fn turn(&mut self, now: Instant) {
        if !self.is_started {
            self.is_started = true;
            self.control.start(now);
            self.cycle = self.cycle.map(|(cycle, _)| (cycle, now + cycle));
        }
        if let Some((cycle, next)) = self.cycle.filter(|(_, next)| *next <= now) {
            self.cycle = Some((cycle, next + cycle));
            self.is_away = !self.is_away;
            match self.is_away {
                true => self.control.stop(now),
                false => self.control.start(now),
            }
        }
    }
}

impl<C: ReceiverControl> Machine for ControlReceiver<C> {
    type Event = Silence;

    fn handle(&mut self, now: Instant, input: Input<'_>) {
        self.turn(now);
        let Input::Datagram(datagram) = input else { return self.control.timeout(now) };
        if datagram.channel.is_none() && self.control.answered(now, &datagram) {
            return;
        }
        let cci = datagram.payload.get(..self.cci_bytes.into()).map(Cci::new);
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
        self.control.poll_timeout().into_iter().chain(self.cycle.map(|(_, next)| next)).min()
    }
}
