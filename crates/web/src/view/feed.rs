//! From events of sessions to samples. The feed is on the thread that reports events, a few times a second;
//! the page's thread takes samples from a queue, so that no lock is between both.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Instant;

use headwater::FileStatus;
use headwater_proto::delivery::BlockMap;
use headwater_proto::eventlog::{Event, PathBytes, Progress, Role};

use super::sample::{CHANNELS_MAX, ENDS_MAX, EndSample, FILES_MAX, FileSample, RowSample, label};

/// Samples that wait for the page's thread.
const QUEUE_MAX: usize = 256;
/// Maximum number of files of a session.
const ANNOUNCED_MAX: usize = 16_384;
/// Samples of bytes by channel for a rate: a second at ten a second.
const WINDOW: usize = 11;

/// Change of the state that the page shows.
#[derive(Clone, Debug)]
pub(super) enum Change {
    End(String, Box<EndSample>),
    /// Part of a remote state: the end is gone.
    Gone(String),
    Row(String, Box<RowSample>),
}

/// Sending side of the queue of changes, for any thread.
#[derive(Clone, Debug)]
pub struct ViewSender(SyncSender<Change>);

impl ViewSender {
    pub(super) fn new() -> (Self, Receiver<Change>) {
        let (sender, receiver) = sync_channel(QUEUE_MAX);
        (Self(sender), receiver)
    }

    /// Passes a sample on. Drops the sample if the page's thread is far behind: a later sample has the same
    /// counters.
    pub(super) fn send(&self, change: Change) {
        if let Err(TrySendError::Full(_)) = self.0.try_send(change) {
            tracing::debug!("the page's thread is behind: a sample is left out");
        }
    }

    /// Passes the sample of an end of another process on.
    pub fn end(&self, name: &str, mut sample: EndSample) {
        sample.bound();
        self.send(Change::End(label(name), Box::new(sample)));
    }

    /// Removes an end.
    pub fn gone(&self, name: &str) {
        self.send(Change::Gone(label(name)));
    }

    /// Passes a row of the table of receivers on.
    pub fn row(&self, key: &str, mut row: RowSample) {
        row.bound();
        self.send(Change::Row(label(key), Box::new(row)));
    }
}

/// Details of an end that events do not contain.
#[derive(Clone, Copy, Debug, Default)]
pub struct Details<'a> {
    /// Bytes of UDP payload by channel.
    pub channel_bytes: &'a [u64],
    /// Highest level that is sent, and the rate up to this level in bit/s.
    pub ceiling: Option<(u16, Option<u64>)>,
    /// Blocks.
    pub blocks: Option<&'a BlockMap>,
    /// Files, by number.
    pub files: &'a [FileStatus],
    /// Loss events per packet.
    pub loss_events: Option<f64>,
}

/// Follows the events of the sessions of a process.
#[derive(Debug)]
pub struct ViewFeed {
    start: Instant,
    sender: ViewSender,
    ends: BTreeMap<String, FollowedEnd>,
}

#[derive(Debug, Default)]
struct FollowedEnd {
    sample: EndSample,
    /// Names of the first files, by number.
    names: BTreeMap<usize, String>,
    /// Names of announced files, which members of bundles are not among.
    announced: BTreeSet<String>,
    /// Times and bytes by channel, oldest first.
    channels: VecDeque<(Instant, Vec<u64>)>,
}

impl ViewFeed {
    /// Creates a feed. Times count from now on.
    pub fn new(sender: ViewSender) -> Self {
        Self { start: Instant::now(), sender, ends: BTreeMap::new() }
    }

    /// Follows an event of an end; a process with a single end has no name for the end.
    pub fn on_event(&mut self, end: Option<&str>, event: &Event<'_>) {
        if let Event::ReceiverReported(report) = event {
            self.on_report(report);
        }
        let time = self.time();
        let Some((name, end)) = self.end(end) else { return };
        let is_sent = end.on_event(event);
        if is_sent {
            end.sample.time = time;
            let sample = Box::new(end.sample.clone());
            let name = name.to_owned();
            self.sender.send(Change::End(name, sample));
        }
    }

    /// Adds details to the next sample of an end, before the event of its progress.
    pub fn on_details(&mut self, end: Option<&str>, details: &Details<'_>) {
        let name = label(end.unwrap_or(UNNAMED));
        if let Some(end) = self.ends.get_mut(&name) {
            end.on_details(details);
        }
    }

    /// Names a file of an end, by number.
    pub fn on_file(&mut self, end: Option<&str>, file: usize, name: &str) {
        if let Some(end) = self.ends.get_mut(&label(end.unwrap_or(UNNAMED)))
            && file < FILES_MAX
        {
            end.names.insert(file, name.to_owned());
        }
    }

