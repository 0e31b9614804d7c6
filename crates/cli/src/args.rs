//! Arguments of the command line. One definition feeds parsing, help, completions and the man pages.

mod bench;
mod demo;
mod follow;
mod get;
mod groups;
mod input;
mod keys;
mod pgm;
mod preserve;
mod relay;
mod relay_amt;
mod relay_sim;
mod repair;
mod roster;
mod select;
mod serve;
mod sim;
mod stream;
pub mod values;
mod view;

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use headwater::{FetchedDescription, LinkOptions, ListenOptions, Loss};
use headwater_proto::control::Rules;
use headwater_proto::controls::Control;
use headwater_proto::{Rate, Size};

use crate::capture::Capture;
use crate::exit::Failure;
use crate::keys::state_folder;

pub use bench::{BenchArgs, BenchPart, MeasureArgs};
pub use demo::DemoArgs;
pub use follow::{FollowArgs, RunForFilesArgs, RunTiedArgs};
pub use get::GetArgs;
pub use groups::GroupArgs;
pub use input::InputArgs;
pub use keys::{KeygenArgs, SignArgs, TrustArgs};
pub use pgm::{Form, FramingName, PgmArgs, PgmCommand, PgmControlName, PgmReceiveArgs, PgmSendArgs};
pub use preserve::{AppliedMetadataArgs, HolesName, KeptLinks, SentMetadataArgs, kinds};
pub use relay::{QueueName, RelayArgs};
pub use relay_sim::SimMarking;
pub use repair::{Repair, RepairArgs, RepairServerArgs, ServingArgs};
pub use roster::RosterArgs;
pub use select::{BundleName, CodingName, SelectArgs};
pub use serve::ServeArgs;
pub use sim::SimArgs;
pub use stream::{
    Codec, DemoVideoArgs, StreamArgs, StreamCommand, StreamReceiveArgs, StreamSendArgs, VideoArgs,
};
pub use values::{AmtRelayName, Host};
pub(crate) use view::address as view_address;
pub use view::{ViewAddressArgs, ViewArgs, ViewCommandArgs};

/// Default group of sessions: administratively scoped (RFC 2365, organization-local), with "HW" in ASCII.
pub const GROUP_DEFAULT: &str = "239.255.72.87:7287";
/// Default time to live: number of routers that packets may cross, plus 1.
pub const TTL_DEFAULT: u8 = 1;
/// Default time that a sender continues without an interface.
pub const OUTAGE_DEFAULT: Duration = Duration::from_secs(60);
/// Default port of a group.
pub const PORT_DEFAULT: u16 = 7287;

const EXIT_CODES: &str = "\
Exit codes:
    0  done: every file was sent, or received whole and verified
    1  any other error
    2  usage: an option, a file name or a plan is wrong
    3  network: no such interface, no route, address in use; doctor found a problem
    4  nothing was received before the timeout, or not the session or files asked for
    5  incomplete: refused files, or the session ended or fell silent before all was done
    6  verification failed: a file differs from the sender's digest and was discarded
    7  disk: a file could not be read or written
    8  packets arrived before the timeout, but no packet of a trusted sender
    9  a sender left out files: changed, unreadable, or of refused names; all others were sent
   10  packets of a session arrived, but no content that a key of --group-key decrypts
  130  interrupted";

const SEND_EXAMPLES: &str = "\
Examples:
  headwater send --interface eth0 image.iso          each receiver at its own rate, until interrupted
  headwater send --max-rate 1G --duration 1h x.iso   the same, up to 1 Gbit/s, for an hour
  headwater send --passes 2 --rate 50M photos/       two passes over a folder
  headwater send --congestion-control rainbow x.iso  on request, by unicast, until interrupted
  headwater send --expect hosts.txt image.iso        until each host of the file has everything
  zstd -c disk.img | headwater send --until 5 -      standard input, until 5 receivers have everything
  headwater send --dry-run --rate 100M image.iso     show the packets and the duration; send nothing";

