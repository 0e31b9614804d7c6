//! Options of sending and receiving messages.

use std::net::SocketAddr;
use std::time::Duration;

use headwater_proto as proto;
use headwater_proto::controls::{self, Control};
use headwater_proto::le_sbcc::{Chain, LeSbccConfig, Module};
use headwater_proto::{Instant, Rate, Seed};

use crate::congestion_control::MAX_RATE_DEFAULT;
use crate::receive::ListenOptions;
use crate::send::LinkOptions;
use crate::system;

/// Default number of packets kept for repair at either end: 2 s at 100 Mbit/s, up to 25 MB.
const WINDOW_PACKETS: u32 = 16_384;

/// Content of a PGM message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framing {
    /// One message of the application; a long message takes several packets (OPT_FRAGMENT).
    #[default]
    Messages,
    /// Format of ZeroMQ's `epgm://` sockets: frames of ZMTP 1.0 behind the offset of the first frame. Short
    /// messages share packets.
    Zmq,
    /// Bytes of a stream. A packet holds bytes of several messages, and receivers get the bytes in order but
    /// in other pieces. Bytes lost for good end the session of a receiver, because later bytes have no place.
    Bytes,
}

/// Control of the rate of a PGM sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PgmControl {
    /// Constant rate in bit/s of UDP payload, without congestion control: for private networks.
    Fixed(Rate),
    /// LE-SBCC: the rate of a TCP flow to the worst receiver.
    LeSbcc(LeSbccOptions),
}

impl PgmControl {
    /// Returns the name on the command line.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Fixed(_) => controls::FIXED.name,
            Self::LeSbcc(options) => options.name(),
        }
    }

    /// Returns the highest possible rate.
    pub const fn rate_max(&self) -> Rate {
        match self {
            Self::Fixed(rate) => *rate,
            Self::LeSbcc(options) => options.max_rate(),
        }
    }
}

/// Options of LE-SBCC: a fair single rate, found by the sender alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeSbccOptions {
    module: Module,
    start_rate: Option<Rate>,
    min_rate: Option<Rate>,
    max_rate: Rate,
    waits_for_slowest: bool,
}

impl Default for LeSbccOptions {
    fn default() -> Self {
        Self {
            module: Module::Aimd,
            start_rate: None,
            min_rate: None,
            max_rate: MAX_RATE_DEFAULT,
            waits_for_slowest: false,
        }
    }
}

impl LeSbccOptions {
    /// Creates options for AIMD from one packet in 200 ms up to [`MAX_RATE_DEFAULT`].
    pub fn new() -> Self {
        Self::default()
    }

    /// Rate calculation from loss events: [`Module::Aimd`] as in TCP, or the smoother [`Module::Tfrc`],
    /// [`Module::Sqrt`] and [`Module::Iiad`]. Default: AIMD.
    #[must_use]
    pub fn with_module(mut self, module: Module) -> Self {
        self.module = module;
        self
    }

    /// Initial rate in bit/s of UDP payload. The rate doubles until the first loss: every 0.4 to 1.2 s once a
    /// receiver has answered (twice the time of the answer). Before the first answer, the rate of messages
    /// doubles every 2 s, because receivers of other makes need not answer, and the rate of files does not
    /// grow. Default: a packet each 200 ms.
    #[must_use]
    pub fn with_start_rate(mut self, rate: Option<Rate>) -> Self {
        self.start_rate = rate;
        self
    }

    /// Minimum rate in bit/s of UDP payload, whatever losses receivers report. Default: some packets in ten
    /// seconds.
    #[must_use]
    pub fn with_min_rate(mut self, rate: Option<Rate>) -> Self {
        self.min_rate = rate;
        self
    }

    /// Maximum rate in bit/s of UDP payload. Default: [`MAX_RATE_DEFAULT`].
    #[must_use]
    pub fn with_max_rate(mut self, rate: Rate) -> Self {
        self.max_rate = rate;
        self
    }

    /// Whether the rate of files follows the slowest receiver however slow, as in the control's paper. By
    /// default, the rate stays above the lesser of 200 kbit/s and a fiftieth of the maximum rate. A receiver
    /// that holds the rate there for 10 s is dismissed for 5 minutes. Messages of PGM always wait for the
    /// slowest receiver, because receivers of other makes cannot be told of a dismissal.
    #[must_use]
    pub fn with_wait_for_slowest(mut self, waits: bool) -> Self {
        self.waits_for_slowest = waits;
        self
    }

