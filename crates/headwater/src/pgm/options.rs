//! How messages are sent and received.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use headwater_proto::le_sbcc::{Chain, Config, Module};
use headwater_proto::{Instant, Rate, Seed};

use crate::chance;
use crate::congestion_control::MAX_RATE_DEFAULT;
use crate::receive::{ListenOptions, Loss};
use crate::trace::TraceHook;

/// Packets kept for repair on either side, unless told otherwise: 2 s at 100 Mbit/s. They take up to 25 MB.
const WINDOW_PACKETS: u32 = 16_384;

/// What is in a PGM message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framing {
    /// One message of the application; a long one goes in several packets (OPT_FRAGMENT).
    #[default]
    Messages,
    /// What ZeroMQ's `epgm://` sockets write and read: frames of ZMTP 1.0 behind the offset of the first. Short messages share packets.
    Zmq,
}

/// What finds the rate of a PGM sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PgmControl {
    /// A constant rate in bit/s of UDP payload, whatever happens: for networks of one's own.
    Fixed(Rate),
    /// LE-SBCC: what a TCP to the worst receiver would have.
    LeSbcc(LeSbccOptions),
}

impl PgmControl {
    /// Its name, as the command line spells it.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Fixed(_) => "fixed",
            Self::LeSbcc(options) => options.name(),
        }
    }

    /// The highest rate that it ever has.
    pub const fn rate_max(&self) -> Rate {
        match self {
            Self::Fixed(rate) => *rate,
            Self::LeSbcc(options) => options.max_rate(),
        }
    }
}

/// LE-SBCC: a fair single rate from the sender alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeSbccOptions {
    module: Module,
    start_rate: Option<Rate>,
    min_rate: Option<Rate>,
    max_rate: Rate,
}

impl Default for LeSbccOptions {
    fn default() -> Self {
        Self { module: Module::Aimd, start_rate: None, min_rate: None, max_rate: MAX_RATE_DEFAULT }
    }
}

impl LeSbccOptions {
    /// AIMD from a packet in 200 ms on, up to [`MAX_RATE_DEFAULT`].
    pub fn new() -> Self {
        Self::default()
    }

    /// What makes a rate of loss events: [`Module::Aimd`] as a TCP's, or [`Module::Tfrc`], smoother. Default: AIMD.
    #[must_use]
    pub fn with_module(mut self, module: Module) -> Self {
        self.module = module;
        self
    }

    /// The rate to begin with, in bit/s of UDP payload; it doubles each 0.4 s (TFRC: 0.2 s) until a first loss. Default: a packet each 200 ms.
    #[must_use]
    pub fn with_start_rate(mut self, rate: Option<Rate>) -> Self {
        self.start_rate = rate;
        self
    }

    /// Least that is ever sent, in bit/s of UDP payload: what no receiver can take the rate below, whatever it says that it misses.
    /// Default: some packets in ten seconds.
    #[must_use]
    pub fn with_min_rate(mut self, rate: Option<Rate>) -> Self {
        self.min_rate = rate;
        self
    }

    /// Most that is ever sent, in bit/s of UDP payload. Default: [`MAX_RATE_DEFAULT`].
    #[must_use]
    pub fn with_max_rate(mut self, rate: Rate) -> Self {
        self.max_rate = rate;
        self
    }

    /// Its name, as the command line spells it.
    pub const fn name(&self) -> &'static str {
        match self.module {
            Module::Aimd => "le-sbcc",
            Module::Tfrc => "le-sbcc-tfrc",
        }
    }

    /// Most that is ever sent.
    pub const fn max_rate(&self) -> Rate {
        self.max_rate
    }

    /// Least that is ever sent, where that was said.
    pub const fn min_rate(&self) -> Option<Rate> {
        self.min_rate
    }

    /// The chain, for packets of so many bytes of UDP payload.
    pub(crate) fn chain(&self, packet_bytes: u16, now: Instant) -> Chain {
        let config = Config::new(packet_bytes)
            .with_module(self.module)
            .with_doubling_at_start(true)
            .with_assumed_rtt(true)
            .with_max_rate(self.max_rate);
        let config = self.start_rate.map_or(config, |rate| config.with_initial_rate(rate));
        let config = self.min_rate.map_or(config, |rate| config.with_min_rate(rate));
        Chain::new(config, Seed(chance::number()).stream("le-sbcc", 0), now)
    }
}

