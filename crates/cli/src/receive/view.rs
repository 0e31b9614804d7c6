//! Progress of a receiver on standard error.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use headwater::keys::fingerprint;
use headwater::net::LinkChange;
use headwater::{
    BytesByPath, ContentPath, ReceiveProgress, ReceiveStarted, ReceiveSummary, ReceiveUpdate, RepairUpdate,
};
use headwater_proto::Size;
use headwater_proto::control::PathStatus;

use crate::args::ReceiveArgs;
use crate::keys::not_opened;
use crate::screen::{Bar, RateHistory, Screen, count, percent, rate, rate_summary, ratio, time};
use crate::send::average;

/// Maximum number of files with bars; more files share a single bar.
const BARS_MAX: usize = 8;

/// View of a receiver: a bar per file, or a single bar for many files.
pub struct View<'a> {
    screen: &'a Screen,
    out: String,
    /// Names by file; refused files have no name.
    names: BTreeMap<usize, String>,
    bars: Vec<Bar>,
    /// Files that are parts of a stream, which has a line of its own.
    parts: BTreeSet<usize>,
    total: Bar,
    /// Rates so far, and their line on a terminal.
    rates: RateHistory,
    rate: Option<Bar>,
    /// Why the transfer is as fast as it is, once the control estimates the path: the last estimate, and its
    /// line on a terminal.
    path: Option<PathStatus>,
    why: Option<Bar>,
    /// Requested session, as named by options.
    wanted: String,
    has_group_key: bool,
    /// Identifier of the session that is received, once found.
    tsi: Option<u64>,
}

impl<'a> View<'a> {
    pub fn new(args: &ReceiveArgs, screen: &'a Screen) -> Self {
        let out = args.place().display().to_string();
        let total = screen.bar("waiting", 1);
        Self {
            screen,
            out,
            names: BTreeMap::new(),
            bars: Vec::new(),
            parts: BTreeSet::new(),
            total,
            rates: RateHistory::default(),
            rate: None,
            path: None,
            why: None,
            wanted: wanted(args),
            has_group_key: args.keys.group_key.is_some(),
            tsi: None,
        }
    }