    fn time(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Returns the end of an event, if the table of ends has room.
    fn end(&mut self, end: Option<&str>) -> Option<(&str, &mut FollowedEnd)> {
        let name = label(end.unwrap_or(UNNAMED));
        if self.ends.len() >= ENDS_MAX && !self.ends.contains_key(&name) {
            return None;
        }
        self.ends.entry(name.clone()).or_default();
        let (name, end) = self.ends.range_mut(name..).next()?;
        Some((name, end))
    }

    fn on_report(&mut self, report: &headwater_proto::eventlog::ReceiverReport<'_>) {
        let row = RowSample {
            name: report.name.unwrap_or_default().to_owned(),
            address: report.address.clone(),
            state: report.state.to_owned(),
            done: report.done,
            rate: report.rate,
            fair_rate: report.fair_rate,
            lost: report.lost,
            files_whole: report.files_whole.into(),
            files: report.files.into(),
            time: self.time(),
        };
        self.sender.row(&report.receiver, row);
    }
}

/// Key of the end of a process with a single end. The page shows the role instead.
pub(super) const UNNAMED: &str = "end";

impl FollowedEnd {
    /// Follows an event. Returns whether the sample is to be passed on now: events that come in bursts wait
    /// for the next progress.
    fn on_event(&mut self, event: &Event<'_>) -> bool {
        let sample = &mut self.sample;
        match event {
            Event::SessionStarted { role, group, tsi, control, .. } => {
                let (role, state) = match role {
                    Role::Sender => ("sender", "sending"),
                    Role::Receiver => ("receiver", "waiting"),
                };
                *sample = EndSample {
                    role: role.to_owned(),
                    state: state.to_owned(),
                    group: group.clone(),
                    tsi: *tsi,
                    control: control.map(|control| control.name.to_owned()).unwrap_or_default(),
                    ..EndSample::default()
                };
                self.names.clear();
                self.announced.clear();
                self.channels.clear();
            }
            Event::SessionFound { tsi, .. } | Event::SessionReplaced { tsi, .. } => {
                sample.tsi = Some(*tsi);
                "receiving".clone_into(&mut sample.state);
            }
            Event::SessionProgress(progress) => self.on_progress(progress),
            Event::SessionEnded { outcome, progress, .. } => {
                self.on_progress(progress);
                (*outcome).clone_into(&mut self.sample.state);
                (self.sample.rate, self.sample.time_left) = (0, None);
                self.sample.channel_rates.clear();
            }
            Event::SessionFailed { .. } => "failed".clone_into(&mut sample.state),
            Event::SessionSilent { .. } => "silent".clone_into(&mut sample.state),
            Event::SessionHeardAgain { .. } => "receiving".clone_into(&mut sample.state),
            Event::SessionCompleted { .. } => "complete".clone_into(&mut sample.state),
            Event::RelayStarted { listen } => {
                let (role, state) = ("relay".to_owned(), "relaying".to_owned());
                *sample = EndSample { role, state, group: listen.join(", "), ..EndSample::default() };
            }
            _ => return self.on_detail_event(event),
        }
        true
    }

    /// Follows an event that waits for the next progress.
    fn on_detail_event(&mut self, event: &Event<'_>) -> bool {
        let sample = &mut self.sample;
        match event {
            Event::ChannelJoined { .. } => sample.joins += 1,
            Event::ChannelLeft { .. } => sample.leaves += 1,
            Event::ReceiverReported(_) => sample.reports += 1,
            Event::DemandChanged { ceiling, .. } => sample.ceiling = Some((*ceiling).into()),
            Event::ObjectAnnounced { file, .. } => {
                sample.files_total += 1;
                if self.announced.len() < ANNOUNCED_MAX {
                    self.announced.insert((*file).to_owned());
                }
            }
            Event::ObjectCompleted { file, .. } => {
                sample.files_whole += 1;
                sample.members += u64::from(!self.announced.contains(*file));
            }
            Event::ObjectRefused { .. }
            | Event::ObjectMismatch { .. }
            | Event::ObjectWithdrawn { .. }
            | Event::ObjectSkipped { refused: true, .. } => {
                sample.files_failed += 1;
            }
            Event::RelayProgress(progress) | Event::RelayEnded(progress) => {
                let (counters, unsent) = (&progress.counters, progress.unsent);
                let (router, refused) = (&counters.router, &counters.refused);
                let reasons = [
                    ("malformed", refused.malformed),
                    ("too_fast", refused.too_fast),
                    ("unproven", refused.unproven),
                    ("queue", counters.egress.queue_drops + counters.egress.no_room + unsent),
                ];
                self.on_relay((counters.egress.sent, counters.egress.sent_bytes), &reasons);
                self.sample.reports = router.requests + router.nulls;
                return true;
            }
            Event::SimRelayProgress(progress) | Event::SimRelayEnded(progress) => {
                let (counters, unsent) = (&progress.counters, progress.unsent);
                let queue = counters.egress.queue_drops + counters.egress.no_room + unsent;
                let reasons = [("malformed", counters.malformed), ("queue", queue)];
                self.on_relay((counters.egress.sent, counters.egress.sent_bytes), &reasons);
                self.sample.reports = counters.reports;
                return true;
            }
            Event::AmtRelayProgress(progress) | Event::AmtRelayEnded(progress) => {
                let (counters, unsent) = (&progress.counters, progress.unsent);
                let queue = counters.egress.queue_drops + counters.egress.no_room + unsent;
                self.on_relay((counters.egress.sent, counters.egress.sent_bytes), &[("queue", queue)]);
                return true;
            }
            _ => {}
        }
        false
    }