const RECEIVE_EXAMPLES: &str = "\
Examples:
  headwater receive --interface eth0 --out incoming/
  headwater receive --source 192.0.2.1 --group 232.1.2.3:7287 --timeout 30s --out incoming/
  headwater receive --amt 198.51.100.7 --source 192.0.2.1 --group 232.1.2.3:7287 --out incoming/
  headwater receive --ask 192.0.2.1 --out incoming/
  headwater receive --ask 192.0.2.1 --via 198.51.100.7 --out incoming/";

const DOCTOR_EXAMPLES: &str = "\
Examples:
  headwater doctor --interface eth0              a checklist with advice; exit code 3 if there is a problem
  headwater doctor --source 192.0.2.1            may packets of this sender come in?
  headwater doctor --events receive.sqlog        why is this transfer as fast as it is?
  headwater doctor --answer --interface eth0     on another machine: answer probes";

const INSPECT_EXAMPLES: &str = "\
Examples:
  headwater inspect session.pcap
  headwater inspect --json session.pcapng | jq 'select(.lct.toi == \"0\")'
  headwater inspect --fields tsv --port 7287 session.pcap     columns by the names of tshark";

const GENERATE_EXAMPLES: &str = "\
Examples:
  headwater generate share         headwater.bash, _headwater for zsh, headwater.fish, man pages
  source share/headwater.bash      completions in this shell
  man share/headwater-send.1       every option of `headwater send`";

/// Sends files to any number of receivers at once, by multicast.
///
/// Content travels as ALC/LCT packets with FLUTE's file delivery table and an erasure code, so that receivers
/// may join at any time and repair losses without feedback.
#[derive(Debug, Parser)]
#[command(name = "headwater", version, propagate_version = true, after_help = EXIT_CODES, max_term_width = 110)]
pub struct Cli {
    /// Command.
    #[command(subcommand)]
    pub command: Command,
}

/// Commands of `headwater`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Send files and folders until interrupted, or for some passes or time
    #[command(after_help = SEND_EXAMPLES, after_long_help = long(SEND_EXAMPLES))]
    Send(Box<SendArgs>),
    /// Receive and verify the files of a session, then stop
    #[command(after_help = RECEIVE_EXAMPLES, after_long_help = long(RECEIVE_EXAMPLES))]
    Receive(Box<ReceiveArgs>),
    /// Fetch the files that a URL describes: by multicast, on request or by HTTP, as the network permits
    #[command(after_help = get::EXAMPLES, after_long_help = long(get::EXAMPLES))]
    Get(Box<GetArgs>),
    /// Run carousels over folders, and receivers that follow senders, as one daemon
    #[command(after_help = serve::EXAMPLES, after_long_help = long(serve::EXAMPLES))]
    Serve(ServeArgs),
    /// Send and receive messages over PGM, to and from ZeroMQ's and OpenPGM's sockets, too
    Pgm(PgmArgs),
    /// Send and receive live video and other content of which each receiver gets as much as its path carries
    Stream(StreamArgs),
    /// Relay requests of receivers to sources, and replies to receivers, on networks without multicast
    #[command(after_help = relay::EXAMPLES, after_long_help = long(relay::EXAMPLES))]
    Relay(Box<RelayArgs>),
    /// Make a key that signs sessions, or a group's key that encrypts sessions
    #[command(after_help = keys::KEYGEN_EXAMPLES)]
    Keygen(KeygenArgs),
    /// Show a sender and three receivers at work on this machine; needs no network and no root
    #[command(after_help = demo::EXAMPLES, after_long_help = long(demo::EXAMPLES))]
    Demo(Box<DemoArgs>),
    /// Show the live pages of several ends on one page
    #[command(after_help = view::EXAMPLES, after_long_help = long(view::EXAMPLES))]
    View(ViewCommandArgs),
    /// Diagnose missing packets: check this machine, the network, the group, and answers of other machines
    #[command(after_help = DOCTOR_EXAMPLES, after_long_help = long(DOCTOR_EXAMPLES))]
    Doctor(DoctorArgs),
    /// Show the packets of a capture, field by field
    #[command(after_help = INSPECT_EXAMPLES, after_long_help = long(INSPECT_EXAMPLES))]
    Inspect(InspectArgs),
    /// Run an experiment in the packet simulator: `headwater-lab simulate`
    #[command(disable_help_flag = true)]
    Simulate(SimulateArgs),
    /// Measure the speed of this machine, beside the bare limit in the same run
    #[command(after_help = bench::EXAMPLES, after_long_help = long(bench::EXAMPLES))]
    Bench(BenchArgs),
    /// Write completions for bash, zsh and fish, and man pages, into a folder
    #[command(after_help = GENERATE_EXAMPLES)]
    Generate(GenerateArgs),
    /// Run a program for each path on standard input
    #[command(hide = true)]
    RunForFiles(RunForFilesArgs),
    /// Run a program that ends with the process that runs this command
    #[command(hide = true)]
    RunTied(RunTiedArgs),
}

