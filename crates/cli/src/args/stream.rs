//! `headwater stream`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use headwater_proto::control::Rules;
use headwater_proto::controls::Control;
use headwater_proto::{Rate, Size};

use super::{
    ConfineArgs, Form, GroupArgs, LinkArgs, ListenArgs, NetworkArgs, OutputArgs, SignArgs, TrustArgs, values,
};

pub const SEND_EXAMPLES: &str = "\
Examples:
  headwater stream send --video test                            a test picture with a clock
  headwater stream send --video film.mkv --max-rate 6M          a film, in real time
  headwater stream send --video /dev/video0 --gop 480ms         a camera
  headwater stream send --video rtsp://192.0.2.7/live           whatever ffmpeg reads
  headwater stream send --stdin --buffer 1s --size 250kB < data other content: each second the next 250 kB";

pub const RECEIVE_EXAMPLES: &str = "\
Examples:
  headwater stream receive                                      a page with the video at http://127.0.0.1:8080/
  headwater stream receive --http 0.0.0.0:8080 --interface eth0 the page for this network, too
  headwater stream receive --out recording/                     the best that came, as files that players read
  mpv http://127.0.0.1:8080/master.m3u8                         another player, while `stream receive` runs";

/// `headwater stream`.
#[derive(Debug, Args)]
pub struct StreamArgs {
    /// Command.
    #[command(subcommand)]
    pub command: StreamCommand,
}

/// Commands of `headwater stream`.
#[derive(Debug, Subcommand)]
pub enum StreamCommand {
    /// Send video, or buffers from standard input, each with the most important bytes first
    #[command(after_help = SEND_EXAMPLES, after_long_help = super::long(SEND_EXAMPLES))]
    Send(Box<StreamSendArgs>),
    /// Receive a stream: video as a web page and for players, other content as files
    #[command(after_help = RECEIVE_EXAMPLES, after_long_help = super::long(RECEIVE_EXAMPLES))]
    Receive(Box<StreamReceiveArgs>),
}

/// `headwater stream send`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("content").required(true).args(["source", "stdin"]))]
pub struct StreamSendArgs {
    #[command(flatten)]
    pub video: VideoArgs,
    /// Send buffers from standard input
    #[arg(long, requires = "buffer", conflicts_with_all = ["codec", "rungs", "gop", "fps", "repair", "no_audio", "ffmpeg"])]
    pub stdin: bool,
    /// With --stdin: time in which a buffer is sent: 500ms, 1s
    #[arg(long, value_name = "TIME", requires = "stdin", value_parser = values::duration)]
    pub buffer: Option<Duration>,
    /// With --stdin: bytes of each buffer [default: the input has --form lengths]
    #[arg(long, value_name = "BYTES", requires = "stdin", value_parser = values::size)]
    pub size: Option<Size>,
    /// With --stdin: form of the buffers [default: lengths; with --size, bytes]
    #[arg(long, value_name = "FORM", value_enum, requires = "stdin")]
    pub form: Option<Form>,
    #[command(flatten)]
    pub network: NetworkArgs,
    #[command(flatten)]
    pub link: LinkArgs,
    /// Maximum rate of a receiver, which all channels together send [default: 2400k; with --stdin 100M]
    #[arg(long, value_name = "RATE", value_parser = values::rate)]
    pub max_rate: Option<Rate>,
    /// Minimum rate of a receiver: the rate of the base channel [default: 120k]
    #[arg(long, value_name = "RATE", value_parser = values::rate)]
    pub base_rate: Option<Rate>,
    /// Congestion control with layers [default: m2c]
    #[arg(long, value_name = "NAME", value_parser = values::control())]
    pub congestion_control: Option<&'static Control>,
    #[command(flatten)]
    pub groups: GroupArgs,
    /// Bytes of content in a packet
    /// [default: 1344, or the most that the interface's MTU permits; 64 more with --no-sign, 64 fewer with
    /// --group-key]
    #[arg(long, value_name = "BYTES", value_parser = values::symbol_size)]
    pub symbol_size: Option<u16>,
    /// Session identifier, 1 to 4294967295; default: random
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub tsi: Option<u32>,
    #[command(flatten)]
    pub confine: ConfineArgs,
    #[command(flatten)]
    pub keys: SignArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Options of video.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Video")]
pub struct VideoArgs {
    /// Source that ffmpeg reads: a file, a device, a URL; `-` for standard input, `test` for a test picture
    #[arg(long = "video", id = "source", value_name = "SOURCE", allow_hyphen_values = true, value_hint = ValueHint::AnyPath)]
    pub source: Option<String>,
    /// Format of the source, as ffmpeg's -f, where ffmpeg does not find out: v4l2, x11grab, rawvideo
    #[arg(long, value_name = "NAME", requires = "source")]
    pub input_format: Option<String>,
    /// Codec of the video; av1 is too uneven for live sources, and files are encoded before the start
    #[arg(long, value_enum, default_value_t = Codec::H264)]
    pub codec: Codec,
    /// Percentages of the rate at which a receiver gets the next better encoding
    #[arg(long, value_name = "PERCENT,...", value_delimiter = ',', default_value = "5,30,100", value_parser = clap::value_parser!(u8).range(1..=100))]
    pub rungs: Vec<u8>,
    /// Time of a group of pictures, which is the time of a buffer; shorter has less latency and more bytes
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = values::duration)]
    pub gop: Duration,
    /// Pictures of a second [default: 25, or 24, 30, 20 if a GOP has no whole number of pictures]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=120))]
    pub fps: Option<u32>,
    /// Repair packets in percent of the packets, so that lost packets cost no picture; 0 for none
    #[arg(long, value_name = "PERCENT", default_value_t = 4, value_parser = clap::value_parser!(u8).range(0..=25))]
    pub repair: u8,
    /// Send no audio
    #[arg(long)]
    pub no_audio: bool,
    /// Program ffmpeg
    #[arg(long, value_name = "PATH", default_value = "ffmpeg", value_hint = ValueHint::ExecutablePath)]
    pub ffmpeg: PathBuf,
}