    pub fn show(&mut self, update: &ReceiveUpdate) {
        match update {
            ReceiveUpdate::Started(started) => self.started(started),
            ReceiveUpdate::SessionFound { tsi, source } => {
                self.tsi = Some(*tsi);
                self.total.rename("receiving");
                self.screen.say(&format!("session {tsi} from {source}"));
            }
            ReceiveUpdate::SessionVerified { key, is_ephemeral, .. } => {
                let once = if *is_ephemeral { ", a key of this session alone" } else { "" };
                self.screen.say(&format!("signed by {}{once}", fingerprint(key)));
            }
            ReceiveUpdate::NextKeyAnnounced { key } => {
                self.screen.say(&format!("later sessions may be signed by {}", fingerprint(key)));
            }
            ReceiveUpdate::SessionUnopened { tsi, reason } => {
                tracing::warn!("session {tsi} {}", not_opened(*reason, self.has_group_key));
            }
            ReceiveUpdate::SessionUnsigned { tsi } => tracing::warn!(
                "session {tsi} is not signed: anybody on the network can forge its packets; --trust takes signed sessions only"
            ),
            ReceiveUpdate::SessionUntrusted { tsi, source } => tracing::warn!(
                "session {tsi} from {source} is signed by a key that is not trusted here, and is not received"
            ),
            ReceiveUpdate::SessionContradicted { .. } => tracing::warn!(
                "the session's description contradicts an earlier one: somebody may be forging packets"
            ),
            ReceiveUpdate::LinkChanged(change) => link_changed(change),
            ReceiveUpdate::Unheard { sender } => unheard(sender),
            ReceiveUpdate::Dismissed { returns } => dismissed(*returns),
            ReceiveUpdate::Silent { lasted, is_found } => self.show_silence(*lasted, *is_found),
            ReceiveUpdate::HeardAgain { lasted } => {
                tracing::warn!("packets of the sender arrive again after {}", time(*lasted));
            }
            ReceiveUpdate::LongPacketsMissing(missing) => tracing::warn!("{missing}"),
            ReceiveUpdate::OtherSession { tsi, source } if self.tsi.is_none() => {
                tracing::warn!(
                    "session {tsi} from {source} arrives, which is not the requested session{}; to receive it, add --tsi {tsi} --source {}",
                    self.wanted,
                    source.ip()
                );
            }
            ReceiveUpdate::OtherSession { tsi, source } if self.tsi == Some(*tsi) => {
                tracing::warn!(
                    "session {tsi} comes from {source}, too: its sender was probably started again, and is received once the earlier one is silent"
                );
            }
            ReceiveUpdate::OtherSession { tsi, source } => {
                tracing::warn!(
                    "session {tsi} from {source} arrives, too, and is not received beside this session; another receiver takes it by --tsi {tsi}"
                );
            }
            ReceiveUpdate::SessionReplaced { tsi, source } => {
                tracing::warn!("the session has fallen silent; continuing with session {tsi} from {source}");
                self.names.clear();
                self.parts.clear();
                self.bars.drain(..).for_each(|bar| bar.finish_and_clear());
            }
            ReceiveUpdate::SymbolSizeDiffers { before, now } => tracing::warn!(
                "symbols on this path have {now} bytes, and those before {before}: unfinished blocks begin anew; send with the same \
                 --symbol-size on both paths"
            ),
            ReceiveUpdate::Repair(update) => self.repair(update),
            ReceiveUpdate::Serving { port, time: left } => self.screen.say(&format!(
                "everything is here; other receivers are served at port {port} for {}, ^C ends it",
                time(*left)
            )),
            ReceiveUpdate::PathChanged(path) => {
                self.screen.say(&format!("content comes by {}", path_name(*path)));
            }
            ReceiveUpdate::DescribedByHttp { key: Some(key) } => {
                self.screen.say(&format!("files as described by HTTP, signed by {}", fingerprint(key)));
            }
            ReceiveUpdate::DescribedByHttp { key: None } => tracing::warn!(
                "the files are described by HTTP, and no trusted key has signed the description; --trust takes signed ones only"
            ),
            ReceiveUpdate::Progress(progress) => self.progress(progress),
            update => self.show_file(update),
        }
    }

    fn show_silence(&self, lasted: Duration, is_found: bool) {
        if is_found {
            tracing::warn!(
                "nothing has arrived from the sender for {}; waiting for the sender",
                time(lasted)
            );
        } else {
            tracing::warn!(
                "nothing has arrived for {}; waiting for a session to begin{}; `headwater doctor` looks for the reason",
                time(lasted),
                self.wanted
            );
        }
    }

    /// Shows an update about a file or a stream.
    fn show_file(&mut self, update: &ReceiveUpdate) {
        match update {
            ReceiveUpdate::PartAnnounced { file, stream } => {
                if self.parts.is_empty() {
                    self.screen.say(&format!("{stream}: a stream, whose length is not known before its end"));
                }
                self.parts.insert(*file);
            }
            ReceiveUpdate::FileCompleted { file, .. } if self.parts.contains(file) => {}
            ReceiveUpdate::FileAnnounced { file, path, .. } => {
                self.names.insert(*file, path.to_string());
            }
            ReceiveUpdate::FileRefused { location, reason } => {
                // The sender chose the name: control characters are escaped. The refusal makes the exit code
                // 5 or 7, and is told with --quiet, too.
                tracing::error!("{:?} is not received: {reason}", location);
            }
            ReceiveUpdate::FileCompleted { path, bytes, is_verified, is_present, .. } => {
                let verdict = match (is_present, is_verified) {
                    (true, _) => "already there",
                    (false, true) => "verified",
                    (false, false) => "whole",
                };
                self.screen.say(&format!("{path}: {}, {verdict}", Size(*bytes)));
            }
            ReceiveUpdate::PartMissed { stream, offset, bytes } => tracing::warn!(
                "{stream}: {} from byte {offset} on are missing, and are not sent any more",
                Size(*bytes)
            ),
            ReceiveUpdate::StreamCompleted { stream, bytes, missed: 0 } => {
                self.screen.say(&format!("{stream}: {}, verified", Size(*bytes)));
            }
            ReceiveUpdate::StreamCompleted { stream, bytes, missed } => tracing::warn!(
                "{stream}.incomplete: {}, of which {} are missing and read as zeros",
                Size(*bytes),
                Size(*missed)
            ),
            ReceiveUpdate::FileMismatch { path, .. } => {
                tracing::error!("{path}: differs from the sender's digest, discarded");
            }
            _ => {}
        }
    }

