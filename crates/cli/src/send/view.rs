//! Progress of a sender on standard error.

use std::net::SocketAddr;
use std::time::Duration;

use headwater::{
    CompressionSummary, RateLimit, SendProgress, SendSession, SendStarted, SendSummary, SendUpdate,
};
use headwater_proto::control::Counters;
use headwater_proto::{Rate, Size};

use crate::args::SendArgs;
use crate::feedback;
use crate::receive::link_changed;
use crate::screen::{Bar, RateHistory, Screen, count, rate, rate_summary, time};
use crate::send::dry_run::{addresses, rates};
use crate::send::roster::{self, Table, counted};

/// Duration of a session from which a lack of reports is worth a line at the end.
const NOBODY: Duration = Duration::from_secs(10);
/// Steps of a bar.
const STEPS: u64 = 10_000;

/// View of a sender: a bar for hashing, then a bar for the requested passes or time, else for each pass.
pub struct View<'a> {
    screen: &'a Screen,
    bar: Option<Bar>,
    files: usize,
    folders: usize,
    bytes: u64,
    passes: Option<u64>,
    duration: Option<Duration>,
    limit: RateWarning,
    /// Rate that is sent while no receiver reports, if the rate follows reports.
    kept_rate: Option<Rate>,
    table: Table,
    /// Address that reports of receivers go to, if the session keeps a roster.
    reports_to: Option<SocketAddr>,
    /// Whether receivers end the session.
    is_ended_by_receivers: bool,
    /// Whether receivers that have everything stay until the sender knows.
    awaits_ends: bool,
    has_told_nobody: bool,
    compression: Option<CompressionSummary>,
    /// Name of the input and bytes that are kept of it, for a session of an input.
    input: Option<(String, u64)>,
    has_released: bool,
    /// Rates so far, and their line on a terminal.
    rates: RateHistory,
    rate: Option<Bar>,
}

/// Warns once that the machine cannot send the requested rate.
pub struct RateWarning {
    /// Option that lowers the rate.
    option: &'static str,
    is_given: bool,
}

impl RateWarning {
    pub fn new(is_fixed: bool) -> Self {
        Self { option: if is_fixed { "--rate" } else { "--max-rate" }, is_given: false }
    }

    pub fn warn(&mut self, limit: &RateLimit) {
        if core::mem::replace(&mut self.is_given, true) {
            return;
        }
        let RateLimit { asked, sent, ceiling } = limit;
        let (asked, sent, option) = (rate(*asked), rate(*sent), self.option);
        let what =
            if ceiling.is_some() { "leaves the highest levels out" } else { "not the remaining packets" };
        tracing::warn!(
            "this machine cannot send {asked}: it sends {sent} now, and {what}; lower {option}, or send from a faster machine"
        );
    }
}

/// Returns `compressed by zstd: 12 of 14 objects, 52.1 MB to 11.9 MB`.
pub fn compression(summary: &CompressionSummary) -> String {
    let CompressionSummary { coding, encoded, bytes, encoded_bytes, plain } = *summary;
    let objects = count(encoded + plain, "object");
    format!("compressed by {coding}: {encoded} of {objects}, {} to {}", Size(bytes), Size(encoded_bytes))
}

impl<'a> View<'a> {
    pub fn new(args: &SendArgs, screen: &'a Screen, session: &SendSession) -> Self {
        let files = session.files();
        Self {
            screen,
            bar: None,
            files: files.files().len(),
            folders: files.folders().len(),
            bytes: files.bytes(),
            passes: args.passes,
            duration: args.duration,
            limit: RateWarning::new(args.rate.is_some()),
            kept_rate: None,
            table: Table::default(),
            reports_to: None,
            is_ended_by_receivers: args.roster.until.is_some() || args.roster.expect.is_some(),
            awaits_ends: args.roster.until.is_some()
                || args.roster.expect.is_some()
                || args.roster.receipts.is_some(),
            has_told_nobody: args.roster.no_roster,
            compression: session.compression(),
            input: session.kept_bytes().map(|kept| (args.input.input_name.to_string(), kept)),
            has_released: false,
            rates: RateHistory::default(),
            rate: None,
        }
    }