    fn on_relay(&mut self, (packets, bytes): (u64, u64), dropped: &[(&str, u64)]) {
        self.channels.push_back((Instant::now(), vec![bytes]));
        if self.channels.len() > 2 {
            self.channels.pop_front();
        }
        (self.sample.packets, self.sample.bytes) = (packets, bytes);
        self.sample.rate = 1_000 * self.channel_rates().first().copied().unwrap_or_default();
        let dropped = dropped.iter().filter(|(_, count)| *count > 0);
        self.sample.dropped = dropped.map(|(reason, count)| ((*reason).to_owned(), *count)).collect();
    }

    fn on_progress(&mut self, progress: &Progress) {
        let sample = &mut self.sample;
        if sample.role == "receiver" && matches!(&*sample.state, "waiting" | "silent") && progress.packets > 0
        {
            "receiving".clone_into(&mut sample.state);
        }
        (sample.packets, sample.bytes, sample.rate) = (progress.packets, progress.bytes, progress.rate);
        (sample.lost, sample.useful) = (progress.lost, progress.useful);
        sample.duplicates = progress.duplicates + progress.surplus;
        sample.kernel_drops = progress.kernel_drops;
        (sample.symbols, sample.symbols_total) = (progress.symbols, progress.symbols_total);
        let reasons = progress.dropped_for.0.iter().filter(|(_, count)| *count > 0);
        sample.dropped = reasons.map(|(reason, count)| ((*reason).to_owned(), *count)).collect();
        if progress.unsent > 0 {
            sample.dropped.insert("unsent".to_owned(), progress.unsent);
        }
        if let Some(counts) = &progress.receivers {
            let states = [
                ("done", counts.done),
                ("under-way", counts.under_way),
                ("left", counts.left),
                ("silent", counts.silent),
                ("outdated", counts.outdated),
            ];
            sample.receivers = states.map(|(state, count)| (state.to_owned(), count)).into();
        }
        if let Some(reception) = &progress.reception {
            reception.control.clone_into(&mut sample.control);
            (sample.fair_rate, sample.rtt) = (reception.fair_rate, reception.rtt);
            sample.channels = Some(reception.channels.into());
            (sample.time_left, sample.marked) = (reception.time_left, reception.marked);
            sample.bytes_by_path = by_path(&reception.bytes_by_path);
        }
    }

    fn on_details(&mut self, details: &Details<'_>) {
        let now = Instant::now();
        let end = details.channel_bytes.len().min(CHANNELS_MAX);
        self.channels.push_back((now, details.channel_bytes[..end].to_vec()));
        while self.channels.len() > WINDOW {
            self.channels.pop_front();
        }
        self.sample.channel_rates = self.channel_rates();
        let sample = &mut self.sample;
        if let Some((level, rate)) = details.ceiling {
            (sample.ceiling, sample.ceiling_rate) = (Some(level.into()), rate);
        }
        sample.loss_events = details.loss_events;
        if let Some(map) = details.blocks {
            (sample.blocks, sample.cells) = (Some([map.blocks, map.ended]), map.cells.clone());
        }
        let files = details.files.iter().enumerate().take(FILES_MAX);
        let name = |number: usize| self.names.get(&number).cloned().unwrap_or_default();
        let files = files.map(|(number, file)| FileSample {
            name: name(number),
            bytes: file.bytes,
            done: if file.is_done { 100 } else { percent(file.symbols_held, file.symbols).min(99) },
        });
        sample.files = files.collect();
    }