/// How messages are sent.
pub struct PgmSendOptions {
    pub(super) group: SocketAddr,
    pub(super) control: PgmControl,
    pub(super) interface: Option<String>,
    pub(super) ttl: u8,
    pub(super) dscp: u8,
    pub(super) loopback: bool,
    pub(super) outage_max: Duration,
    pub(super) trace: Option<TraceHook>,
    pub(super) destination_port: Option<u16>,
    pub(super) framing: Framing,
    pub(super) payload_bytes: Option<u16>,
    pub(super) window_packets: u32,
    pub(super) linger: Duration,
}

impl PgmSendOptions {
    /// Messages to a group, at the UDP port at which NAKs are heard, too.
    pub fn new(group: SocketAddr, control: PgmControl) -> Self {
        Self {
            group,
            control,
            interface: None,
            ttl: 1,
            dscp: 0,
            loopback: true,
            outage_max: Duration::from_secs(60),
            trace: None,
            destination_port: None,
            framing: Framing::default(),
            payload_bytes: None,
            window_packets: WINDOW_PACKETS,
            linger: Duration::from_secs(2),
        }
    }

    /// [`SendOptions::with_interface`](crate::SendOptions::with_interface).
    #[must_use]
    pub fn with_interface(mut self, interface: Option<String>) -> Self {
        self.interface = interface;
        self
    }

    /// [`SendOptions::with_ttl`](crate::SendOptions::with_ttl).
    #[must_use]
    pub fn with_ttl(mut self, ttl: u8) -> Self {
        self.ttl = ttl;
        self
    }

    /// [`SendOptions::with_dscp`](crate::SendOptions::with_dscp).
    #[must_use]
    pub fn with_dscp(mut self, dscp: u8) -> Self {
        self.dscp = dscp;
        self
    }

    /// [`SendOptions::with_loopback`](crate::SendOptions::with_loopback).
    #[must_use]
    pub fn with_loopback(mut self, loopback: bool) -> Self {
        self.loopback = loopback;
        self
    }

    /// [`SendOptions::with_outage_max`](crate::SendOptions::with_outage_max).
    #[must_use]
    pub fn with_outage_max(mut self, outage_max: Duration) -> Self {
        self.outage_max = outage_max;
        self
    }

    /// [`SendOptions::with_trace`](crate::SendOptions::with_trace).
    #[must_use]
    pub fn with_trace(mut self, trace: Option<TraceHook>) -> Self {
        self.trace = trace;
        self
    }

    /// PGM port of the data, inside the packets. Default: the UDP port, as ZeroMQ has it; OpenPGM's own is 7500.
    #[must_use]
    pub fn with_destination_port(mut self, port: Option<u16>) -> Self {
        self.destination_port = port;
        self
    }

    /// What PGM messages hold. Default: the application's messages.
    #[must_use]
    pub fn with_framing(mut self, framing: Framing) -> Self {
        self.framing = framing;
        self
    }

    /// Bytes of a message in a packet, 16 to 8192. Default: what fits the interface's MTU, of which at most 1500 bytes are used, because receivers
    /// take no more unless told: ours by [`PgmReceiveOptions::with_payload_bytes`].
    #[must_use]
    pub fn with_payload_bytes(mut self, bytes: Option<u16>) -> Self {
        self.payload_bytes = bytes;
        self
    }

    /// Packets kept for repair, 16 to 2^20. They and those that wait take `payload_bytes` and 64 bytes each. Default: 16 384.
    #[must_use]
    pub fn with_window_packets(mut self, packets: u32) -> Self {
        self.window_packets = packets;
        self
    }