    fn repair(&self, update: &RepairUpdate) {
        match update {
            RepairUpdate::Scheduled { wait, url } => {
                self.screen.say(&format!("missing parts will be fetched from {url} in {}", time(*wait)));
            }
            RepairUpdate::Refused { path, url, reason } => {
                tracing::warn!("{path} cannot be repaired from {url}: {reason}");
            }
            RepairUpdate::Failed { reason } => {
                tracing::warn!("missing parts cannot be fetched by HTTP: {reason}");
            }
        }
    }

    fn started(&self, started: &ReceiveStarted) {
        let ReceiveStarted { group, via, amt, interface, source, .. } = started;
        let from = source.map_or_else(String::new, |source| format!(", from {source} only"));
        let out = &self.out;
        self.screen.say(&match (via, interface) {
            (Some(via), _) if via == group => format!("asking {group}, into '{out}'"),
            (Some(via), _) => format!("asking {group} by way of {via}, into '{out}'"),
            (None, Some(on)) => format!("receiving from {group} on {on}{from}, into '{out}'"),
            (None, None) => {
                let through = amt.map_or_else(String::new, |relay| format!(" through the AMT relay {relay}"));
                format!("receiving from {group}{through}{from}, into '{out}'")
            }
        });
        let (asked, granted) = (started.receive_buffer.asked_bytes, started.receive_buffer.granted_bytes);
        tracing::info!(asked, granted, "receive buffer in bytes");
    }

    fn progress(&mut self, progress: &ReceiveProgress) {
        self.path = progress.control.path.or(self.path);
        self.rates.record(progress.elapsed, progress.rate_bits);
        if !self.screen.is_live() {
            return;
        }
        self.total.set_length(progress.symbols.max(1));
        self.total.set_position(progress.symbols_held.min(progress.symbols));
        self.total.show(&parts(progress));
        if progress.stats.packets > 0 {
            let line = self.rate.get_or_insert_with(|| self.screen.line("rate"));
            line.show(&rate_parts(progress, &self.rates));
        }
        if let Some(path) = &progress.control.path {
            let line = self.why.get_or_insert_with(|| self.screen.line(progress.control.name));
            line.show(&[path.to_string()]);
        }
        if (2..=BARS_MAX).contains(&progress.files.len()) && self.parts.is_empty() {
            self.files(progress);
        }
    }

    fn files(&mut self, progress: &ReceiveProgress) {
        for (index, file) in progress.files.iter().enumerate() {
            if self.bars.len() <= index {
                let name = self.names.get(&index).map_or("", String::as_str);
                self.bars.push(self.screen.bar(name, file.symbols));
            }
            let bar = &self.bars[index];
            bar.set_length(file.symbols.max(1));
            let position =
                if file.is_done { file.symbols.max(1) } else { file.symbols_held.min(file.symbols) };
            bar.set_position(position);
            bar.show(&[if file.is_done { "verified".to_owned() } else { Size(file.bytes).to_string() }]);
        }
    }

