//! Results of measurements, for people and for programs.

use headwater_proto::Size;
use serde::Serialize;

/// Speed of a measured part.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Speed {
    /// bit/s of received content (bare loops: of UDP payload); without a receiver, of sent content.
    pub bits_per_s: f64,
    /// Received datagrams per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packets_per_s: Option<f64>,
    /// Processor seconds of all threads per 10^9 received bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_s_per_gb: Option<f64>,
    /// Part of the processor time that the sender's own thread took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sender_cpu_s_per_gb: Option<f64>,
    /// Part of the processor time that the receiver's own thread took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receiver_cpu_s_per_gb: Option<f64>,
    /// Messages that the kernel dropped at the receiver's socket; a coalesced run counts once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_drops: Option<u64>,
    /// Lost datagrams in total.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<u64>,
}

#[derive(Serialize)]
struct Row<'a> {
    bench: &'a str,
    what: &'a str,
    #[serde(flatten)]
    speed: Speed,
    /// Name of the compared part, and the ratio.
    #[serde(skip_serializing_if = "Option::is_none")]
    bare: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio: Option<f64>,
}

/// Prints rows of results.
pub struct BenchReport {
    json: bool,
}

impl BenchReport {
    pub fn new(json: bool) -> Self {
        Self { json }
    }

    /// Prints the title of a measurement; for people only.
    pub fn title(&self, title: &str) {
        if !self.json {
            println!("{title}\n");
            println!(
                "{:<38}{:>9}{:>11}{:>9}{:>9}{:>9}{:>8}{:>9}  {:>5}",
                "", "Gbit/s", "packets/s", "CPU s/GB", "sender", "receiver", "drops", "lost", "ratio"
            );
        }
    }

    /// Prints a row; `bare` is the name and speed of the compared part.
    pub fn row(&self, bench: &str, what: &str, speed: Speed, bare: Option<(&str, Speed)>) {
        let ratio = bare.map(|(_, bare)| speed.bits_per_s / bare.bits_per_s);
        let bare = bare.map(|(name, _)| name);
        if self.json {
            let row = Row { bench, what, speed, bare, ratio };
            println!("{}", serde_json::to_string(&row).expect("numbers and strings"));
            return;
        }
        let number = |value: Option<f64>, places: usize| {
            value.map_or_else(String::new, |value| format!("{value:.places$}"))
        };
        let count = |value: Option<u64>| value.map_or_else(String::new, |value| value.to_string());
        let ratio = ratio.zip(bare).map(|(ratio, bare)| format!("{ratio:5.2} of {bare}"));
        println!(
            "{what:<38}{:>9.3}{:>11}{:>9}{:>9}{:>9}{:>8}{:>9}  {}",
            speed.bits_per_s / 1e9,
            number(speed.packets_per_s, 0),
            number(speed.cpu_s_per_gb, 2),
            number(speed.sender_cpu_s_per_gb, 2),
            number(speed.receiver_cpu_s_per_gb, 2),
            count(speed.kernel_drops),
            count(speed.lost),
            ratio.unwrap_or_default()
        );
    }
}

/// Returns the speed of `bytes` in `seconds`.
pub fn speed(bytes: u64, seconds: f64) -> Speed {
    Speed { bits_per_s: bytes as f64 * 8.0 / seconds, ..Speed::default() }
}

/// Formats a size for a title.
pub fn size(bytes: u64) -> String {
    Size(bytes).to_string()
}
