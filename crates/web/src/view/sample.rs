//! Samples of ends: the state that a page and metrics show, and changes of the state.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Maximum number of ends with curves of their own. More ends appear as quantiles, and as rows of the table.
pub const ENDS_MAX: usize = 64;
/// Maximum number of ends beyond [`ENDS_MAX`], and of receivers that report to a sender.
pub const ROWS_MAX: usize = 1_024;
/// Maximum number of channels of an end.
pub const CHANNELS_MAX: usize = 256;
/// Maximum number of cells of a block map.
pub const CELLS_MAX: usize = 480;
/// Maximum number of files of an end, the first ones.
pub const FILES_MAX: usize = 32;
/// Maximum number of reasons for dropped datagrams.
pub const REASONS_MAX: usize = 24;
/// Maximum number of paths.
const PATHS_MAX: usize = 4;
/// Number of states of receivers.
const STATES_MAX: usize = 5;
/// Maximum length of a text in characters.
const TEXT_MAX: usize = 128;

/// Counters and state of an end. Fields without a value are left out of the JSON form.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EndSample {
    /// `sender`, `receiver` or `relay`.
    pub role: String,
    /// One word: `waiting`, `receiving`, `sending`, `relaying`, `silent`, or the outcome.
    pub state: String,
    /// Group and port of the base channel.
    pub group: String,
    /// Transport session identifier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tsi: Option<u64>,
    /// Name of the congestion control.
    pub control: String,
    /// Milliseconds since the start of the process.
    pub time: u64,
    /// Rate over the last second, in bit/s of UDP payload.
    pub rate: u64,
    /// Fair rate by the control, in bit/s of UDP payload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fair_rate: Option<u64>,
    /// Subscribed channels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channels: Option<u64>,
    /// Channels joined so far.
    pub joins: u64,
    /// Channels left so far.
    pub leaves: u64,
    /// Rate of each channel over the last second, in kbit/s of UDP payload.
    pub channel_rates: Vec<u64>,
    /// Highest level that is sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ceiling: Option<u64>,
    /// Rate of the highest level that is sent with all levels below, in bit/s of UDP payload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ceiling_rate: Option<u64>,
    /// Datagrams sent or received.
    pub packets: u64,
    /// UDP payload sent or received, in bytes.
    pub bytes: u64,
    /// UDP payload by path, in bytes.
    pub bytes_by_path: BTreeMap<String, u64>,
    /// Packets lost.
    pub lost: u64,
    /// Loss events per packet by the control.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_events: Option<f64>,
    /// Datagrams marked with congestion experienced.
    pub marked: u64,
    /// Symbols needed on arrival.
    pub useful: u64,
    /// Symbols already held on arrival, or beyond the need of the block.
    pub duplicates: u64,
    /// Datagrams dropped, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Datagrams dropped by the kernel.
    pub kernel_drops: u64,
    /// Round-trip time in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt: Option<f64>,
    /// Symbols held, or sent.
    pub symbols: u64,
    /// Symbols of the content.
    pub symbols_total: u64,
    /// Estimated time to the end in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_left: Option<u64>,
    /// Number of blocks, and of blocks that are whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocks: Option<[u64; 2]>,
    /// Cells of the block map: the share that has arrived, from 0 to 100.
    pub cells: Vec<u8>,
    /// First files.
    pub files: Vec<FileSample>,
    /// Files announced.
    pub files_total: u64,
    /// Files in place.
    pub files_whole: u64,
    /// Files refused or discarded.
    pub files_failed: u64,
    /// Members of bundles in place.
    pub members: u64,
    /// Reports of receivers.
    pub reports: u64,
    /// Receivers by state, at a sender with a roster.
    pub receivers: BTreeMap<String, u64>,
}

/// File of an end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FileSample {
    /// Name, as given by the sender.
    pub name: String,
    /// Length in bytes.
    pub bytes: u64,
    /// Percentage that has arrived; 100 once in place.
    pub done: u8,
}

/// Receiver that reports to a sender, or an end beyond [`ENDS_MAX`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RowSample {
    /// Name that the receiver gives itself; empty without a name.
    pub name: String,
    /// Address of its reports.
    pub address: String,
    /// State in one word.
    pub state: String,
    /// Share of the content held, from 0 to 1.
    pub done: f64,
    /// Rate in bit/s.
    pub rate: u64,
    /// Fair rate in bit/s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fair_rate: Option<u64>,
    /// Share of the packets lost, from 0 to 1.
    pub lost: f64,
    /// Files in place.
    pub files_whole: u64,
    /// Files announced.
    pub files: u64,
    /// Milliseconds since the start of the process.
    pub time: u64,
}

impl EndSample {
    /// Shortens lists and texts of foreign samples to the bounds.
    pub(super) fn bound(&mut self) {
        let texts = [&mut self.role, &mut self.state, &mut self.group, &mut self.control];
        texts.into_iter().for_each(bound_text);
        self.channel_rates.truncate(CHANNELS_MAX);
        self.cells.truncate(CELLS_MAX);
        self.files.truncate(FILES_MAX);
        self.files.iter_mut().for_each(|file| bound_text(&mut file.name));
        bound_counts(&mut self.bytes_by_path, PATHS_MAX);
        bound_counts(&mut self.dropped, REASONS_MAX);
        bound_counts(&mut self.receivers, STATES_MAX);
        self.loss_events = self.loss_events.filter(|share| share.is_finite());
        self.rtt = self.rtt.filter(|time| time.is_finite());
    }