    pub fn show(&mut self, update: &SendUpdate) {
        match update {
            SendUpdate::LinkChanged(change) => link_changed(change),
            SendUpdate::Hashing { bytes_done, bytes_total } => {
                let bar = self.bar.get_or_insert_with(|| self.screen.bar("reading", *bytes_total));
                bar.set_position(*bytes_done);
                bar.show(&[Size(*bytes_done).to_string()]);
            }
            SendUpdate::Started(started) => self.started(started),
            // Makes the exit code 9, and is told with --quiet, too.
            SendUpdate::FileLeftOut { reason, .. } => tracing::error!("{reason}"),
            SendUpdate::PartsReleased { bytes } => self.released(*bytes),
            SendUpdate::InputEnded { bytes } => {
                self.screen.say(&format!("standard input has ended after {}", Size(*bytes)));
            }
            SendUpdate::RateLimited(limit) => self.limit.warn(limit),
            SendUpdate::NobodyReports => self.nobody(),
            SendUpdate::NameContested(contested) => roster::contested(contested),
            SendUpdate::Unreported { lasted } => tracing::warn!(
                "no receiver has reported in {}: only a low rate is sent; if there are receivers, the network carries no reports to \
                 this machine, and --demand off sends all rates",
                time(*lasted)
            ),
            SendUpdate::Progress(progress) => self.progress(progress),
            _ => {}
        }
    }