/// Returns the message of a wrong command line, without the usage.
pub fn error_lines(error: &clap::Error) -> String {
    let text = error.to_string();
    let lines: Vec<_> = text.lines().take_while(|line| !line.starts_with("Usage:")).collect();
    lines.join("\n").trim().trim_start_matches("error: ").to_owned()
}

/// The examples of a command, then the exit codes.
fn long(examples: &str) -> String {
    format!("{examples}\n\n{EXIT_CODES}")
}

/// `headwater send`.
#[derive(Debug, Args)]
pub struct SendArgs {
    /// Files and folders to send; - alone is standard input, whose length need not be known
    #[arg(required = true, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub paths: Vec<PathBuf>,
    #[command(flatten)]
    pub metadata: SentMetadataArgs,
    /// Small files that travel in bundles, stored zips that receivers unpack
    #[arg(long, value_name = "WHICH", value_enum, default_value_t = BundleName::Auto)]
    pub bundle: BundleName,
    /// Compress files and bundles whose content shrinks; `zstd` without a value
    #[arg(long, value_name = "CODING", value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "zstd")]
    pub compress: Option<CodingName>,
    #[command(flatten)]
    pub network: NetworkArgs,
    #[command(flatten)]
    pub link: LinkArgs,
    /// One rate for all receivers, in bit/s of UDP payload: 500k, 10M, 2.5G. `auto`, for dedicated networks:
    /// the highest rate that the slowest of nine tenths of the receivers takes with little loss, by their
    /// reports; takes the whole path and is not fair to TCP
    #[arg(long, value_name = "RATE|auto", value_parser = values::send_rate)]
    pub rate: Option<SendRate>,
    /// Congestion control of the receivers' rates [default: m2c; with --rate, fixed; with --rate auto,
    /// dedicated]
    #[arg(long, value_name = "NAME", value_parser = values::control())]
    pub congestion_control: Option<&'static Control>,
    /// Maximum rate of a receiver, which all channels together send; with le-sbcc, rainbow and --rate auto,
    /// maximum sending rate, by default unlimited with rainbow
    /// [default: 95 % of the interface's speed, without --rate auto at most 1G, and with --demand off,
    /// le-sbcc and sim 100M]
    #[arg(long, value_name = "RATE", value_parser = values::rate)]
    pub max_rate: Option<Rate>,
    /// Minimum rate of a receiver: the rate of the base channel [default: 120k]; with le-sbcc, minimum
    /// sending rate [default: the lesser of 200k and a fiftieth of
    /// --max-rate]; with --rate auto, rate at the start and without reports, and ten times the least that a
    /// slow receiver brings about [default: 10M]
    #[arg(long, value_name = "RATE", value_parser = values::rate)]
    pub base_rate: Option<Rate>,
    /// With m2c, webrc and flid-dl: `on` sends only the rates that receivers report by unicast, and
    /// --idle-rate to all; `off` is for networks that carry no reports [default: on]
    #[arg(long, value_name = "WHETHER", value_enum)]
    pub demand: Option<Demand>,
    /// With m2c, webrc and flid-dl: rate that is sent without reports of receivers [default: 1.2M]
    #[arg(long, value_name = "RATE", value_parser = values::rate)]
    pub idle_rate: Option<Rate>,
    /// With le-sbcc: follow the slowest receiver, however slow, as the control's paper has it. By default, a
    /// receiver that holds the rate at --base-rate for 10 s leaves the session for 5 minutes
    #[arg(long)]
    pub wait_for_slowest: bool,
    /// With rainbow: address for requests; at most one of each IP version [default: all, port 7288]
    #[arg(long, value_name = "ADDR[:PORT]", value_parser = values::own_source)]
    pub listen: Vec<SocketAddr>,
    #[command(flatten)]
    pub groups: GroupArgs,
    #[command(flatten)]
    pub sim: SimArgs,
    /// Show the session and the duration; send nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Erasure code, by which receivers repair losses
    #[arg(long, value_name = "CODE", value_enum, default_value_t = Fec::Raptorq)]
    pub fec: Fec,
    /// Order of sending: `spread` for receivers that join at any time, `window` for a common start
    #[arg(long, value_name = "ORDER", value_enum, default_value_t = Order::Auto)]
    pub order: Order,
    /// Bytes of content in a packet
    /// [default: 1344, or the most that the interface's MTU permits; 64 more with --no-sign, 64 fewer with
    /// --group-key]
    #[arg(long, value_name = "BYTES", value_parser = values::symbol_size)]
    pub symbol_size: Option<u16>,
    /// Session identifier, 1 to 4294967295; default: random
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub tsi: Option<u32>,
    /// Stop after this number of passes; one pass sends as many packets as the content fills. Passes and
    /// --duration count from the end of standard input
    #[arg(long, value_name = "N", conflicts_with = "duration", value_parser = clap::value_parser!(u64).range(1..))]
    pub passes: Option<u64>,
    /// Stop after this time: 500ms, 10s, 5m, 1h
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub duration: Option<Duration>,
    /// Maximum memory for coding: 64MiB, 4GiB; repair symbols of content that needs more are stored on disk
    #[arg(long, value_name = "BYTES", default_value = "256MiB", value_parser = values::size)]
    pub memory: Size,
    /// Folder for repair symbols on disk, as many bytes as the content, and for compressed content; default:
    /// TMPDIR, else /tmp
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub temp_dir: Option<PathBuf>,
    #[command(flatten)]
    pub input: InputArgs,
    #[command(flatten)]
    pub roster: RosterArgs,
    #[command(flatten)]
    pub repair: RepairServerArgs,
    #[command(flatten)]
    pub confine: ConfineArgs,
    #[command(flatten)]
    pub keys: SignArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `headwater receive`.
#[derive(Clone, Debug, Args)]
pub struct ReceiveArgs {
    /// Folder for the files; created if missing. A file of the same name is replaced
    #[arg(long, value_name = "DIR", required_unless_present = "to", value_hint = ValueHint::DirPath)]
    pub out: Option<PathBuf>,
    /// Write the session's single file to this block device or pipe; - is standard output. Blocks are written
    /// once verified, to a pipe in order. --out then names the folder of working files [default: a folder of
    /// the user's state]
    #[arg(long, value_name = "PATH", value_hint = ValueHint::AnyPath, conflicts_with_all = ["follow", "exec"])]
    pub to: Option<PathBuf>,
    #[command(flatten)]
    pub select: SelectArgs,
    #[command(flatten)]
    pub metadata: AppliedMetadataArgs,
    #[command(flatten)]
    pub network: NetworkArgs,
    #[command(flatten)]
    pub listen: ListenArgs,
    /// Session identifier; default: that of the first session that arrives
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..1 << 48))]
    pub tsi: Option<u64>,
    /// Take group, source, identifier and the sender's key from a description (SDP) in this file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["group", "source", "tsi", "ask"])]
    pub sdp: Option<PathBuf>,
    /// The description in that file, once read.
    #[arg(skip)]
    pub described: Option<FetchedDescription>,
    /// Stop if no needed data arrives for this time: 10s, 5m; default: never (`headwater get`: 60s)
    #[arg(long, value_name = "TIME", value_parser = values::duration, conflicts_with = "follow")]
    pub timeout: Option<Duration>,
    /// Request packets from this source, by address or name, by unicast; the source sends with
    /// --congestion-control rainbow
    #[arg(long, value_name = "HOST[:PORT]", value_parser = values::source, conflicts_with_all = ["group", "source", "max_rate", "rtt", "rules"])]
    pub ask: Option<SocketAddr>,
    /// With --ask: the nearest relay [default: requests go to the source]
    #[arg(long, value_name = "HOST[:PORT]", value_parser = values::relay, requires = "ask")]
    pub via: Option<SocketAddr>,
    /// With --ask: group for replies to all receivers on this network, as given to the relay with --multicast
    #[arg(long, value_name = "ADDR:PORT", value_parser = values::group, requires = "ask")]
    pub multicast: Option<SocketAddr>,
    /// Receive the group by unicast through an AMT relay, on networks without multicast; `auto` asks DNS for
    /// the relay of --source (RFC 8777)
    #[arg(long, value_name = "HOST[:PORT]|auto", value_parser = values::amt_relay, conflicts_with_all = ["ask", "interface"])]
    pub amt: Option<AmtRelayName>,
    /// Maximum rate to receive in bit/s, except from SIM; default: the fair rate of the path
    #[arg(long, value_name = "RATE", value_parser = values::rate)]
    pub max_rate: Option<Rate>,
    /// Round-trip time to the sender on an idle path: 20ms; default: measured by unicast queries, a few times
    /// an hour
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub rtt: Option<Duration>,
    /// Rules by which a receiver of m2c or webrc changes its rate
    #[arg(long, value_name = "RULES", default_value = Rules::NAMES[0].0, value_parser = values::rules())]
    pub rules: Rules,
    /// Send no reports: a sender without --demand off sends little, and no sender counts this receiver
    #[arg(long)]
    pub no_reports: bool,
    /// Name in reports to the sender [default: the host's name, to senders of signed sessions alone]
    #[arg(long, value_name = "NAME", value_parser = values::name, conflicts_with = "no_reports")]
    pub name: Option<String>,
    /// Authenticate reports by a key of this file (headwater keygen --group), for a sender with the same
    /// --roster-key
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "no_reports")]
    pub roster_key: Option<PathBuf>,
    /// Wait at the end for this time at most until the sender knows that this receiver has ended
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = values::duration, conflicts_with = "no_reports")]
    pub linger: Duration,
    #[command(flatten)]
    pub follow: FollowArgs,
    #[command(flatten)]
    pub repair: RepairArgs,
    #[command(flatten)]
    pub serve: ServingArgs,
    #[command(flatten)]
    pub view: ViewArgs,
    #[command(flatten)]
    pub confine: ConfineArgs,
    #[command(flatten)]
    pub keys: TrustArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