    /// Returns the share of the content that has arrived, from 0 to 1.
    pub(super) fn done(&self) -> f64 {
        ratio(self.symbols.min(self.symbols_total), self.symbols_total)
    }

    /// Returns the share of packets that were lost, from 0 to 1.
    pub(super) fn loss(&self) -> f64 {
        ratio(self.lost, self.packets.saturating_add(self.lost))
    }
}

impl RowSample {
    /// Shortens texts of foreign samples to the bounds.
    pub(super) fn bound(&mut self) {
        [&mut self.name, &mut self.address, &mut self.state].into_iter().for_each(bound_text);
        (self.done, self.lost) = (finite(self.done), finite(self.lost));
    }
}

#[expect(clippy::cast_precision_loss, reason = "a share for people")]
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

fn finite(share: f64) -> f64 {
    if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 }
}

fn bound_counts(counts: &mut BTreeMap<String, u64>, most: usize) {
    while counts.len() > most {
        counts.pop_last();
    }
    counts.retain(|name, _| name.chars().count() <= TEXT_MAX);
}

/// Cuts a text to [`TEXT_MAX`] characters.
fn bound_text(text: &mut String) {
    if let Some((end, _)) = text.char_indices().nth(TEXT_MAX) {
        text.truncate(end);
    }
}

/// Returns the name of an end as a label and a key: letters, digits and `.:-_@/[]%` alone, at most 80
/// characters.
pub(super) fn label(name: &str) -> String {
    let is_plain = |character: char| character.is_ascii_alphanumeric() || ".:-_@/[]%".contains(character);
    name.chars().take(80).map(|character| if is_plain(character) { character } else { '_' }).collect()
}

/// Returns the members of `now` that differ from `before`; a member that is gone is null. Objects below the
/// depth `depth` are compared member by member.
pub(super) fn changes(
    before: &Map<String, Value>,
    now: &Map<String, Value>,
    depth: u8,
) -> Map<String, Value> {
    let gone = before.keys().filter(|key| !now.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let changed = now.iter().filter_map(|(key, value)| match (before.get(key), value) {
        (Some(before), value) if before == value => None,
        (Some(Value::Object(before)), Value::Object(now)) if depth > 0 => {
            Some((key.clone(), Value::Object(changes(before, now, depth - 1))))
        }
        (_, value) => Some((key.clone(), value.clone())),
    });
    changed.chain(gone).collect()
}

/// Applies changes to a state.
pub(super) fn apply(state: &mut Map<String, Value>, changes: Map<String, Value>, depth: u8) {
    for (key, value) in changes {
        match (state.get_mut(&key), value) {
            (_, Value::Null) => {
                state.remove(&key);
            }
            (Some(Value::Object(state)), Value::Object(changes)) if depth > 0 => {
                apply(state, changes, depth - 1);
            }
            (_, value) => {
                state.insert(key, value);
            }
        }
    }
}

/// Levels of a state that are compared member by member: kinds (`ends`, `rows`), then names, then fields.
pub(super) const DEPTH: u8 = 2;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> Map<String, Value> {
        let Value::Object(map) = value else { panic!("an object") };
        map
    }

    #[test]
    fn changes_lead_from_a_state_to_the_next() {
        let before = object(
            json!({"ends": {"a": {"rate": 1, "cells": [1, 2], "rtt": 3}, "b": {"rate": 7}}, "rows": {}}),
        );
        let now = object(json!({"ends": {"a": {"rate": 2, "cells": [1, 2]}, "c": {"rate": 9}}, "rows": {}}));
        let delta = changes(&before, &now, DEPTH);
        let expected = json!({"ends": {"a": {"rate": 2, "rtt": null}, "b": null, "c": {"rate": 9}}});
        assert_eq!(Value::Object(delta.clone()), expected);
        let mut state = before.clone();
        apply(&mut state, delta, DEPTH);
        assert_eq!(state, now);
        assert!(changes(&now, &now, DEPTH).is_empty());
    }

    #[test]
    fn samples_of_strangers_are_bounded() {
        let mut sample = EndSample {
            role: "é".repeat(1_000),
            channel_rates: vec![1; 10_000],
            cells: vec![1; 10_000],
            files: vec![FileSample { name: "x".repeat(5_000), ..FileSample::default() }; 1_000],
            dropped: (0..500).map(|number| (format!("reason {number}"), 1)).collect(),
            bytes_by_path: (0..500).map(|number| (format!("path {number}"), 1)).collect(),
            receivers: (0..500).map(|number| (format!("state {number}"), 1)).collect(),
            ..EndSample::default()
        };
        sample.bound();
        assert_eq!(sample.role.chars().count(), TEXT_MAX);
        assert!(serde_json::to_string(&sample).unwrap().len() < 12_000);
        assert_eq!((sample.dropped.len(), sample.bytes_by_path.len()), (REASONS_MAX, PATHS_MAX));
        assert_eq!(sample.receivers.len(), STATES_MAX);
        assert_eq!(label("a b\"<script>\n"), "a_b__script__");
        assert_eq!(label(&"x".repeat(200)).len(), 80);
    }
}