    /// How long to go on with repairs once all was sent and nobody asks any more: 0.35 s at least, in which the end is told, a minute in all at
    /// most. Default: 2 s.
    #[must_use]
    pub fn with_linger(mut self, linger: Duration) -> Self {
        self.linger = linger;
        self
    }
}

impl fmt::Debug for PgmSendOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PgmSendOptions")
            .field("group", &self.group)
            .field("control", &self.control)
            .field("interface", &self.interface)
            .field("framing", &self.framing)
            .field("payload_bytes", &self.payload_bytes)
            .field("window_packets", &self.window_packets)
            .finish_non_exhaustive()
    }
}

/// How messages are received.
#[derive(Debug)]
pub struct PgmReceiveOptions {
    pub(super) listen: ListenOptions,
    pub(super) destination_port: Option<u16>,
    pub(super) nak_port: Option<u16>,
    pub(super) framing: Framing,
    pub(super) payload_bytes: u16,
    pub(super) window_packets: u32,
    pub(super) message_bytes_max: u32,
}

impl PgmReceiveOptions {
    /// Receives the first source heard on a group.
    pub fn new(group: SocketAddr) -> Self {
        Self {
            listen: ListenOptions::new(group),
            destination_port: None,
            nak_port: None,
            framing: Framing::default(),
            payload_bytes: 1_500,
            window_packets: WINDOW_PACKETS,
            message_bytes_max: 16 << 20,
        }
    }

    /// [`ReceiveOptions::with_source`](crate::ReceiveOptions::with_source).
    #[must_use]
    pub fn with_source(mut self, source: Option<IpAddr>) -> Self {
        self.listen.source = source;
        self
    }

    /// [`ReceiveOptions::with_interface`](crate::ReceiveOptions::with_interface).
    #[must_use]
    pub fn with_interface(mut self, interface: Option<String>) -> Self {
        self.listen.interface = interface;
        self
    }

    /// Give up when nothing came for so long. A source that has nothing to send says so every 30 s. Default: never.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.listen.timeout = timeout;
        self
    }

    /// [`ReceiveOptions::with_loss`](crate::ReceiveOptions::with_loss).
    #[must_use]
    pub fn with_loss(mut self, loss: Option<Loss>) -> Self {
        self.listen.loss = loss;
        self
    }

    /// [`ReceiveOptions::with_trace`](crate::ReceiveOptions::with_trace).
    #[must_use]
    pub fn with_trace(mut self, trace: Option<TraceHook>) -> Self {
        self.listen.trace = trace;
        self
    }

    /// PGM port of the data, inside the packets. Default: the UDP port, as ZeroMQ has it; OpenPGM's own is 7500.
    #[must_use]
    pub fn with_destination_port(mut self, port: Option<u16>) -> Self {
        self.destination_port = port;
        self
    }

    /// UDP port that NAKs are sent to. Default: that of the group, as ZeroMQ has it; OpenPGM's own is 3055.
    #[must_use]
    pub fn with_nak_port(mut self, port: Option<u16>) -> Self {
        self.nak_port = port;
        self
    }

    /// What PGM messages hold. Default: the application's messages.
    #[must_use]
    pub fn with_framing(mut self, framing: Framing) -> Self {
        self.framing = framing;
        self
    }

    /// Most bytes of a message in a packet, 16 to 8192: what the sender's [`PgmSendOptions::with_payload_bytes`] says, or more. Packets of more
    /// are dropped, and counted as malformed. Default: 1500.
    #[must_use]
    pub fn with_payload_bytes(mut self, bytes: u16) -> Self {
        self.payload_bytes = bytes.clamp(16, 8_192);
        self
    }

    /// Packets kept out of order, 16 to 2^20. They take `payload_bytes` and 24 bytes each. Default: 16 384.
    #[must_use]
    pub fn with_window_packets(mut self, packets: u32) -> Self {
        self.window_packets = packets;
        self
    }

    /// Most bytes of a message; longer ones are dropped, and counted. Default: 16 MiB.
    #[must_use]
    pub fn with_message_bytes_max(mut self, bytes: u32) -> Self {
        self.message_bytes_max = bytes;
        self
    }
}