impl VideoArgs {
    /// Returns the options of a test picture.
    pub fn test(ffmpeg: PathBuf) -> Self {
        Self {
            source: Some("test".to_owned()),
            input_format: None,
            codec: Codec::H264,
            rungs: vec![5, 30, 100],
            gop: Duration::from_secs(1),
            fps: None,
            repair: 4,
            no_audio: false,
            ffmpeg,
        }
    }
}

/// Video in the demo.
#[derive(Debug, Args)]
pub struct DemoVideoArgs {
    /// Show live video instead: a test picture to three receivers of 5, 30 and 100 % of the rate, on one page
    #[arg(long = "video", id = "demo_video", conflicts_with_all = ["file", "size", "rate", "seed", "keep", "http_view", "json", "events"])]
    pub is_video: bool,
    /// With --video: program ffmpeg [default: ffmpeg]
    #[arg(long, value_name = "PATH", requires = "demo_video", value_hint = ValueHint::ExecutablePath)]
    pub ffmpeg: Option<PathBuf>,
}

/// Codec of video.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Codec {
    /// H.264 by x264
    H264,
    /// AV1 by SVT-AV1
    Av1,
}

/// `headwater stream receive`.
#[derive(Debug, Args)]
pub struct StreamReceiveArgs {
    /// Address of the page and of the playlists for players [default: 127.0.0.1:8080, without --out]
    #[arg(long, value_name = "ADDR:PORT", value_parser = values::http)]
    pub http: Option<SocketAddr>,
    /// Further name by which browsers reach --http, such as the name of this host; may be given again
    #[arg(long, value_name = "NAME", requires = "http")]
    pub http_name: Vec<String>,
    /// Folder for the stream: segments and playlists of video, or a file for each buffer of other content
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub network: NetworkArgs,
    #[command(flatten)]
    pub listen: ListenArgs,
    /// Maximum rate to receive in bit/s; default: the fair rate of the path
    #[arg(long, value_name = "RATE", value_parser = values::rate)]
    pub max_rate: Option<Rate>,
    /// Round-trip time to the sender on an idle path: 20ms; default: measured by unicast queries, a few times
    /// an hour
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub rtt: Option<Duration>,
    /// Rules by which a receiver of m2c or webrc changes its rate
    #[arg(long, value_name = "RULES", default_value = Rules::NAMES[0].0, value_parser = values::rules())]
    pub rules: Rules,
    /// Receive the session with this identifier only
    #[arg(long, value_name = "N")]
    pub tsi: Option<u64>,
    /// Stop if nothing arrives for this time: 10s, 5m; default: never
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub timeout: Option<Duration>,
    #[command(flatten)]
    pub confine: ConfineArgs,
    #[command(flatten)]
    pub keys: TrustArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}