impl ReceiveArgs {
    /// Returns the place of the content: the folder, the device or the pipe.
    pub fn place(&self) -> &Path {
        self.to.as_deref().or(self.out.as_deref()).unwrap_or(Path::new("."))
    }

    /// Returns the folder of working files, which is also the place of the files without `--to`.
    pub fn folder(&self) -> PathBuf {
        self.out.clone().unwrap_or_else(|| {
            let state = state_folder().unwrap_or_else(|| std::env::temp_dir().join("headwater"));
            let name = blake3::hash(self.place().as_os_str().as_encoded_bytes()).to_hex();
            state.join("to").join(&name[..16])
        })
    }
}

/// `headwater doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    #[command(flatten)]
    pub network: NetworkArgs,
    /// Expected sender, by address or name
    #[arg(long, value_name = "HOST", value_parser = values::host)]
    pub source: Option<Host>,
    /// Time to live of probes; 1 stays on the local network
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..))]
    pub ttl: u8,
    /// Time to listen for sessions and for IGMP or MLD queries
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = values::duration)]
    pub wait: Duration,
    /// Explain the speed of a transfer from the log that its receiver writes (`receive --events FILE`)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub events: Option<PathBuf>,
    /// Answer probes of other machines instead, until interrupted
    #[arg(long, conflicts_with_all = ["ttl", "wait", "events"])]
    pub answer: bool,
    /// Print checks as JSON, one object per line, and a summary
    #[arg(long)]
    pub json: bool,
}

