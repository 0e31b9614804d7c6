//! `headwater pgm`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use headwater::pgm::PgmWireOptions;
use headwater_proto::{Rate, Size};

use super::{ConfineArgs, LinkArgs, ListenArgs, NetworkArgs, OutputArgs, values};

pub const SEND_EXAMPLES: &str = "\
Examples:
  tail -f /var/log/syslog | headwater pgm send --interface eth0      a line is a message
  headwater pgm send --size 1400 --max-rate 20M < samples.bin        messages of 1400 bytes
  tar c photos | headwater pgm send --framing bytes                  a stream of bytes, for `pgm receive --framing bytes | tar x`
  headwater pgm send --framing zmq --group 239.192.1.1:5555          for ZeroMQ subscribers of epgm://eth0;239.192.1.1:5555";

pub const RECEIVE_EXAMPLES: &str = "\
Examples:
  headwater pgm receive --interface eth0 > lines.txt
  headwater pgm receive --framing zmq --form lengths --group 239.192.1.1:5555 | consumer
  headwater pgm receive --json --out messages.txt --timeout 60s      messages to a file, events to standard output";

/// `headwater pgm`.
#[derive(Debug, Args)]
pub struct PgmArgs {
    /// Command.
    #[command(subcommand)]
    pub command: PgmCommand,
}

/// Commands of `headwater pgm`.
#[derive(Debug, Subcommand)]
pub enum PgmCommand {
    /// Send messages from standard input, at a fair rate by the receivers' NAKs
    #[command(after_help = SEND_EXAMPLES, after_long_help = super::long(SEND_EXAMPLES))]
    Send(Box<PgmSendArgs>),
    /// Receive the messages of a source, complete and in order, to standard output
    #[command(after_help = RECEIVE_EXAMPLES, after_long_help = super::long(RECEIVE_EXAMPLES))]
    Receive(Box<PgmReceiveArgs>),
}

/// `headwater pgm send`.
#[derive(Debug, Args)]
pub struct PgmSendArgs {
    #[command(flatten)]
    pub network: NetworkArgs,
    #[command(flatten)]
    pub link: LinkArgs,
    #[command(flatten)]
    pub wire: WireArgs,
    /// Constant rate in bit/s of UDP payload: 500k, 10M, 2.5G
    #[arg(long, value_name = "RATE", value_parser = values::rate)]
    pub rate: Option<Rate>,
    /// Congestion control [default: le-sbcc; with --rate, fixed]
    #[arg(long, value_name = "NAME", value_enum)]
    pub congestion_control: Option<PgmControlName>,
    /// Maximum rate [default: 100M]
    #[arg(long, value_name = "RATE", value_parser = values::rate)]
    pub max_rate: Option<Rate>,
    /// Initial rate, which doubles until the first loss [default: a packet in 200 ms]
    #[arg(long, value_name = "RATE", value_parser = values::rate)]
    pub start_rate: Option<Rate>,
    /// Form of messages on standard input [default: lines; with --size or --framing bytes, bytes]
    #[arg(long, value_name = "FORM", value_enum)]
    pub form: Option<Form>,
    /// Bytes of each message, with --form bytes
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..))]
    pub size: Option<u32>,
    /// Bytes of messages in a packet; receivers accept up to 1500 by default
    /// [default: the most that fits the MTU, and 1500 bytes with all headers]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(16..=8192))]
    pub payload: Option<u16>,
    /// Time for repairs after the last message and the last request; at least 350ms
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = values::duration)]
    pub linger: Duration,
    #[command(flatten)]
    pub confine: ConfineArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `headwater pgm receive`.
#[derive(Debug, Args)]
pub struct PgmReceiveArgs {
    #[command(flatten)]
    pub network: NetworkArgs,
    #[command(flatten)]
    pub listen: ListenArgs,
    #[command(flatten)]
    pub wire: WireArgs,
    /// UDP port of the sender for NAKs
    /// [default: the port of the group, as in ZeroMQ; OpenPGM's is 3055]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub nak_port: Option<u16>,
    /// Form of written messages [default: lines; with --framing bytes, bytes]
    #[arg(long, value_name = "FORM", value_enum)]
    pub form: Option<Form>,
    /// Write messages to a file, which is replaced; required with --json [default: standard output]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub out: Option<PathBuf>,
    /// Maximum bytes of messages in a packet: at least the sender's --payload
    #[arg(long, value_name = "BYTES", default_value_t = 1500, value_parser = clap::value_parser!(u16).range(16..=8192))]
    pub payload: u16,
    /// Maximum length of a message: 64kB, 16MiB
    #[arg(long, value_name = "BYTES", default_value = "16MiB", value_parser = values::size)]
    pub message_max: Size,
    /// Stop if nothing arrives for this time: 60s, 5m; an idle source announces itself every 30 s; default:
    /// never
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub timeout: Option<Duration>,
    #[command(flatten)]
    pub confine: ConfineArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Options that must be equal at both ends.
#[derive(Debug, Args)]
pub struct WireArgs {
    /// Content of PGM messages
    #[arg(long, value_name = "NAME", value_enum, default_value_t = FramingName::Messages)]
    pub framing: FramingName,
    /// PGM port of the data, inside the packets
    /// [default: the port of the group, as in ZeroMQ; OpenPGM's is 7500]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub pgm_port: Option<u16>,
    /// Packets kept for repair, or out of order
    #[arg(long, value_name = "PACKETS", default_value_t = 16_384, value_parser = clap::value_parser!(u32).range(16..=1 << 20))]
    pub window: u32,
}

impl WireArgs {
    /// Returns the options of either end.
    pub fn options(&self) -> PgmWireOptions {
        PgmWireOptions { destination_port: self.pgm_port, framing: self.framing.into() }
    }
}

/// Congestion control of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PgmControlName {
    /// The rate of a TCP flow to the worst receiver, derived from NAKs
    LeSbcc,
    /// As le-sbcc, by the TCP throughput equation: smoother
    LeSbccTfrc,
    /// As le-sbcc, with smaller steps down (binomial)
    LeSbccSqrt,
    /// As le-sbcc, with the smallest steps up and down (binomial)
    LeSbccIiad,
    /// The constant rate of --rate
    Fixed,
}

/// Content of PGM messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FramingName {
    /// One message in each
    Messages,
    /// Messages of ZeroMQ's epgm:// sockets
    Zmq,
    /// A stream of bytes without messages, from standard input to the standard output of each receiver
    Bytes,
}

/// Separation of messages in a stream of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// Each message is a line
    Lines,
    /// The length in 4 bytes, most significant first, then the message
    Lengths,
    /// No separation; a sender needs --size, unless --framing is bytes
    Bytes,
}