    fn started(&mut self, started: &SendStarted) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
        let SendStarted { tsi, group, interface, listen, .. } = started;
        let folders = match self.folders {
            0 => String::new(),
            folders => format!(", {}", count(folders, "empty folder")),
        };
        let what = match &self.input {
            Some((name, kept)) => format!("standard input as '{name}', keeping {} of it,", Size(*kept)),
            None => format!("{}{folders}, {}", count(self.files, "file"), Size(self.bytes)),
        };
        match interface {
            Some(on) => self.screen.say(&format!("sending {what} to {group} on {on}, session {tsi}")),
            None => {
                self.screen
                    .say(&format!("sending {what} on request at {}, session {tsi}", addresses(listen)));
            }
        }
        if let Some(summary) = self.compression {
            self.screen.say(&compression(&summary));
        }
        self.screen.say(&rates(started));
        self.reports_to = interface.as_ref().map(|_| started.source);
        let control = started.congestion_control;
        self.kept_rate = control.rate_base().filter(|_| control.follows_roster());
        if self.is_ended_by_receivers {
            self.screen.say("until receivers have everything");
        } else if self.passes.is_none() && self.duration.is_none() {
            self.screen.say("until interrupted (Ctrl-C)");
        }
        let (asked, granted) = (started.send_buffer.asked_bytes, started.send_buffer.granted_bytes);
        tracing::info!(asked, granted, gso = started.segmentation, "send buffer in bytes");
        self.bar = Some(self.screen.bar("sending", STEPS));
    }

    /// Says once that the beginning is gone.
    fn released(&mut self, bytes: u64) {
        if !core::mem::replace(&mut self.has_released, true) {
            self.screen.say(&format!(
                "the first {} of the input are not kept any more: receivers that begin now miss them; --keep keeps more",
                Size(bytes)
            ));
        }
    }

    /// Says once that no report has come.
    fn nobody(&mut self) {
        if let Some(address) =
            self.reports_to.filter(|_| !core::mem::replace(&mut self.has_told_nobody, true))
        {
            let how = match self.kept_rate {
                Some(rate) => format!("at the rate of the start, {rate}, which --base-rate sets"),
                None => "all the same".to_owned(),
            };
            let early = match self.awaits_ends {
                true => "",
                false => ", receivers end before a report is due (--receipts awaits their reports)",
            };
            self.screen.say(&format!(
                "no receiver has reported: nobody receives{early}, or UDP to {address} does not come through; the files are sent {how}"
            ));
        }
    }

    fn progress(&mut self, progress: &SendProgress) {
        self.rates.record(progress.elapsed, progress.rate_bits);
        let Some(bar) = &self.bar else { return };
        bar.set_position(self.position(progress));
        let mut parts = vec![
            rate(progress.rate_bits),
            format!("{} sent", Size(progress.bytes)),
            format!("pass {:.2}", progress.passes),
        ];
        parts.extend(requests(&progress.counters).map(|requests| format!("{requests} requests")));
        parts.extend(progress.roster.as_ref().and_then(|roster| counted(&roster.counts)));
        parts.extend(feedback::parts(&progress.counters));
        parts.splice(1..1, self.time_left(progress).map(|left| format!("{} left", time(left))));
        bar.show(&parts);
        if self.screen.is_live() {
            let line = self.rate.get_or_insert_with(|| self.screen.line("rate"));
            line.show(&rate_parts(progress, &self.rates));
        }
        if let Some(roster) = &progress.roster {
            self.table.show(self.screen, roster);
        }
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a bar"
    )]
    fn position(&self, progress: &SendProgress) -> u64 {
        let part = match (self.passes, self.duration) {
            (Some(passes), _) => progress.passes / passes as f64,
            (None, Some(duration)) => progress.elapsed.as_secs_f64() / duration.as_secs_f64(),
            (None, None) => progress.passes.fract(),
        };
        (part.clamp(0.0, 1.0) * STEPS as f64) as u64
    }

    /// Returns the time to the requested end.
    fn time_left(&self, progress: &SendProgress) -> Option<Duration> {
        match (self.duration, self.passes) {
            (Some(duration), _) => Some(duration.saturating_sub(progress.elapsed)),
            #[expect(clippy::cast_precision_loss, reason = "for people")]
            (None, Some(passes)) if progress.passes > 0.0 => {
                let left = (passes as f64 / progress.passes - 1.0).max(0.0);
                Duration::try_from_secs_f64(progress.elapsed.as_secs_f64() * left).ok()
            }
            _ => None,
        }
    }

    pub fn sum_up(&mut self, summary: &SendSummary) {
        let SendProgress { elapsed, packets, bytes, passes, unsent, ref counters, .. } = summary.progress;
        self.screen.say(&format!(
            "sent {passes:.2} passes: {packets} packets, {} in {}, {}",
            Size(bytes),
            time(elapsed),
            rate(average(bytes, elapsed))
        ));
        let bars = self.rates.whole();
        if !bars.is_empty() {
            self.screen.say(&rate_summary(&self.rates, average(bytes, elapsed)));
        }
        if let Some(why) = feedback::summary(counters) {
            self.screen.say(&why);
        }
        match summary.roster.as_ref().map(|roster| (counted(&roster.counts), roster.is_met)) {
            Some((Some(counts), is_met)) => {
                let why = if is_met { ", so the session has ended" } else { "" };
                self.screen.say(&format!("receivers: {counts}{why}"));
            }
            Some((None, _)) if elapsed >= NOBODY => self.nobody(),
            _ => {}
        }
        let requests = requests(counters);
        if let Some(requests) = requests {
            let refused = ["unproven", "too_fast", "forgotten"].map(|name| counters.count(name));
            let refused: u64 = refused.iter().sum();
            self.screen.say(&format!("{requests} requests, {refused} of them not answered"));
        }
        if unsent > 0 && requests.is_some() {
            tracing::warn!(
                "{unsent} packets were not sent: there was no route to the receiver, or a queue of this machine was full; receivers request \
                 the packets again, and --max-rate limits the rate"
            );
        } else if unsent > 0 {
            tracing::warn!(
                "{unsent} packets are lost to all receivers: the interface could not send, or its queue was full; if the interface was up all the \
                 time, send more slowly, or raise its queue length (`txqueuelen`)"
            );
        }
    }
}

/// Returns `▁▂▅█`, `levels to 16 (24 Mbit/s)`, by importance.
fn rate_parts(progress: &SendProgress, rates: &RateHistory) -> Vec<String> {
    let ceiling =
        progress.ceiling.map(|ceiling| format!("levels to {} ({})", ceiling.level, rate(ceiling.rate_bits)));
    let channels = progress.channel_bytes.iter().filter(|bytes| **bytes > 0).count();
    let channels = (channels > 1).then(|| format!("{channels} channels"));
    [rates.recent()].into_iter().chain(ceiling).chain(channels).collect()
}

/// Returns the number of requests of a session on request.
fn requests(counters: &Counters) -> Option<u64> {
    counters.get("requests").map(|_| counters.count("requests") + counters.count("nulls"))
}

/// Returns the mean rate in bit/s.
pub fn average(bytes: u64, elapsed: Duration) -> u64 {
    let bits = u128::from(bytes) * 8_000_000_000;
    u64::try_from(bits / elapsed.as_nanos().max(1)).unwrap_or(u64::MAX)
}