/// `headwater inspect`.
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// Capture in pcap or pcapng format; `-` reads standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// Show only packets to this UDP port, including packets of other protocols than ALC and PGM
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,
    /// One JSON object per packet
    #[arg(long, conflicts_with = "fields")]
    pub json: bool,
    /// Columns with the names and the format of `tshark -T fields`; one row for every frame
    #[arg(long, value_name = "FORMAT", value_enum)]
    pub fields: Option<FieldsFormat>,
}

/// `headwater simulate`.
#[derive(Debug, Args)]
pub struct SimulateArgs {
    /// Plan and options of `headwater-lab simulate`
    #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
    pub arguments: Vec<OsString>,
}

/// `headwater generate`.
#[derive(Debug, Args)]
pub struct GenerateArgs {
    /// Folder; created if missing
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,
}

/// Network of a session.
#[derive(Clone, Debug, Args)]
pub struct NetworkArgs {
    /// Multicast group of the session, IPv6 in brackets; default port: 7287
    #[arg(long, value_name = "ADDR:PORT", default_value = GROUP_DEFAULT, value_parser = values::group)]
    pub group: SocketAddr,
    /// Network interface by name or address; default: the interface of the route to the group, but never
    /// loopback
    #[arg(long, value_name = "IF", value_parser = NonEmptyStringValueParser::new())]
    pub interface: Option<String>,
}

