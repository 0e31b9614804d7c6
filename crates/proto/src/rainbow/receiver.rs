//! Rainbow receiver.

use core::net::SocketAddr;

use headwater_wire::bcfs::mark_any;

use super::SessionLabels;
use super::WindowConfig;
use super::packets::Basin;
use super::window::{Ask, RainbowWindow};
use crate::bcfs::{Client, Level};
use crate::machine::{ChannelId, Datagram, Input, Machine, Output, Transmit};
use crate::time::Instant;

/// Configuration of a [`RainbowReceiver`].
#[derive(Clone, Copy, Debug)]
pub struct RainbowReceiverConfig {
    source: SocketAddr,
    upstream: SocketAddr,
    labels: SessionLabels,
    channel: Option<ChannelId>,
    window: WindowConfig,
}

impl RainbowReceiverConfig {
    /// Creates the configuration of a receiver of a source's session. Requests go to `upstream`: a relay, or
    /// the source itself.
    pub fn new(source: SocketAddr, upstream: SocketAddr, labels: SessionLabels) -> Self {
        Self { source, upstream, labels, channel: None, window: WindowConfig::new() }
    }

    /// Sets a channel on which replies may arrive as well. Default: unicast only.
    #[must_use]
    pub fn with_channel(mut self, channel: ChannelId) -> Self {
        self.channel = Some(channel);
        self
    }

    /// Sets the window. Default: the paper's.
    #[must_use]
    pub fn with_window(mut self, window: WindowConfig) -> Self {
        self.window = window;
        self
    }
}

/// Counters of a receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RainbowReceiverCounters {
    /// Symbols received, requested or not.
    pub symbols: u64,
    /// Bytes in the bodies of these symbols.
    pub bytes: u64,
    /// Requests sent.
    pub requests: u64,
}

/// Event of a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RainbowReceiverEvent {
    /// The basin is full; the receiver sends no further requests.
    Completed,
}

/// Sends requests as the window permits until the basin is full; then leaves the channel and lets its
/// breadcrumbs expire. With a basin full from the start, the receiver neither joins nor sends requests.
#[derive(Debug)]
pub struct RainbowReceiver<B> {
    config: RainbowReceiverConfig,
    client: Client,
    window: RainbowWindow,
    basin: B,
    stage: Stage,
    counters: RainbowReceiverCounters,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    New,
    Joined,
    Asking,
    /// The basin is full, and the channel is not left yet.
    Full,
    /// The completion event is not reported yet.
    Left,
    Done,
}

impl<B: Basin> RainbowReceiver<B> {
    /// Creates a receiver that has sent no request.
    pub fn new(config: RainbowReceiverConfig, basin: B) -> Self {
        let mut client = Client::new(config.source, config.upstream);
        client.bind(config.labels.of(0), SessionLabels::MASK).expect("the first binding of a client");
        let (window, counters) = (RainbowWindow::new(config.window), RainbowReceiverCounters::default());
        Self { config, client, window, basin, stage: Stage::New, counters }
    }

    /// Returns the window.
    pub const fn window(&self) -> &RainbowWindow {
        &self.window
    }

    /// Returns the basin.
    pub const fn basin(&self) -> &B {
        &self.basin
    }

    /// Returns the receiver's counters.
    pub const fn counters(&self) -> &RainbowReceiverCounters {
        &self.counters
    }

    fn datagram(&mut self, now: Instant, datagram: &Datagram<'_>) {
        let Some(reply) = self.client.receive(datagram) else { return };
        let Some(label) = self.config.labels.window_label(reply.label) else { return };
        if self.stage != Stage::Asking {
            return;
        }
        self.counters.symbols += 1;
        self.counters.bytes += reply.body.len() as u64;
        self.basin.take(now, reply.body);
        if self.basin.is_full() {
            self.window.stop();
            self.stage = Stage::Full;
            return;
        }
        if reply.follows_loss {
            self.window.share_loss(now, label);
        }
        self.window.reply(now, label, reply.level.0);
    }

    fn poll_request(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        let Ask { label, level } = self.window.poll_ask(now)?;
        self.counters.requests += 1;
        let transmit = self.client.request(self.config.labels.of(label), Level(level), Some(&[]), buffer);
        mark_any(buffer);
        Some(transmit)
    }
}

impl<B: Basin> Machine for RainbowReceiver<B> {
    type Event = RainbowReceiverEvent;

    fn handle(&mut self, now: Instant, input: Input<'_>) {
        match input {
            Input::Datagram(datagram) => self.datagram(now, &datagram),
            Input::Timeout if self.stage == Stage::Asking => self.window.timeout(now),
            Input::Timeout | Input::Routed(..) => {}
        }
    }

    fn poll_output(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Output<RainbowReceiverEvent>> {
        if self.stage == Stage::New {
            self.stage = if self.basin.is_full() { Stage::Left } else { Stage::Joined };
            if self.stage == Stage::Joined
                && let Some(channel) = self.config.channel
            {
                return Some(Output::Join(channel));
            }
        }
        if self.stage == Stage::Joined {
            self.stage = Stage::Asking;
            self.window.start(now);
        }
        if self.stage == Stage::Full {
            self.stage = Stage::Left;
            if let Some(channel) = self.config.channel {
                return Some(Output::Leave(channel));
            }
        }
        if self.stage == Stage::Left {
            self.stage = Stage::Done;
            return Some(Output::Event(RainbowReceiverEvent::Completed));
        }
        self.poll_request(now, buffer).map(Output::Transmit)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match self.stage {
            Stage::New | Stage::Joined | Stage::Full | Stage::Left => Some(Instant::ZERO),
            Stage::Asking => self.window.poll_timeout(),
            Stage::Done => None,
        }
    }
}
