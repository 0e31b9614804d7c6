//! Standard error: progress bars on a terminal, a few plain lines elsewhere, and the log between.

mod history;

use std::cell::Cell;
use std::io::{self, IsTerminal, Write};
use std::ops::Deref;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::args::OutputArgs;
use crate::system::terminal_columns;
pub use history::RateHistory;

/// Environment variable with a filter of log messages, in the syntax of tracing's `EnvFilter`.
const LOG_VARIABLE: &str = "HEADWATER_LOG";
const REDRAWS_PER_SECOND: u8 = 10;
/// Assumed width of a terminal of unknown width.
const COLUMNS_DEFAULT: usize = 80;

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

    /// Returns a screen that shows nothing.
    pub fn hidden() -> Self {
        let bars = MultiProgress::with_draw_target(ProgressDrawTarget::hidden());
        Self { bars, is_live: false, is_quiet: true }
    }

    /// Prints a line above the bars.
    pub fn say(&self, line: &str) {
        if self.is_live {
            // Fails only if the terminal is closed.
            self.bars.suspend(|| writeln!(io::stderr(), "{line}").ok());
        } else if !self.is_quiet {
            writeln!(io::stderr(), "{line}").ok();
        }
    }

    /// Creates a bar of `length` steps with a name and a message; hidden without a terminal.
    pub fn bar(&self, name: &str, length: u64) -> Bar {
        Bar::new(self.bars.add(ProgressBar::new(length.max(1))), name, true)
    }

    /// Creates a changing line with a name; hidden without a terminal.
    pub fn line(&self, name: &str) -> Bar {
        Bar::new(self.bars.add(ProgressBar::new_spinner()), name, false)
    }

    /// Whether standard error is a terminal.
    pub fn is_live(&self) -> bool {
        self.is_live
    }

    /// Removes all bars for good.
    pub fn clear(&self) {
        // As in `say`.
        self.bars.clear().ok();
        self.bars.set_draw_target(ProgressDrawTarget::hidden());
    }
}

/// Line of progress that fits the width of the terminal.
pub struct Bar {
    bar: ProgressBar,
    name: String,
    /// Whether the line has a bar with a percentage, if the terminal is wide enough.
    has_bar: bool,
    layout: Cell<Layout>,
}

/// Columns of the parts of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    name: usize,
    /// Columns of the bar; 0 without a bar.
    bar: usize,
    message: usize,
}

impl Bar {
    fn new(bar: ProgressBar, name: &str, has_bar: bool) -> Self {
        let layout = Layout::of(columns(), has_bar);
        let line = Self { bar, name: name.to_owned(), has_bar, layout: Cell::new(layout) };
        line.lay_out();
        line
    }

    /// Shows the parts of a message that fit, the most important parts first.
    pub fn show(&self, parts: &[String]) {
        let layout = Layout::of(columns(), self.has_bar);
        if self.layout.replace(layout) != layout {
            self.lay_out();
        }
        self.bar.set_message(fitting(parts, layout.message));
    }

    /// Changes the name.
    pub fn rename(&mut self, name: &str) {
        self.name = name.to_owned();
        self.lay_out();
    }

    fn lay_out(&self) {
        let Layout { name, bar, .. } = self.layout.get();
        let steps = match (self.has_bar, bar) {
            (false, _) => String::new(),
            (true, 0) => "{percent:>3} % ".to_owned(),
            (true, bar) if has_colours() => format!("{{bar:{bar}.green/238}} {{percent:>3}} % "),
            (true, bar) => format!("{{bar:{bar}}} {{percent:>3}} % "),
        };
        let colour = if has_colours() { ".cyan" } else { "" };
        let template = format!("{{prefix:>{name}{colour}}} {steps}{{wide_msg}}");
        let style = ProgressStyle::with_template(&template).expect("the template is sound");
        self.bar.set_style(style.progress_chars("━━╌"));
        self.bar.set_prefix(shortened(&self.name, name));
    }
}

impl Deref for Bar {
    type Target = ProgressBar;

    fn deref(&self) -> &ProgressBar {
        &self.bar
    }
}

