//! `headwater pgm`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum, ValueHint};
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
    /// What to do.
    #[command(subcommand)]
    pub command: PgmCommand,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum PgmCommand {
    /// Send messages from standard input, at a rate that the receivers' NAKs make fair
    #[command(after_help = SEND_EXAMPLES, after_long_help = super::long(SEND_EXAMPLES))]
    Send(Box<PgmSendArgs>),
    /// Receive the messages of a source, whole and in order, to standard output
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
    /// A constant rate, in bit/s of UDP payload: 500k, 10M, 2.5G
    #[arg(long, value_name = "RATE", value_parser = values::rate)]
    pub rate: Option<Rate>,
    /// How the rate is found [default: le-sbcc; with --rate, fixed]
    #[arg(long, value_name = "NAME", value_enum)]
    pub congestion_control: Option<PgmControlName>,
    /// Most that is sent [default: 100M]
    #[arg(long, value_name = "RATE", value_parser = values::rate)]
    pub max_rate: Option<Rate>,
    /// Rate to begin with; it doubles until a first packet is lost [default: a packet in 200 ms]
    #[arg(long, value_name = "RATE", value_parser = values::rate)]
    pub start_rate: Option<Rate>,
    /// How messages stand on standard input [default: lines; with --size or --framing bytes, bytes]
    #[arg(long, value_name = "FORM", value_enum)]
    pub form: Option<Form>,
    /// Messages of so many bytes: --form bytes
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..))]
    pub size: Option<u32>,
    /// Bytes of messages in a packet; receivers take up to 1500 unless told
    /// [default: what fits the MTU, and 1500 bytes with all headers]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(16..=8192))]
    pub payload: Option<u16>,
    /// Once all is sent, go on with repairs until nobody has asked for so long; 350ms at least
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
    /// UDP port of the sender that hears NAKs
    /// [default: that of the group, as ZeroMQ has it; OpenPGM's is 3055]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub nak_port: Option<u16>,
    /// How messages are written [default: lines; with --framing bytes, bytes]
    #[arg(long, value_name = "FORM", value_enum)]
    pub form: Option<Form>,
    /// Write messages to a file, which is replaced; default: standard output, where --json does not need it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub out: Option<PathBuf>,
    /// Most bytes of messages in a packet: as many as the sender's --payload, or more
    #[arg(long, value_name = "BYTES", default_value_t = 1500, value_parser = clap::value_parser!(u16).range(16..=8192))]
    pub payload: u16,
    /// Longest message that is taken: 64kB, 16MiB
    #[arg(long, value_name = "BYTES", default_value = "16MiB", value_parser = values::size)]
    pub message_max: Size,
    /// Give up when nothing came for this time: 60s, 5m; a source with nothing to send says so every 30 s;
    /// default: never
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub timeout: Option<Duration>,
    #[command(flatten)]
    pub confine: ConfineArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// What both ends must agree on.
#[derive(Debug, Args)]
pub struct WireArgs {
    /// What PGM messages hold
    #[arg(long, value_name = "NAME", value_enum, default_value_t = FramingName::Messages)]
    pub framing: FramingName,
    /// PGM port of the data, inside the packets
    /// [default: that of the group, as ZeroMQ has it; OpenPGM's is 7500]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub pgm_port: Option<u16>,
    /// Packets kept for repair, or out of order
    #[arg(long, value_name = "PACKETS", default_value_t = 16_384, value_parser = clap::value_parser!(u32).range(16..=1 << 20))]
    pub window: u32,
}

/// How the rate is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PgmControlName {
    /// What a TCP to the worst receiver would have, from the NAKs of any receivers
    LeSbcc,
    /// The same, by TCP's equation: smoother
    LeSbccTfrc,
    /// The rate of --rate, whatever happens
    Fixed,
}

/// What PGM messages hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FramingName {
    /// A message each
    Messages,
    /// What ZeroMQ's epgm:// sockets write and read
    Zmq,
    /// A stream of bytes, without messages: standard input of one end comes out of the others as it went in
    Bytes,
}

/// How messages stand one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// A message is a line
    Lines,
    /// The length in 4 bytes, the highest first, then the message
    Lengths,
    /// Nothing in between; a sender needs --size, but with --framing bytes
    Bytes,
}
