//! State that the page shows, and its last samples. Belongs to the page's thread.

use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::{Map, Value};

use super::feed::Change;
use super::sample::{DEPTH, ENDS_MAX, EndSample, ROWS_MAX, RowSample, apply, changes};

/// Interval of samples.
pub(super) const INTERVAL: Duration = Duration::from_millis(100);
/// Maximum number of samples that are kept.
pub(super) const SAMPLES_MAX: usize = 600;
/// Maximum bytes of the samples that are kept.
const SAMPLES_BYTES_MAX: usize = 8 << 20;
/// Member of a sample with the time in milliseconds since the start of the server.
const TIME: &str = "at";
/// Names of the quantiles of many ends, and the shares of the ends below.
const QUANTILES: [(&str, f64); 5] =
    [("slowest", 0.0), ("p10", 0.1), ("median", 0.5), ("p90", 0.9), ("fastest", 1.0)];

/// State of all ends.
#[derive(Debug)]
pub(super) struct Board {
    changes: Receiver<Change>,
    /// Start of the server, which distinguishes it from its predecessor at the same address.
    start: String,
    began: Instant,
    pub(super) ends: BTreeMap<String, EndSample>,
    rows: BTreeMap<String, RowSample>,
    is_changed: bool,
    /// JSON form of the state at the last sample.
    latest: Map<String, Value>,
    /// JSON form of the state before the oldest kept sample.
    base: Map<String, Value>,
    samples: VecDeque<Sample>,
    bytes: usize,
    /// Number of the next sample.
    next: u64,
    /// Number of changes of counters, by which a text of metrics gets old.
    pub(super) version: u64,
    last_change: Option<Instant>,
}

/// Change of the state between two samples.
#[derive(Debug)]
struct Sample {
    number: u64,
    /// Message of a stream of server-sent events.
    message: Bytes,
    delta: Map<String, Value>,
}

/// Messages for a client.
#[derive(Debug)]
pub(super) enum Messages {
    /// Nothing new.
    Nothing,
    /// Messages up to the sample before this number.
    New(Vec<Bytes>, u64),
}

impl Board {
    pub(super) fn new(changes: Receiver<Change>, start: String) -> Self {
        Self {
            changes,
            start,
            began: Instant::now(),
            ends: BTreeMap::new(),
            rows: BTreeMap::new(),
            is_changed: false,
            latest: Map::new(),
            base: Map::new(),
            samples: VecDeque::new(),
            bytes: 0,
            next: 0,
            version: 0,
            last_change: None,
        }
    }

    /// Takes waiting changes, and makes a sample if anything has changed. Returns whether there is a sample.
    pub(super) fn sample(&mut self) -> bool {
        self.take_changes();
        if !std::mem::take(&mut self.is_changed) {
            return false;
        }
        let now = self.state();
        let mut delta = changes(&self.latest, &now, DEPTH);
        delta.remove(TIME);
        if delta.is_empty() {
            return false;
        }
        let time = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        delta.insert(TIME.to_owned(), time.into());
        self.latest = now;
        self.latest.insert(TIME.to_owned(), time.into());
        let number = self.next;
        self.next += 1;
        let message = message(number, &delta);
        self.bytes += message.len();
        self.samples.push_back(Sample { number, message, delta });
        while self.samples.len() > SAMPLES_MAX || (self.bytes > SAMPLES_BYTES_MAX && self.samples.len() > 1) {
            let Some(oldest) = self.samples.pop_front() else { break };
            self.bytes -= oldest.message.len();
            apply(&mut self.base, oldest.delta, DEPTH);
        }
        true
    }

    /// Takes waiting changes.
    pub(super) fn take_changes(&mut self) {
        while let Ok(change) = self.changes.try_recv() {
            self.is_changed = true;
            self.version += 1;
            self.last_change = Some(Instant::now());
            match change {
                Change::End(name, sample) => {
                    if self.ends.len() < ENDS_MAX + ROWS_MAX || self.ends.contains_key(&name) {
                        self.ends.insert(name, *sample);
                    }
                }
                Change::Gone(name) => {
                    if let Some(end) = self.ends.get_mut(&name) {
                        "gone".clone_into(&mut end.state);
                        end.rate = 0;
                    }
                }
                Change::Row(key, row) => {
                    if self.rows.len() < ROWS_MAX || self.rows.contains_key(&key) {
                        self.rows.insert(key, *row);
                    }
                }
            }
        }
    }