impl Layout {
    /// Lays a line out in this number of columns. The message gets most of the columns.
    fn of(columns: usize, has_bar: bool) -> Self {
        let (name, bar) = match columns {
            0..50 => (9, 0),
            50..70 => (9, 6),
            70..100 => (10, 10),
            100..120 => (14, 20),
            _ => (14, 32),
        };
        // A blank after the name; the bar, a blank, and ` 12 % `; the last column stays free.
        let steps = match (has_bar, bar) {
            (false, _) => 0,
            (true, 0) => 6,
            (true, bar) => bar + 7,
        };
        let bar = if has_bar { bar } else { 0 };
        Self { name, bar, message: columns.saturating_sub(name + 1 + steps + 1) }
    }
}

/// Joins the first part and the following parts that fit.
fn fitting(parts: &[String], columns: usize) -> String {
    let mut message = parts.first().cloned().unwrap_or_default();
    for part in parts.iter().skip(1) {
        if message.chars().count() + 2 + part.chars().count() > columns {
            break;
        }
        message.push_str(", ");
        message.push_str(part);
    }
    message
}

/// Whether colours are wanted: the variable NO_COLOR is not set, or empty.
fn has_colours() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Returns the columns of the terminal at standard error.
fn columns() -> usize {
    terminal_columns().unwrap_or(COLUMNS_DEFAULT)
}

/// Returns the end of a long name, which says more than the beginning.
pub fn shortened(name: &str, width: usize) -> String {
    let length = name.chars().count();
    if length <= width {
        return name.to_owned();
    }
    std::iter::once('…').chain(name.chars().skip(length + 1 - width)).collect()
}

/// Returns `6.4 s`, `2 min 05 s`, `3 h 04 min`.
pub fn time(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..60 => format!("{:.1} s", duration.as_secs_f64()),
        60..3_600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        _ => format!("{} h {:02} min", seconds / 3_600, seconds / 60 % 60),
    }
}

/// Returns `12.3 %` of a whole; `0 %` if the whole is 0.
pub fn percent(part: u64, whole: u64) -> String {
    format!("{:.1} %", 100.0 * ratio(part, whole))
}

/// Returns `part / whole`; 0 if the whole is 0.
#[expect(clippy::cast_precision_loss, reason = "for people")]
pub fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Returns `10 Mbit/s`, or `0 bit/s`.
pub fn rate(bits: u64) -> String {
    headwater_proto::Rate::from_bits(bits).map_or_else(|| "0 bit/s".to_owned(), |rate| rate.to_string())
}

/// Returns `2.1 Mbit/s on average, 4.1 Mbit/s at most  ▁▂▅█`.
pub fn rate_summary(rates: &RateHistory, average: u64) -> String {
    let summary = format!("{} on average, {} at most", rate(average), rate(rates.highest().max(average)));
    format!("{summary}  {}", rates.whole()).trim_end().to_owned()
}

/// Returns `1 file` or `3 files`.
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
        subscriber.with_target(false).with_ansi(io::stderr().is_terminal() && has_colours()).init();
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
    /// Writes log lines; lines that cannot be written are dropped.
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
    fn a_line_fits_its_terminal() {
        let parts = ["9.9 Mbit/s", "12 s left", "3.1 % lost", "10.2 Mbit/s fair"].map(str::to_owned);
        for columns in [20, 40, 49, 50, 60, 69, 70, 80, 99, 100, 120, 130, 200] {
            let Layout { name, bar, message } = Layout::of(columns, true);
            let steps = if bar == 0 { 6 } else { bar + 7 };
            assert!(name + 1 + steps + message < columns, "{columns}");
            let shown = fitting(&parts, message);
            assert!(shown.chars().count() <= message.max(10), "{columns}: {shown}");
            assert!(Layout::of(columns, false).message >= message);
        }
        assert_eq!(
            fitting(&parts, Layout::of(80, true).message),
            parts[..3].join(", ") + ", 10.2 Mbit/s fair"
        );
        assert_eq!(fitting(&parts, Layout::of(60, true).message), parts[..3].join(", "));
        assert_eq!(fitting(&parts, Layout::of(40, true).message), parts[..2].join(", "));
        assert_eq!(fitting(&[], 10), "");
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