    pub fn sum_up(&self, summary: &ReceiveSummary) {
        let progress = &summary.progress;
        if let Some(kept) = &summary.kept {
            self.screen.say(&format!(
                "received data is kept in '{}': receive into '{}' again to continue, or delete it to start over",
                kept.display(),
                self.out
            ));
        }
        let paths = bytes_by_path(&progress.bytes_by_path);
        if paths.is_empty() {
            return;
        }
        let noun = if self.parts.is_empty() { "file" } else { "part" };
        self.screen.say(&format!(
            "{}, {} verified; {} packets in {}, {} lost",
            count(summary.files_completed, noun),
            Size(summary.bytes_completed),
            progress.stats.packets,
            time(progress.elapsed),
            loss(progress)
        ));
        if summary.files_unwanted > 0 {
            let files = summary.files_completed + summary.files_unwanted;
            self.screen.say(&format!(
                "--include and --exclude left out {} of the {} of the session",
                summary.files_unwanted,
                count(files, "file")
            ));
        }
        self.screen.say(&rate_summary(&self.rates, average(bytes_of(progress), progress.elapsed)));
        if paths.len() > 1 || progress.stats.packets == 0 {
            self.screen.say(&paths.join(", "));
        }
        if let Some(path) = self.path {
            self.screen.say(&format!("{}: {path}", progress.control.name));
        }
        if let (Some(mean), Some(most)) = (progress.control.join_latency, progress.control.join_latency_max) {
            let (mean, most) = (mean.as_millis(), most.as_millis());
            self.screen.say(&format!("{}: joins took {mean} ms, at most {most} ms", progress.control.name));
        }
        for (reason, packets) in progress.stats.dropped.by_reason() {
            if packets > 0 {
                tracing::info!("{packets} datagrams were dropped: {reason}");
            }
        }
        if progress.kernel_drops > 0 {
            tracing::warn!(
                "the kernel dropped {} datagrams before they were read; raise net.core.rmem_max",
                progress.kernel_drops
            );
        }
    }
}

/// Warns that reports do not reach the sender.
fn unheard(sender: &SocketAddr) {
    tracing::warn!(
        "{sender} does not hear the reports of this receiver, and sends little until then: let UDP to {sender} through, or send with \
         --demand off"
    );
}

/// Warns that the sender has dismissed the receiver, which joins again after this time.
fn dismissed(returns: Duration) {
    tracing::warn!(
        "the sender has dismissed this receiver, whose path or machine carries less than the session's least rate; this receiver joins \
         again in {}; send with a lower --base-rate, or with --wait-for-slowest",
        time(returns)
    );
}

fn path_name(path: ContentPath) -> &'static str {
    match path {
        ContentPath::Multicast => "multicast",
        ContentPath::Amt => "AMT",
        ContentPath::Rainbow => "requests (Rainbow)",
        ContentPath::Http => "HTTP",
    }
}

/// Returns `1.2 MB by multicast` for each path that brought anything.
fn bytes_by_path(bytes: &BytesByPath) -> Vec<String> {
    let BytesByPath { multicast, amt, rainbow, http } = *bytes;
    let paths = [
        (multicast, ContentPath::Multicast),
        (amt, ContentPath::Amt),
        (rainbow, ContentPath::Rainbow),
        (http, ContentPath::Http),
    ];
    let brought = paths.iter().filter(|(bytes, _)| *bytes > 0);
    brought.map(|(bytes, path)| format!("{} by {}", Size(*bytes), path_name(*path))).collect()
}

/// Warns of an interface that fails, and reports the recovery.
pub fn link_changed(change: &LinkChange) {
    match change.complaint() {
        Some(complaint) => tracing::warn!("{complaint}; waiting for the interface"),
        None => tracing::warn!("{} is back; continuing", change.interface),
    }
}