    /// Returns the time of the last change.
    pub(super) fn last_change(&self) -> Option<Instant> {
        self.last_change
    }

    /// Returns the number of samples so far.
    pub(super) fn count(&self) -> u64 {
        self.next
    }

    /// Returns the messages for a client that has the samples before the number `next`; for a new client the
    /// state before the oldest sample, and all samples.
    pub(super) fn messages(&self, next: Option<u64>) -> Messages {
        let oldest = self.samples.front().map_or(self.next, |sample| sample.number);
        match next {
            Some(next) if next >= self.next => Messages::Nothing,
            Some(next) if next >= oldest => {
                let skipped = usize::try_from(next - oldest).unwrap_or(usize::MAX);
                let new = self.samples.iter().skip(skipped).map(|sample| sample.message.clone());
                Messages::New(new.collect(), self.next)
            }
            _ => {
                let mut all = vec![self.opening()];
                all.extend(self.samples.iter().map(|sample| sample.message.clone()));
                Messages::New(all, self.next)
            }
        }
    }

    fn opening(&self) -> Bytes {
        let state =
            serde_json::json!({ "start": self.start, "interval": INTERVAL.as_millis(), "state": self.base });
        Bytes::from(format!("retry: 1000\nevent: state\ndata: {state}\n\n"))
    }

    /// Returns the JSON form of the state. More than [`ENDS_MAX`] ends appear as quantiles and rows.
    fn state(&self) -> Map<String, Value> {
        let (ends, rows): (Map<_, _>, Map<_, _>) = if self.ends.len() <= ENDS_MAX {
            let ends = self.ends.iter().map(|(name, end)| (name.clone(), json(end)));
            (ends.collect(), self.rows.iter().map(|(key, row)| (key.clone(), json(row))).collect())
        } else {
            let rows = self.ends.iter().map(|(name, end)| (name.clone(), json(&row(name, end))));
            (quantiles(&self.ends), rows.collect())
        };
        Map::from_iter([("ends".to_owned(), Value::Object(ends)), ("rows".to_owned(), Value::Object(rows))])
    }
}

/// Returns a message of a stream of server-sent events. JSON has no line break.
fn message(number: u64, delta: &Map<String, Value>) -> Bytes {
    let data = serde_json::to_string(delta).unwrap_or_default();
    Bytes::from(format!("id: {number}\ndata: {data}\n\n"))
}

fn json(value: &impl serde::Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}

/// Returns the row of an end in the table of receivers.
fn row(name: &str, end: &EndSample) -> RowSample {
    RowSample {
        name: name.to_owned(),
        address: end.group.clone(),
        state: end.state.clone(),
        done: end.done(),
        rate: end.rate,
        fair_rate: end.fair_rate,
        lost: end.loss(),
        files_whole: end.files_whole,
        files: end.files_total,
        time: end.time,
    }
}