    /// Returns the rates of channels over the kept samples, in kbit/s, up to the last channel with a rate.
    fn channel_rates(&self) -> Vec<u64> {
        let (Some((since, before)), Some((now, bytes))) = (self.channels.front(), self.channels.back())
        else {
            return Vec::new();
        };
        let millis = now.duration_since(*since).as_millis().max(1);
        let rate = |(channel, bytes): (usize, &u64)| {
            let bytes = bytes.saturating_sub(before.get(channel).copied().unwrap_or_default());
            u64::try_from(u128::from(bytes) * 8 / millis).unwrap_or(u64::MAX)
        };
        let mut rates: Vec<u64> = bytes.iter().enumerate().map(rate).collect();
        let end = rates.iter().rposition(|rate| *rate > 0).map_or(0, |last| last + 1);
        rates.truncate(end);
        rates
    }
}

/// Returns the bytes by path as in events, without paths that brought nothing.
fn by_path(bytes: &PathBytes) -> BTreeMap<String, u64> {
    let by_path = serde_json::to_value(bytes).and_then(serde_json::from_value::<BTreeMap<String, u64>>);
    by_path.unwrap_or_default().into_iter().filter(|(_, bytes)| *bytes > 0).collect()
}

fn percent(part: u64, whole: u64) -> u8 {
    let percent = u128::from(part) * 100 / u128::from(whole.max(1));
    u8::try_from(percent.min(100)).unwrap_or(100)
}

#[cfg(test)]
mod tests {
    use headwater_proto::eventlog::Reception;
    use headwater_proto::roster::RosterCounts;

    use super::*;

    fn started(role: Role) -> Event<'static> {
        Event::SessionStarted {
            role,
            group: "239.0.0.1:7287".into(),
            interface: None,
            tsi: None,
            control: None,
        }
    }

    fn last(changes: &Receiver<Change>) -> EndSample {
        match changes.try_iter().last() {
            Some(Change::End(_, sample)) => *sample,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn events_of_a_receiver_become_samples() {
        let (sender, changes) = ViewSender::new();
        let mut feed = ViewFeed::new(sender);
        feed.on_event(None, &started(Role::Receiver));
        assert_eq!(last(&changes).state, "waiting");
        feed.on_event(None, &Event::ChannelJoined { channel: 0, group: String::new() });
        assert!(changes.try_recv().is_err(), "joins wait for the progress");
        let reception = Reception { fair_rate: Some(5), marked: 3, ..Reception::default() };
        let mut progress =
            Progress { packets: 7, lost: 1, reception: Some(reception), ..Progress::default() };
        progress.dropped_for.0[0] = ("malformed", 2);
        feed.on_details(None, &Details { channel_bytes: &[10, 20], ..Details::default() });
        feed.on_event(None, &Event::SessionProgress(progress.clone()));
        let sample = last(&changes);
        assert_eq!((sample.state.as_str(), sample.joins, sample.marked), ("receiving", 1, 3));
        assert_eq!((sample.fair_rate, sample.dropped["malformed"]), (Some(5), 2));
        let ended = Event::SessionEnded { role: Role::Receiver, outcome: "completed", progress };
        feed.on_event(None, &ended);
        let sample = last(&changes);
        assert_eq!((sample.state.as_str(), sample.packets, sample.rate), ("completed", 7, 0));
    }

    #[test]
    fn a_sender_counts_its_receivers_by_state() {
        let (sender, changes) = ViewSender::new();
        let mut feed = ViewFeed::new(sender);
        feed.on_event(None, &started(Role::Sender));
        assert!(last(&changes).receivers.is_empty(), "no roster yet");
        let counts = RosterCounts { done: 12, under_way: 27, silent: 1, ..RosterCounts::default() };
        let progress = Progress { receivers: Some(counts), ..Progress::default() };
        feed.on_event(None, &Event::SessionProgress(progress));
        let counted = last(&changes).receivers;
        assert_eq!(
            (counted["done"], counted["under-way"], counted["silent"], counted["left"]),
            (12, 27, 1, 0)
        );
    }

    #[test]
    fn the_rate_of_a_channel_is_that_of_the_last_second() {
        let mut end = FollowedEnd::default();
        let start = Instant::now();
        let at = |millis| start + std::time::Duration::from_millis(millis);
        end.channels.extend([(at(0), vec![1_000]), (at(500), vec![2_000, 0, 5_000, 0])]);
        assert_eq!(end.channel_rates(), [16, 0, 80]);
        for number in 0..100 {
            end.on_details(&Details { channel_bytes: &vec![number; 1_000], ..Details::default() });
        }
        assert!(end.channels.len() <= WINDOW && end.channels[0].1.len() <= CHANNELS_MAX);
    }

    #[test]
    fn ends_of_a_process_are_bounded_and_the_queue_never_blocks() {
        let (sender, changes) = ViewSender::new();
        let mut feed = ViewFeed::new(sender);
        for number in 0..10_000 {
            feed.on_event(Some(&format!("end {number}")), &started(Role::Sender));
        }
        assert_eq!(feed.ends.len(), ENDS_MAX);
        assert!(changes.try_iter().count() <= QUEUE_MAX);
    }
}