impl NetworkArgs {
    /// Returns the options of a sender, with packets written to `capture`.
    pub fn sender(&self, link: &LinkArgs, capture: Option<&Capture>) -> LinkOptions {
        LinkOptions {
            interface: self.interface.clone(),
            ttl: link.ttl,
            dscp: link.dscp,
            offload: !link.no_offload,
            outage_max: link.outage,
            trace: capture.map(Capture::hook),
            ..LinkOptions::new(self.group)
        }
    }

    /// Returns the options of a receiver, with packets written to `capture`.
    ///
    /// # Errors
    /// If `--source` has no address in the group's IP version.
    pub fn receiver(&self, listen: &ListenArgs, capture: Option<&Capture>) -> Result<ListenOptions, Failure> {
        Ok(ListenOptions {
            interface: self.interface.clone(),
            source: listen.source_for(self.group)?,
            loss: listen.drop.map(|probability| Loss { probability, seed: listen.seed }),
            trace: capture.map(Capture::hook),
            ..ListenOptions::new(self.group)
        })
    }
}

/// Sending of packets.
#[derive(Debug, Args)]
pub struct LinkArgs {
    /// Time to live of packets; 1 stays on the local network
    #[arg(long, value_name = "N", default_value_t = TTL_DEFAULT, value_parser = clap::value_parser!(u8).range(1..))]
    pub ttl: u8,
    /// DiffServ code point of the packets, 0 to 63
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(..=63))]
    pub dscp: u8,
    /// Continue for this time while the interface is missing, down or unable to send
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = values::duration)]
    pub outage: Duration,
    /// Send datagrams one by one, not in runs that the kernel segments: for interfaces that segment badly
    #[arg(long)]
    pub no_offload: bool,
}

/// Accepted packets.
#[derive(Clone, Debug, Args)]
pub struct ListenArgs {
    /// Accept packets from this sender only, by address or name (source-specific multicast)
    #[arg(long, value_name = "HOST", value_parser = values::host)]
    pub source: Option<Host>,
    /// Drop each packet with this probability, 0 to 1: fault injection
    #[arg(long, value_name = "P", hide = true, value_parser = values::probability)]
    pub drop: Option<f64>,
    /// Seed of the dropped packets
    #[arg(long, value_name = "N", hide = true, requires = "drop", default_value_t = 1)]
    pub seed: u64,
}

impl ListenArgs {
    /// Returns the address of `--source` in the group's IP version.
    ///
    /// # Errors
    /// If the host has no such address.
    pub fn source_for(&self, group: SocketAddr) -> Result<Option<IpAddr>, Failure> {
        self.source.as_ref().map(|source| source.for_option("--source", group.ip())).transpose()
    }
}