/// Returns ` (--tsi 5, --source 192.0.2.1)`; empty if any session is accepted.
pub fn wanted(args: &ReceiveArgs) -> String {
    let tsi = args.tsi.map(|tsi| format!("--tsi {tsi}"));
    let source = args.listen.source.as_ref().map(|source| format!("--source {source}"));
    match (tsi, source) {
        (Some(tsi), Some(source)) => format!(" ({tsi}, {source})"),
        (Some(one), None) | (None, Some(one)) => format!(" ({one})"),
        (None, None) => String::new(),
    }
}

/// Returns `9.9 Mbit/s`, `12 s left`, `3.1 % lost`, `10.2 Mbit/s fair`, `16 channels`, `812 symbols missing`,
/// `joins 12 ms`, by importance.
pub fn parts(progress: &ReceiveProgress) -> Vec<String> {
    let control = &progress.control;
    let is_found = progress.stats.packets > 0;
    let mut parts = vec![match progress.silent {
        Some(_) if progress.rate_bits > 0 => rate(progress.rate_bits),
        Some(silent) if is_found => format!("silent for {}", time(silent)),
        Some(silent) => format!("nothing for {}", time(silent)),
        None => rate(progress.rate_bits),
    }];
    if let Some(left) = time_left(progress).filter(|_| progress.silent.is_none()) {
        parts.push(format!("{} left", time(left)));
    }
    parts.push(format!("{} lost", loss(progress)));
    if let Some(fair) = control.fair_rate {
        parts.push(format!("{fair} fair"));
        parts.push(count(control.channels.into(), "channel"));
    }
    if let Some(missing) = progress.symbols.checked_sub(progress.symbols_held).filter(|missing| *missing > 0)
    {
        parts.push(format!("{missing} symbols missing"));
    }
    if progress.bytes_by_path.http > 0 {
        parts.push(format!("{} by HTTP", Size(progress.bytes_by_path.http)));
    }
    if let Some(window) = control.window {
        parts.push(format!("window {window}"));
    }
    if let Some(naks) = control.naks {
        parts.push(format!("{naks} losses reported"));
    }
    if let Some(join) = control.join_latency {
        parts.push(format!("joins {} ms", join.as_millis()));
    }
    parts
}

/// Returns `▁▂▅█`, `10.2 Mbit/s fair`, `16 channels`, `joins 12 ms`, by importance.
fn rate_parts(progress: &ReceiveProgress, rates: &RateHistory) -> Vec<String> {
    let control = &progress.control;
    let fair =
        control.fair_rate.map(|fair| [format!("{fair} fair"), count(control.channels.into(), "channel")]);
    let join = control.join_latency.map(|join| format!("joins {} ms", join.as_millis()));
    [rates.recent()].into_iter().chain(fair.into_iter().flatten()).chain(join).collect()
}

/// Returns the bytes of all paths.
fn bytes_of(progress: &ReceiveProgress) -> u64 {
    let BytesByPath { multicast, amt, rainbow, http } = progress.bytes_by_path;
    [multicast, amt, rainbow, http].into_iter().sum()
}

/// Returns the share of lost packets.
pub fn loss(progress: &ReceiveProgress) -> String {
    let reception = progress.reception;
    percent(reception.lost, reception.packets.saturating_add(reception.lost))
}

/// Returns the time for the missing symbols at the current rate.
pub fn time_left(progress: &ReceiveProgress) -> Option<Duration> {
    let missing = progress.symbols.checked_sub(progress.symbols_held).filter(|missing| *missing > 0)?;
    let bytes: u64 = progress.files.iter().map(|file| file.bytes).sum();
    let rate = headwater_proto::Rate::from_bits(progress.rate_bits)?;
    let whole = Duration::from(rate.time_of(bytes)).as_secs_f64();
    Duration::try_from_secs_f64(whole * ratio(missing, progress.symbols)).ok()
}