/// Returns quantiles of the rates of many ends, as ends. The slowest end by rate is first.
fn quantiles(ends: &BTreeMap<String, EndSample>) -> Map<String, Value> {
    let mut receivers: Vec<_> = ends.values().filter(|end| end.role != "sender").collect();
    receivers.sort_by_key(|end| end.rate);
    let Some(last) = receivers.len().checked_sub(1) else { return Map::new() };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "an index"
    )]
    let at = |share: f64| receivers[(share * last as f64).round() as usize];
    let of = QUANTILES.map(|(name, share)| {
        let end = at(share);
        let end =
            EndSample { cells: Vec::new(), files: Vec::new(), channel_rates: Vec::new(), ..end.clone() };
        (name.to_owned(), json(&end))
    });
    of.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::super::feed::ViewSender;
    use super::*;

    fn board() -> (ViewSender, Board) {
        let (sender, changes) = ViewSender::new();
        (sender, Board::new(changes, "1".into()))
    }

    fn end(rate: u64) -> EndSample {
        EndSample { role: "receiver".into(), rate, symbols_total: 10, symbols: 5, ..EndSample::default() }
    }

    fn texts(messages: Messages) -> Vec<String> {
        let Messages::New(messages, _) = messages else { return Vec::new() };
        messages.iter().map(|message| String::from_utf8(message.to_vec()).unwrap()).collect()
    }

    /// State by the messages of a client that joins late.
    fn replayed(board: &Board) -> Map<String, Value> {
        let mut state = Map::new();
        for text in texts(board.messages(None)) {
            let data = text.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
            let Value::Object(mut data) = serde_json::from_str(data).unwrap() else { panic!("an object") };
            match data.remove("state") {
                Some(Value::Object(base)) => state = base,
                _ => apply(&mut state, data, DEPTH),
            }
        }
        state
    }

    #[test]
    fn a_client_gets_the_state_then_each_sample_once() {
        let (sender, mut board) = board();
        assert!(!board.sample(), "nothing yet");
        sender.end("a", end(1));
        assert!(board.sample() && !board.sample());
        let first = texts(board.messages(None));
        assert_eq!(first.len(), 2);
        assert!(
            first[0].contains("event: state\ndata: {") && first[1].starts_with("id: 0\ndata: {"),
            "{first:?}"
        );
        assert!(texts(board.messages(Some(1))).is_empty());
        sender.end("a", end(2));
        board.sample();
        let [second] = &texts(board.messages(Some(1)))[..] else { panic!("one message") };
        let (before, after) = ("id: 1\ndata: {\"at\":", ",\"ends\":{\"a\":{\"rate\":2}}}\n\n");
        assert!(second.starts_with(before) && second.ends_with(after), "{second}");
        sender.end("a", end(2));
        assert!(!board.sample(), "the same state is no sample");
    }

    #[test]
    fn samples_are_bounded_and_a_late_client_gets_the_whole_state() {
        let (sender, mut board) = board();
        for number in 0..2 * SAMPLES_MAX as u64 {
            sender.end(["a", "b"][usize::from(number % 3 == 0)], end(number));
            board.sample();
        }
        assert_eq!(board.samples.len(), SAMPLES_MAX);
        assert_eq!(replayed(&board), board.latest);
        let far_behind = texts(board.messages(Some(5)));
        assert_eq!(far_behind.len(), SAMPLES_MAX + 1, "the state again");
    }

    #[test]
    fn large_samples_are_bounded_in_bytes() {
        let (sender, mut board) = board();
        for number in 0..120 {
            for index in 0..ENDS_MAX as u64 {
                let cells = vec![u8::try_from(number % 100).unwrap(); 480];
                sender.end(&format!("end-{index}"), EndSample { cells, ..end(number) });
            }
            board.sample();
        }
        assert!(board.bytes <= SAMPLES_BYTES_MAX, "{}", board.bytes);
        assert_eq!(replayed(&board), board.latest);
    }

    #[test]
    fn many_ends_become_quantiles_and_rows() {
        let (sender, mut board) = board();
        for rate in 0..101 {
            sender.end(&format!("end-{rate}"), end(rate));
        }
        board.sample();
        let ends = board.latest["ends"].as_object().unwrap();
        let rates: Vec<_> = QUANTILES.iter().map(|(name, _)| ends[*name]["rate"].as_u64().unwrap()).collect();
        assert_eq!(rates, [0, 10, 50, 90, 100]);
        assert_eq!(ends.len(), QUANTILES.len());
        let rows = board.latest["rows"].as_object().unwrap();
        assert_eq!(rows.len(), 101);
        assert_eq!((&rows["end-7"]["rate"], &rows["end-7"]["done"]), (&7.into(), &0.5.into()));
    }

    #[test]
    fn ends_and_rows_are_bounded() {
        let (sender, mut board) = board();
        for number in 0..10_000 {
            sender.end(&format!("end-{number}"), end(1));
            sender.row(&format!("row-{number}"), RowSample::default());
            board.take_changes();
        }
        assert_eq!((board.ends.len(), board.rows.len()), (ENDS_MAX + ROWS_MAX, ROWS_MAX));
    }
}
