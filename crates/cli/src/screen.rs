//! Standard error: progress bars on a terminal, a few plain lines elsewhere, and the log between them.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::args::OutputArgs;

/// The variable that chooses what is logged, in the syntax of tracing's `EnvFilter`.
const LOG_VARIABLE: &str = "HEADWATER_LOG";
const REDRAWS_PER_SECOND: u8 = 10;

/// Standard error.
#[derive(Clone)]
pub struct Screen {
    bars: MultiProgress,
    is_live: bool,
    is_quiet: bool,
}

impl Screen {
    /// Prepares standard error and the log.
    pub fn new(args: &OutputArgs) -> Self {
        let is_live = !args.quiet && io::stderr().is_terminal();
        let target = if is_live {
            ProgressDrawTarget::stderr_with_hz(REDRAWS_PER_SECOND)
        } else {
            ProgressDrawTarget::hidden()
        };
        let bars = MultiProgress::with_draw_target(target);
        start_log(args, Log(bars.clone()));
        Self { bars, is_live, is_quiet: args.quiet }
    }

    /// A line that stays, above the bars.
    pub fn say(&self, line: &str) {
        if self.is_live {
            // It fails only where the terminal is gone, and then there is nobody to tell.
            self.bars.suspend(|| writeln!(io::stderr(), "{line}").ok());
        } else if !self.is_quiet {
            writeln!(io::stderr(), "{line}").ok();
        }
    }

    /// A bar of `length` steps with a name before it and a message behind it; nothing but on a terminal.
    pub fn bar(&self, name: &str, length: u64) -> ProgressBar {
        let style = ProgressStyle::with_template("{prefix:>14.cyan} {bar:32.green/238} {percent:>3} % {msg}")
            .expect("the template is sound")
            .progress_chars("━━╌");
        let bar = ProgressBar::new(length.max(1)).with_style(style).with_prefix(shortened(name, 14));
        self.bars.add(bar)
    }

    /// A line that changes, with a name before it; nothing but on a terminal.
    pub fn line(&self, name: &str) -> ProgressBar {
        let style =
            ProgressStyle::with_template("{prefix:>14.cyan} {wide_msg}").expect("the template is sound");
        self.bars.add(ProgressBar::new_spinner().with_style(style).with_prefix(shortened(name, 14)))
    }

    /// Whether there is a terminal to draw on.
    pub fn is_live(&self) -> bool {
        self.is_live
    }

    /// Takes all bars away for good: lines said from now on do not bring them back.
    pub fn clear(&self) {
        // As in `say`.
        self.bars.clear().ok();
        self.bars.set_draw_target(ProgressDrawTarget::hidden());
    }
}

/// The end of a long name, which tells more than its beginning.
pub fn shortened(name: &str, width: usize) -> String {
    let length = name.chars().count();
    if length <= width {
        return name.to_owned();
    }
    std::iter::once('…').chain(name.chars().skip(length + 1 - width)).collect()
}

/// `6.4 s`, `2 min 05 s`, `3 h 04 min`.
pub fn time(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..60 => format!("{:.1} s", duration.as_secs_f64()),
        60..3_600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        _ => format!("{} h {:02} min", seconds / 3_600, seconds / 60 % 60),
    }
}

/// `12.3 %` of a whole; `0 %` of nothing.
pub fn percent(part: u64, whole: u64) -> String {
    format!("{:.1} %", 100.0 * ratio(part, whole))
}

/// `part / whole`; 0 of nothing.
#[expect(clippy::cast_precision_loss, reason = "for people")]
pub fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// `10 Mbit/s`; silence has no rate.
pub fn rate(bits: u64) -> String {
    headwater_proto::Rate::from_bits(bits).map_or_else(|| "0 bit/s".to_owned(), |rate| rate.to_string())
}

/// `1 file`, `3 files`.
pub fn count(number: usize, thing: &str) -> String {
    if number == 1 { format!("1 {thing}") } else { format!("{number} {thing}s") }
}

fn start_log(args: &OutputArgs, log: Log) {
    let level = match (args.quiet, args.verbose) {
        (true, _) => "error",
        (false, 0) => "warn",
        (false, 1) => "info",
        (false, _) => "debug",
    };
    let wanted = std::env::var_os(LOG_VARIABLE).map(|_| EnvFilter::try_from_env(LOG_VARIABLE));
    let (filter, mistake) = match wanted {
        Some(Ok(filter)) => (filter, None),
        Some(Err(error)) => (EnvFilter::new(level), Some(error)),
        None => (EnvFilter::new(level), None),
    };
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(log);
    if args.log_json {
        subscriber.json().init();
    } else {
        subscriber.with_target(false).with_ansi(io::stderr().is_terminal()).init();
    }
    if let Some(error) = mistake {
        tracing::error!("{LOG_VARIABLE} is ignored: {error}; write filters such as headwater=debug");
    }
}

/// Writes log lines above the bars.
struct Log(MultiProgress);

impl<'a> MakeWriter<'a> for Log {
    type Writer = LogLine<'a>;

    fn make_writer(&'a self) -> Self::Writer {
        LogLine(&self.0)
    }
}

struct LogLine<'a>(&'a MultiProgress);

impl Write for LogLine<'_> {
    /// A log that nobody can read any more is no reason to stop: what cannot be written is dropped.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _unread = self.0.suspend(|| io::stderr().write_all(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_keep_their_end() {
        assert_eq!(shortened("image.iso", 14), "image.iso");
        assert_eq!(shortened("folder/deep/image.iso", 10), "…image.iso");
        assert_eq!(shortened("äöüäöü", 3), "…öü");
    }

    #[test]
    fn times_are_read_at_a_glance() {
        assert_eq!(time(Duration::from_millis(6_449)), "6.4 s");
        assert_eq!(time(Duration::from_secs(125)), "2 min 05 s");
        assert_eq!(time(Duration::from_secs(11_045)), "3 h 04 min");
    }

    #[test]
    fn shares_of_nothing_are_nothing() {
        assert_eq!(percent(1, 8), "12.5 %");
        assert_eq!(percent(3, 0), "0.0 %");
        assert_eq!(rate(0), "0 bit/s");
        assert_eq!((count(1, "file"), count(0, "file")), ("1 file".into(), "0 files".into()));
    }
}