/// Output while a session runs.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Output")]
pub struct OutputArgs {
    /// Print events as JSON, one object per line, on standard output
    #[arg(long)]
    pub json: bool,
    /// Write events to a file in qlog's JSON-SEQ form
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub events: Option<PathBuf>,
    /// Write the packets to a pcap file, for Wireshark and `headwater inspect`
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub pcap: Option<PathBuf>,
    /// Print errors only, no progress
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Log more; twice for debugging. The variable HEADWATER_LOG selects messages by module
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Write log lines as JSON
    #[arg(long)]
    pub log_json: bool,
}

/// Confinement of the process.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Process")]
pub struct ConfineArgs {
    /// Leave the process unconfined. By default, after start, the process opens no file outside of its
    /// folders, starts no program, and gains no privileges (Linux: Landlock, seccomp)
    #[arg(long)]
    pub no_sandbox: bool,
    /// Become this user before the first packet is read; needs root
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
}

/// Erasure code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Fec {
    /// RaptorQ (RFC 6330): any packets suffice, 0.1 % more than the content
    Raptorq,
    /// LDPC-Triangle (RFC 5170): one block of up to 80 000 packets, 0.7 % more than the content
    LdpcTriangle,
    /// LDPC-Staircase (RFC 5170): one block, some percent more than the content
    LdpcStaircase,
    /// Reed-Solomon over GF(2^8) (RFC 5510)
    Rs,
    /// No code (RFC 5445): a receiver waits for exactly the missing packets
    None,
}

impl From<Fec> for headwater_fec::Scheme {
    fn from(fec: Fec) -> Self {
        match fec {
            Fec::Raptorq => Self::RaptorQ,
            Fec::LdpcTriangle => Self::LdpcTriangle,
            Fec::LdpcStaircase => Self::LdpcStaircase,
            Fec::Rs => Self::ReedSolomon,
            Fec::None => Self::NoCode,
        }
    }
}

/// Rate for all receivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendRate {
    /// A constant rate.
    Constant(Rate),
    /// A rate that the sender finds.
    Auto,
}

/// Whether a sender follows its receivers' reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Demand {
    /// Send what receivers report.
    On,
    /// Send all rates.
    Off,
}

/// Order of sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Order {
    /// `window` for a --rate of 1 Gbit/s or more, else `spread`
    Auto,
    /// All blocks in turn, for receivers that join at any time
    Spread,
    /// A few blocks at a time with 1 % of repair packets, then passes of repair packets
    Window,
}

impl From<Order> for Option<headwater::SendOrder> {
    fn from(order: Order) -> Self {
        match order {
            Order::Auto => None,
            Order::Spread => Some(headwater::SendOrder::Spread),
            Order::Window => Some(headwater::SendOrder::Window),
        }
    }
}

/// Format of columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FieldsFormat {
    /// Separated by tabs, with a header line
    Tsv,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_stated_defaults_hold() {
        let cli = Cli::try_parse_from(["headwater", "send", "x"]).unwrap();
        let Command::Send(send) = cli.command else { panic!("send was said") };
        assert_eq!(send.network.group.to_string(), GROUP_DEFAULT);
        assert_eq!((send.link.ttl, send.link.dscp, send.symbol_size), (1, 0, None));
        assert_eq!(send.link.outage, OUTAGE_DEFAULT);
        assert_eq!((send.rate, send.congestion_control, send.fec), (None, None, Fec::Raptorq));
        assert_eq!(headwater::MAX_RATE_DEFAULT.as_bits(), 100_000_000);
        assert_eq!(headwater::FAST_RATE_DEFAULT.as_bits(), 1_000_000_000);
        assert_eq!((headwater::IDLE_RATE_DEFAULT.as_bits(), send.demand), (1_200_000, None));
        assert_eq!(headwater::BASE_RATE_DEFAULT.as_bits(), 120_000);
        assert_eq!((send.order, send.metadata.links), (Order::Auto, preserve::LinksName::Follow));
        assert!(send.passes.is_none() && send.duration.is_none() && send.network.interface.is_none());
    }
}