    /// Returns the name on the command line.
    pub const fn name(&self) -> &'static str {
        self.control().name
    }

    /// Returns options with the module of an entry of the table of controls; `None` for the entry of another
    /// control.
    pub fn of(control: &Control) -> Option<Self> {
        let modules = Module::ALL.map(|module| Self::new().with_module(module));
        modules.into_iter().find(|options| options.control() == control)
    }

    /// Returns the entry in the table of controls.
    pub(crate) const fn control(&self) -> &'static Control {
        match self.module {
            Module::Aimd => &controls::LE_SBCC,
            Module::Tfrc => &controls::LE_SBCC_TFRC,
            Module::Sqrt => &controls::LE_SBCC_SQRT,
            Module::Iiad => &controls::LE_SBCC_IIAD,
        }
    }

    /// Returns the maximum rate.
    pub const fn max_rate(&self) -> Rate {
        self.max_rate
    }

    /// Returns the minimum rate, if set.
    pub const fn min_rate(&self) -> Option<Rate> {
        self.min_rate
    }

    /// Creates the chain for packets of `packet_bytes` of UDP payload. Until a receiver answers, the rate
    /// doubles at most every `blind`; `None`: never.
    pub(crate) fn chain(&self, packet_bytes: u16, blind: Option<proto::Duration>, now: Instant) -> Chain {
        let config = self.config(packet_bytes, blind);
        Chain::new(config, Seed(system::random_u64()).stream("le-sbcc", 0), now)
    }

    /// Creates the chain of a session of files: receivers can be dismissed.
    pub(crate) fn chain_of_files(&self, packet_bytes: u16, now: Instant) -> Chain {
        // All receivers of files greet the sender.
        let config = self.config(packet_bytes, None).with_dismissal(!self.waits_for_slowest);
        Chain::new(config, Seed(system::random_u64()).stream("le-sbcc", 0), now)
    }

    fn config(&self, packet_bytes: u16, blind: Option<proto::Duration>) -> LeSbccConfig {
        let config = LeSbccConfig::new(packet_bytes)
            .with_module(self.module)
            .with_doubling_at_start(true)
            .with_blind_doubling(blind)
            .with_assumed_rtt(true)
            .with_max_rate(self.max_rate);
        let config = self.start_rate.map_or(config, |rate| config.with_initial_rate(rate));
        self.min_rate.map_or(config, |rate| config.with_min_rate(rate))
    }
}

/// Options of packets that must be equal at both ends.
#[derive(Clone, Copy, Debug, Default)]
pub struct PgmWireOptions {
    /// PGM port of the data, inside the packets. Default: the UDP port, as ZeroMQ has it; OpenPGM's own is
    /// 7500.
    pub destination_port: Option<u16>,
    /// Content of PGM messages. Default: the application's messages.
    pub framing: Framing,
}

impl PgmWireOptions {
    /// Returns the PGM port of the data for a session on a group.
    pub(super) fn port(&self, group: SocketAddr) -> u16 {
        self.destination_port.unwrap_or(group.port())
    }
}

/// Options of sending messages.
#[derive(Debug)]
pub struct PgmSendOptions {
    /// Group, interface and marking of packets. NAKs arrive at the group's UDP port, too.
    pub link: LinkOptions,
    /// Control of the rate.
    pub control: PgmControl,
    /// Format of packets.
    pub wire: PgmWireOptions,
    /// Bytes of a message in a packet, 16 to 8192. Default: the room in the interface's MTU up to 1500 bytes,
    /// because receivers accept no more by default ([`PgmReceiveOptions::payload_bytes`]).
    pub payload_bytes: Option<u16>,
    /// Packets kept for repair, 16 to 2^20. A kept or waiting packet takes `payload_bytes` and 64 bytes.
    /// Default: 16 384.
    pub window_packets: u32,
    /// Time for repairs after the last message and the last request: at least 0.35 s, in which the end is
    /// announced, and at most a minute in total. Default: 5 s, in which a receiver with the default waits
    /// sends two NAKs, of which one may be lost.
    pub linger: Duration,
}

/// Default time for repairs after the last message and the last request.
const LINGER: Duration = Duration::from_secs(5);

impl PgmSendOptions {
    /// Sends messages to a group.
    pub fn new(link: impl Into<LinkOptions>, control: PgmControl) -> Self {
        Self {
            link: link.into(),
            control,
            wire: PgmWireOptions::default(),
            payload_bytes: None,
            window_packets: WINDOW_PACKETS,
            linger: LINGER,
        }
    }
}

/// Options of receiving messages. An idle source announces itself every 30 s: a timeout should be longer.
#[derive(Debug)]
pub struct PgmReceiveOptions {
    /// Group, source, interface and limits.
    pub listen: ListenOptions,
    /// Format of packets.
    pub wire: PgmWireOptions,
    /// UDP port that NAKs are sent to. Default: the group's port, as in ZeroMQ; OpenPGM's own port is 3055.
    pub nak_port: Option<u16>,
    /// Maximum bytes of a message in a packet, 16 to 8192 (the nearest otherwise): at least the sender's
    /// [`PgmSendOptions::payload_bytes`]. Longer packets are dropped and counted as malformed. Default: 1500.
    pub payload_bytes: u16,
    /// Packets kept out of order, 16 to 2^20. A packet takes `payload_bytes` and 24 bytes. Default: 16 384.
    pub window_packets: u32,
    /// Maximum bytes of a message; longer messages are dropped and counted. Default: 16 MiB.
    pub message_bytes_max: u32,
}

impl PgmReceiveOptions {
    /// Receives from the first source heard on a group.
    pub fn new(listen: impl Into<ListenOptions>) -> Self {
        Self {
            listen: listen.into(),
            wire: PgmWireOptions::default(),
            nak_port: None,
            payload_bytes: 1_500,
            window_packets: WINDOW_PACKETS,
            message_bytes_max: 16 << 20,
        }
    }
}

#[cfg(test)]
mod tests {
    use headwater_proto::pgm::PgmReceiverConfig;

    use super::*;

    /// A receiver whose repair was lost sends the next NAK after [`PgmReceiverConfig::RETRY_MAX`].
    #[test]
    fn a_source_outlasts_two_naks_of_a_receiver_that_misses_its_repair() {
        let retry: Duration = PgmReceiverConfig::RETRY_MAX.into();
        assert!(LINGER > 2 * retry, "{LINGER:?}");
    }
}
