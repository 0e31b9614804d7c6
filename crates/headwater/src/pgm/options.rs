//! How messages are sent and received.

use std::net::SocketAddr;
use std::time::Duration;

use headwater_proto as proto;
use headwater_proto::controls::{self, Control};
use headwater_proto::le_sbcc::{Chain, Config, Module};
use headwater_proto::{Instant, Rate, Seed};

use crate::congestion_control::MAX_RATE_DEFAULT;
use crate::receive::{ListenOptions, listen_setters};
use crate::send::{LinkOptions, link_setters};
use crate::system;

/// Packets kept for repair on either side, unless told otherwise: 2 s at 100 Mbit/s. They take up to 25 MB.
const WINDOW_PACKETS: u32 = 16_384;

/// What is in a PGM message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framing {
    /// One message of the application; a long one goes in several packets (OPT_FRAGMENT).
    #[default]
    Messages,
    /// What ZeroMQ's `epgm://` sockets write and read: frames of ZMTP 1.0 behind the offset of the first.
    /// Short messages share packets.
    Zmq,
    /// Bytes of a stream: those of several messages stand in one packet, and receivers get them in order, in
    /// other pieces than they were handed over in. What is lost for good ends the session of a receiver:
    /// nothing that follows has a place.
    Bytes,
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
            Self::Fixed(_) => controls::FIXED.name,
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

    /// What makes a rate of loss events: [`Module::Aimd`] as a TCP's, or [`Module::Tfrc`], smoother. Default:
    /// AIMD.
    #[must_use]
    pub fn with_module(mut self, module: Module) -> Self {
        self.module = module;
        self
    }

    /// The rate to begin with, in bit/s of UDP payload. It doubles until a first loss: each 0.4 to 1.2 s once
    /// a receiver was heard, by twice what its answer took. Before that, messages double it in 2 s, as
    /// receivers of other makes need not answer, and files not at all. Default: a packet each 200 ms.
    #[must_use]
    pub fn with_start_rate(mut self, rate: Option<Rate>) -> Self {
        self.start_rate = rate;
        self
    }

    /// Least that is ever sent, in bit/s of UDP payload: what no receiver can take the rate below, whatever
    /// it says that it misses. Default: some packets in ten seconds.
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
        self.control().name
    }

    /// The options with the module of an entry of the table of controls; `None` if the entry is another
    /// control's.
    pub fn of(control: &Control) -> Option<Self> {
        let modules = [Module::Aimd, Module::Tfrc].map(|module| Self::new().with_module(module));
        modules.into_iter().find(|options| options.control() == control)
    }

    /// Its entry in the table of controls.
    pub(crate) const fn control(&self) -> &'static Control {
        match self.module {
            Module::Aimd => &controls::LE_SBCC,
            Module::Tfrc => &controls::LE_SBCC_TFRC,
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

    /// The chain, for packets of so many bytes of UDP payload. At the start the rate doubles each `blind` at
    /// most while no receiver was heard; `None`: not before.
    pub(crate) fn chain(&self, packet_bytes: u16, blind: Option<proto::Duration>, now: Instant) -> Chain {
        let config = Config::new(packet_bytes)
            .with_module(self.module)
            .with_doubling_at_start(true)
            .with_blind_doubling(blind)
            .with_assumed_rtt(true)
            .with_max_rate(self.max_rate);
        let config = self.start_rate.map_or(config, |rate| config.with_initial_rate(rate));
        let config = self.min_rate.map_or(config, |rate| config.with_min_rate(rate));
        Chain::new(config, Seed(system::random_u64()).stream("le-sbcc", 0), now)
    }
}

/// What both ends must agree on.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WireOptions {
    pub(super) destination_port: Option<u16>,
    pub(super) framing: Framing,
}

impl WireOptions {
    /// PGM port of the data, of a session on a group.
    pub(super) fn port(&self, group: SocketAddr) -> u16 {
        self.destination_port.unwrap_or(group.port())
    }
}

/// The options of either end, for a type with [`WireOptions`] in its field `wire`.
macro_rules! wire_setters {
    () => {
        /// PGM port of the data, inside the packets. Default: the UDP port, as ZeroMQ has it; OpenPGM's own
        /// is 7500.
        #[must_use]
        pub fn with_destination_port(mut self, port: Option<u16>) -> Self {
            self.wire.destination_port = port;
            self
        }

        /// What PGM messages hold. Default: the application's messages.
        #[must_use]
        pub fn with_framing(mut self, framing: Framing) -> Self {
            self.wire.framing = framing;
            self
        }
    };
}

/// How messages are sent.
#[derive(Debug)]
pub struct PgmSendOptions {
    pub(super) link: LinkOptions,
    pub(super) control: PgmControl,
    pub(super) wire: WireOptions,
    pub(super) payload_bytes: Option<u16>,
    pub(super) window_packets: u32,
    pub(super) linger: Duration,
}

impl PgmSendOptions {
    /// Messages to a group, at the UDP port at which NAKs are heard, too.
    pub fn new(group: SocketAddr, control: PgmControl) -> Self {
        Self {
            link: LinkOptions::new(group),
            control,
            wire: WireOptions::default(),
            payload_bytes: None,
            window_packets: WINDOW_PACKETS,
            linger: Duration::from_secs(2),
        }
    }

    link_setters!(link);
    wire_setters!();

    /// Bytes of a message in a packet, 16 to 8192. Default: what fits the interface's MTU, of which at most
    /// 1500 bytes are used, because receivers take no more unless told: ours by
    /// [`PgmReceiveOptions::with_payload_bytes`].
    #[must_use]
    pub fn with_payload_bytes(mut self, bytes: Option<u16>) -> Self {
        self.payload_bytes = bytes;
        self
    }

    /// Packets kept for repair, 16 to 2^20. They and those that wait take `payload_bytes` and 64 bytes each.
    /// Default: 16 384.
    #[must_use]
    pub fn with_window_packets(mut self, packets: u32) -> Self {
        self.window_packets = packets;
        self
    }

    /// How long to go on with repairs once all was sent and nobody asks any more: 0.35 s at least, in which
    /// the end is told, a minute in all at most. Default: 2 s.
    #[must_use]
    pub fn with_linger(mut self, linger: Duration) -> Self {
        self.linger = linger;
        self
    }
}

/// How messages are received. A source that has nothing to send says so every 30 s: a timeout is longer.
#[derive(Debug)]
pub struct PgmReceiveOptions {
    pub(super) listen: ListenOptions,
    pub(super) wire: WireOptions,
    pub(super) nak_port: Option<u16>,
    pub(super) payload_bytes: u16,
    pub(super) window_packets: u32,
    pub(super) message_bytes_max: u32,
}

impl PgmReceiveOptions {
    /// Receives the first source heard on a group.
    pub fn new(group: SocketAddr) -> Self {
        Self {
            listen: ListenOptions::new(group),
            wire: WireOptions::default(),
            nak_port: None,
            payload_bytes: 1_500,
            window_packets: WINDOW_PACKETS,
            message_bytes_max: 16 << 20,
        }
    }

    listen_setters!();
    wire_setters!();

    /// UDP port that NAKs are sent to. Default: that of the group, as ZeroMQ has it; OpenPGM's own is 3055.
    #[must_use]
    pub fn with_nak_port(mut self, port: Option<u16>) -> Self {
        self.nak_port = port;
        self
    }

    /// Most bytes of a message in a packet, 16 to 8192: what the sender's
    /// [`PgmSendOptions::with_payload_bytes`] says, or more. Packets of more are dropped, and counted as
    /// malformed. Default: 1500.
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
