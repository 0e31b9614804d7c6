//! The event log: what happened in a session, by one vocabulary for the real driver and for the simulator, so
//! that one plot serves both.
//!
//! Two forms of the same events, both written into a buffer of the caller:
//!
//! * a log file in qlog's main schema (draft-ietf-quic-qlog-main-schema), as JSON text sequences (RFC 7464):
//!   each record is 0x1E, an object, a newline. [`write_header`] comes first, then [`write_record`] for each
//!   event;
//! * lines of JSON for other programs, [`write_line`]:
//!   `{"time":12.5,"event":"object:completed","file":"a.iso",...}`.
//!
//! Time is in milliseconds since the driver's zero, with microseconds behind the point. Rates are bit/s,
//! lengths bytes.

use serde::{Serialize, Serializer};

use crate::bcfs::relay::RelayCounters;
use crate::control::Counters;
use crate::sim;
use crate::time::Instant;

/// The names and fields of this module.
pub const EVENT_SCHEMA: &str = "urn:headwater:events:1";

/// RFC 7464: begins a record.
const RECORD_SEPARATOR: u8 = 0x1E;

/// Which end of a session wrote a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The one sender.
    Sender,
    /// One of the receivers.
    Receiver,
}

/// What happened. The variant's documentation begins with its name in the log.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Event<'a> {
    /// `session:started`: this end is ready.
    SessionStarted {
        /// Which end.
        role: Role,
        /// Group and port of the base channel.
        group: String,
        /// Name of the network interface, once known.
        #[serde(skip_serializing_if = "Option::is_none")]
        interface: Option<&'a str>,
        /// Transport session identifier; absent at a receiver that takes any.
        #[serde(skip_serializing_if = "Option::is_none")]
        tsi: Option<u64>,
        /// The congestion control, at a sender.
        #[serde(skip_serializing_if = "Option::is_none")]
        control: Option<Control>,
    },
    /// `session:planned`: what a dry run found; nothing is sent.
    SessionPlanned(Plan<'a>),
    /// `session:found`: the first packet of the session came.
    SessionFound {
        /// Transport session identifier.
        tsi: u64,
        /// Who sends it.
        source: String,
    },
    /// `session:progress`: a sample of the counters, several times a second.
    SessionProgress(Progress),
    /// `session:completed`: every file has met its fate.
    SessionCompleted {
        /// Entries of the FDT that were refused.
        refused: usize,
    },
    /// `session:closed`: the sender ended the session.
    SessionClosed {},
    /// `session:ended`: the last event of a log.
    SessionEnded {
        /// Which end.
        role: Role,
        /// One word for how it ended: `completed`, `incomplete`, `interrupted` and so on.
        outcome: &'a str,
        /// The final counters.
        #[serde(flatten)]
        progress: Progress,
    },
    /// `object:withdrawn`: a file changed or could not be read, and is sent no more.
    ObjectWithdrawn {
        /// Its name at the receivers.
        file: &'a str,
        /// What happened.
        reason: &'a str,
    },
    /// `pass:completed`: as many symbols were sent since the last one as the content has.
    PassCompleted {
        /// Passes so far.
        pass: u64,
    },
    /// `rate:updated`: the sending rate changed.
    RateUpdated {
        /// The channel.
        channel: u16,
        /// The new rate in bit/s of UDP payload.
        rate: u64,
    },
    /// `rate:limited`: a sender's machine cannot send what was asked for, or can again.
    RateLimited {
        /// Rate that was asked for, in bit/s of UDP payload.
        asked: u64,
        /// Rate that is sent, in bit/s of UDP payload.
        rate: u64,
        /// Highest level that is sent, while there are higher ones that are not.
        #[serde(skip_serializing_if = "Option::is_none")]
        ceiling: Option<u16>,
    },
    /// `channel:joined`: a receiver joined a channel.
    ChannelJoined {
        /// The channel.
        channel: u16,
        /// Its group and port.
        group: String,
    },
    /// `channel:left`: a receiver left a channel.
    ChannelLeft {
        /// The channel.
        channel: u16,
    },
    /// `packet:dropped`: a link of a simulation dropped or lost a packet.
    PacketDropped {
        /// The link's direction.
        link: &'a str,
        /// The packet's flow.
        flow: &'a str,
        /// The packet's number in its flow, from 0.
        sequence: u64,
        /// One word for why: `full`, `early`, `forced`, `lost`, `corrupted` or `down`.
        reason: &'static str,
    },
    /// `packet:marked`: a link of a simulation marked a packet with congestion experienced.
    PacketMarked {
        /// The link's direction.
        link: &'a str,
        /// The packet's flow.
        flow: &'a str,
        /// The packet's number in its flow, from 0.
        sequence: u64,
    },
    /// `link:changed`: the interface went down or away, or came back.
    LinkChanged {
        /// Its name.
        interface: &'a str,
        /// One word: `up`, `no-link`, `no-address`, `down`, `gone`.
        state: &'a str,
    },
    /// `session:other`: somebody else sends on the group; it is not received.
    SessionOther {
        /// Transport session identifier.
        tsi: u64,
        /// Who sends it.
        source: String,
    },
    /// `session:silent`: nothing has come for a while.
    SessionSilent {
        /// Seconds without a packet so far.
        seconds: u64,
        /// Whether a packet of the session had come before.
        #[serde(rename = "found")]
        is_found: bool,
    },
    /// `session:heard-again`: a session that was silent is heard again.
    SessionHeardAgain {
        /// Seconds without a packet.
        seconds: u64,
    },
    /// `packets:too-long`: packets with content are longer than the way takes.
    LongPacketsMissing {
        /// Bytes of an IP packet with content, at least.
        packet_bytes: u32,
        /// UDP payload of the longest packet that came, in bytes.
        longest: u64,
        /// The interface received on.
        #[serde(skip_serializing_if = "Option::is_none")]
        interface: Option<&'a str>,
        /// Its MTU in bytes.
        #[serde(skip_serializing_if = "Option::is_none")]
        mtu: Option<u32>,
    },
    /// `session:replaced`: the session has been silent, and another one on the group is received in its
    /// place.
    SessionReplaced {
        /// Transport session identifier of the other one.
        tsi: u64,
        /// Who sends it.
        source: String,
    },
    /// `object:announced`: the FDT described a file.
    ObjectAnnounced {
        /// Its name.
        file: &'a str,
        /// Its length in bytes.
        bytes: u64,
    },
    /// `object:refused`: the FDT described something that is not received.
    ObjectRefused {
        /// Its name as the sender gave it.
        location: &'a str,
        /// Why.
        reason: &'a str,
    },
    /// `object:completed`: a file is whole, verified, and carries its final name.
    ObjectCompleted {
        /// Its name.
        file: &'a str,
        /// Its length in bytes.
        bytes: u64,
        /// BLAKE3 over its block digests in hexadecimal, if the sender told.
        #[serde(skip_serializing_if = "Option::is_none")]
        digest: Option<String>,
        /// Whether it was there already, and nothing of it had to be received.
        present: bool,
    },
    /// `object:mismatch`: a file is whole but not what the sender promised; it was discarded.
    ObjectMismatch {
        /// Its name.
        file: &'a str,
    },
    /// `copy:compared`: a received file was compared with the original, both read from disk.
    CopyCompared {
        /// Its name.
        file: &'a str,
        /// Whether it is the same.
        identical: bool,
        /// BLAKE3 of the received file in hexadecimal.
        blake3: String,
    },
    /// `messages:lost`: packets between two messages were given up for good.
    MessagesLost {
        /// So many.
        packets: u64,
    },
    /// `relay:started`: a relay listens.
    RelayStarted {
        /// Addresses and ports.
        listen: Vec<String>,
    },
    /// `relay:progress`: a sample of a relay's counters, each second.
    RelayProgress(RelayProgress),
    /// `relay:ended`: a relay was stopped; the last event of its log.
    RelayEnded(RelayProgress),
    /// `sim-relay:progress`: a sample of the counters of a relay of SIM, each second.
    SimRelayProgress(SimRelayProgress),
    /// `sim-relay:ended`: a relay of SIM was stopped; the last event of its log.
    SimRelayEnded(SimRelayProgress),
    /// `session:failed`: what ended the session early, as an error message.
    SessionFailed {
        /// What was tried, what happened, what to do.
        reason: &'a str,
    },
}

/// How a session is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Control {
    /// Its name: `fixed`, `m2c` and so on.
    pub name: &'static str,
    /// Channels, each a multicast group.
    pub channels: u16,
    /// bit/s of UDP payload of all of them.
    pub rate_max: u64,
}

/// Counters of a relay since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct RelayProgress {
    /// What it did.
    #[serde(flatten)]
    pub counters: RelayCounters,
    /// Datagrams that the system did not take.
    pub unsent: u64,
}

/// Counters of a relay of SIM since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct SimRelayProgress {
    /// What it did.
    #[serde(flatten)]
    pub counters: sim::relay::RelayCounters,
    /// Datagrams that the system did not take.
    pub unsent: u64,
}

/// What a receiver's congestion control shows, and what is left to receive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Reception {
    /// Its name; `unknown` until the session has told.
    pub control: &'static str,
    /// What it holds to be fair, in bit/s of UDP payload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fair_rate: Option<u64>,
    /// Channels held.
    pub channels: u16,
    /// Its round-trip time, queueing included, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt: Option<f64>,
    /// From a join to the first packet, the mean of late, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub join_latency: Option<f64>,
    /// The longest of those.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub join_latency_max: Option<f64>,
    /// Packets that may be under way at a time, where each is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<u16>,
    /// NAKs sent, where the session goes by them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub naks: Option<u64>,
    /// Packets of the FDT.
    pub fdt_packets: u64,
    /// Packets without a symbol: those that close the session, and those for the congestion control alone.
    pub signalling: u64,
    /// Packets held until the FDT describes their object.
    pub pending: u64,
    /// Entries of the FDT that contradict an earlier one.
    pub contradictions: u64,
    /// Datagrams of other groups or sources, which the socket layer drops: not among `packets`.
    pub kept_out: u64,
    /// Symbols still needed, as far as files are announced.
    pub missing: u64,
    /// How long that takes at the rate of the last second, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_left: Option<u64>,
}

/// Messages of an end that sends or receives messages rather than files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Messages {
    /// Messages sent or received.
    pub messages: u64,
    /// Their bytes.
    pub message_bytes: u64,
    /// A receiver's alone.
    #[serde(flatten)]
    pub repair: Option<Repair>,
}

/// What a receiver of messages missed and asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Repair {
    /// Packets found missing.
    pub missed: u64,
    /// Packets that came again.
    pub repaired: u64,
    /// NAKs sent.
    pub naks: u64,
    /// Messages begun that could not be put together.
    pub broken: u64,
    /// Packets of other sessions.
    pub foreign: u64,
}

/// Counters of one end since it started.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Progress {
    /// Datagrams sent or received.
    pub packets: u64,
    /// Bytes of UDP payload sent or received.
    pub bytes: u64,
    /// bit/s of UDP payload over the last second.
    pub rate: u64,
    /// Packets that never came: holes in the sequence numbers; requests held to be lost; of messages, those
    /// given up. Always 0 at a sender.
    pub lost: u64,
    /// Symbols of content sent, or held by a receiver.
    pub symbols: u64,
    /// Symbols that the content has, as far as it is known.
    pub symbols_total: u64,
    /// Symbols that a receiver needed when they came, those included that a failed decoding asked for.
    pub useful: u64,
    /// Symbols that a receiver had from an earlier session.
    pub resumed: u64,
    /// Symbols that a receiver held already when they came.
    pub duplicates: u64,
    /// Symbols that came after a receiver had enough to decode, and before it had done so.
    pub surplus: u64,
    /// Datagrams that a sender could not send: no room in its queue, or no interface. Always 0 at a receiver.
    pub unsent: u64,
    /// Datagrams that an end dropped for a fault of their own.
    pub dropped: u64,
    /// Why; left out when there were none.
    #[serde(skip_serializing_if = "Reasons::is_empty")]
    pub dropped_for: Reasons,
    /// Datagrams that the kernel dropped before a receiver could read them: no loss of the network's.
    pub kernel_drops: u64,
    /// A receiver's alone.
    #[serde(flatten)]
    pub reception: Option<Reception>,
    /// Where messages are sent, not files.
    #[serde(flatten)]
    pub messages: Option<Messages>,
    /// Of a sender that receivers answer: [`Source::visit_counters`](crate::pgm::Source::visit_counters).
    #[serde(flatten)]
    pub feedback: Counters,
    /// Of a sender that is asked for each packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked: Option<Counters>,
}

/// Counts by the name of what they count, an object in which nothing is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reasons(pub [(&'static str, u64); 7]);

impl Reasons {
    fn is_empty(&self) -> bool {
        self.0.iter().all(|(_, count)| *count == 0)
    }
}

impl Serialize for Reasons {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer
            .collect_map(self.0.iter().filter(|(_, count)| *count > 0).map(|(name, count)| (name, count)))
    }
}

/// A session that could be sent.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan<'a> {
    /// Group and port of the base channel.
    pub group: String,
    /// Name of the network interface; absent where that is whichever leads to who asks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<&'a str>,
    /// Transport session identifier, if it is settled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tsi: Option<u64>,
    /// The congestion control: `fixed`, `m2c` and so on.
    pub control: &'static str,
    /// Channels, each a multicast group.
    pub channels: u16,
    /// bit/s of UDP payload of all channels.
    pub rate: u64,
    /// The order of sending: `spread` or `window`.
    pub order: &'static str,
    /// Number of files.
    pub files: usize,
    /// Bytes of all files.
    pub bytes: u64,
    /// Number of objects.
    pub objects: usize,
    /// Number of blocks.
    pub blocks: u64,
    /// Number of source symbols: packets of content in a pass.
    pub symbols: u64,
    /// Bytes of a symbol.
    pub symbol_size: u16,
    /// About how long a pass takes, in milliseconds.
    pub pass_time: u64,
}

impl Event<'_> {
    /// The event's name in the log, `<category>:<what>`.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::SessionStarted { .. } => "session:started",
            Self::SessionPlanned(_) => "session:planned",
            Self::SessionFound { .. } => "session:found",
            Self::SessionProgress(_) => "session:progress",
            Self::SessionCompleted { .. } => "session:completed",
            Self::SessionClosed {} => "session:closed",
            Self::SessionEnded { .. } => "session:ended",
            Self::SessionFailed { .. } => "session:failed",
            Self::RelayStarted { .. } => "relay:started",
            Self::RelayProgress(_) => "relay:progress",
            Self::RelayEnded(_) => "relay:ended",
            Self::SimRelayProgress(_) => "sim-relay:progress",
            Self::SimRelayEnded(_) => "sim-relay:ended",
            Self::MessagesLost { .. } => "messages:lost",
            Self::PassCompleted { .. } => "pass:completed",
            Self::RateUpdated { .. } => "rate:updated",
            Self::RateLimited { .. } => "rate:limited",
            Self::ChannelJoined { .. } => "channel:joined",
            Self::ChannelLeft { .. } => "channel:left",
            Self::PacketDropped { .. } => "packet:dropped",
            Self::PacketMarked { .. } => "packet:marked",
            Self::LinkChanged { .. } => "link:changed",
            Self::SessionOther { .. } => "session:other",
            Self::SessionSilent { .. } => "session:silent",
            Self::SessionHeardAgain { .. } => "session:heard-again",
            Self::LongPacketsMissing { .. } => "packets:too-long",
            Self::SessionReplaced { .. } => "session:replaced",
            Self::ObjectAnnounced { .. } => "object:announced",
            Self::ObjectRefused { .. } => "object:refused",
            Self::ObjectCompleted { .. } => "object:completed",
            Self::ObjectMismatch { .. } => "object:mismatch",
            Self::ObjectWithdrawn { .. } => "object:withdrawn",
            Self::CopyCompared { .. } => "copy:compared",
        }
    }
}

/// Writes the first record of a log. `wall_clock` is the time at the driver's zero by RFC 3339, if there is
/// one: a simulation has none, so that its logs are the same each time.
pub fn write_header(out: &mut Vec<u8>, title: &str, wall_clock: Option<&str>) {
    #[derive(Serialize)]
    struct Header<'a> {
        file_schema: &'static str,
        serialization_format: &'static str,
        title: &'a str,
        trace: Trace<'a>,
    }
    #[derive(Serialize)]
    struct Trace<'a> {
        common_fields: CommonFields<'a>,
        vantage_point: VantagePoint,
        event_schemas: [&'static str; 1],
    }
    #[derive(Serialize)]
    struct CommonFields<'a> {
        time_format: &'static str,
        reference_time: ReferenceTime<'a>,
    }
    #[derive(Serialize)]
    struct ReferenceTime<'a> {
        clock_type: &'static str,
        epoch: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        wall_clock_time: Option<&'a str>,
    }
    #[derive(Serialize)]
    struct VantagePoint {
        // qlog's own words for the two ends are QUIC's (client, server); the role is in the events.
        r#type: &'static str,
    }
    let reference_time =
        ReferenceTime { clock_type: "monotonic", epoch: "unknown", wall_clock_time: wall_clock };
    let header = Header {
        file_schema: "urn:ietf:params:qlog:file:sequential",
        serialization_format: "application/qlog+json-seq",
        title,
        trace: Trace {
            common_fields: CommonFields { time_format: "relative_to_epoch", reference_time },
            vantage_point: VantagePoint { r#type: "unknown" },
            event_schemas: [EVENT_SCHEMA],
        },
    };
    out.push(RECORD_SEPARATOR);
    append(out, &header);
}

/// Writes an event as a record of a log. `end` tells apart several ends that share one log.
pub fn write_record(out: &mut Vec<u8>, at: Instant, end: Option<&str>, event: &Event<'_>) {
    #[derive(Serialize)]
    struct Record<'a> {
        time: f64,
        name: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        group_id: Option<&'a str>,
        data: &'a Event<'a>,
    }
    out.push(RECORD_SEPARATOR);
    append(out, &Record { time: millis(at), name: event.name(), group_id: end, data: event });
}

/// Writes an event as a line of JSON. `end` tells apart several ends that share one output.
pub fn write_line(out: &mut Vec<u8>, at: Instant, end: Option<&str>, event: &Event<'_>) {
    #[derive(Serialize)]
    struct Line<'a> {
        time: f64,
        event: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        end: Option<&'a str>,
        #[serde(flatten)]
        data: &'a Event<'a>,
    }
    append(out, &Line { time: millis(at), event: event.name(), end, data: event });
}

/// Appends a value and a newline.
fn append(out: &mut Vec<u8>, value: &impl Serialize) {
    serde_json::to_writer(&mut *out, value).expect("plain structs with string keys, written to memory");
    out.push(b'\n');
}

/// Milliseconds with microseconds behind the point; nanoseconds would only lengthen every record.
#[expect(clippy::cast_precision_loss, reason = "exact below 285 years of microseconds")]
fn millis(at: Instant) -> f64 {
    (at.as_nanos() / 1_000) as f64 / 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Duration;

    fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    const AT: Instant = Instant::from_nanos(12_345_678);

    #[test]
    fn a_line_is_flat_and_begins_with_time_and_event() {
        let event = Event::ObjectCompleted {
            file: "a \"b\".iso",
            bytes: 7,
            digest: Some("00ff".into()),
            present: false,
        };
        assert_eq!(
            text(|out| write_line(out, AT, None, &event)),
            "{\"time\":12.345,\"event\":\"object:completed\",\"file\":\"a \\\"b\\\".iso\",\"bytes\":7,\
             \"digest\":\"00ff\",\"present\":false}\n"
        );
    }

    #[test]
    fn a_record_is_a_json_text_sequence_with_the_data_apart() {
        let event = Event::ChannelJoined { channel: 3, group: "239.0.0.1:7287".into() };
        assert_eq!(
            text(|out| write_record(out, AT, Some("late"), &event)),
            "\u{1e}{\"time\":12.345,\"name\":\"channel:joined\",\"group_id\":\"late\",\
             \"data\":{\"channel\":3,\"group\":\"239.0.0.1:7287\"}}\n"
        );
    }

    #[test]
    fn events_without_fields_have_empty_data() {
        let line = text(|out| write_line(out, Instant::ZERO, None, &Event::SessionClosed {}));
        assert_eq!(line, "{\"time\":0.0,\"event\":\"session:closed\"}\n");
        let record = text(|out| write_record(out, Instant::ZERO, None, &Event::SessionClosed {}));
        assert!(record.ends_with("\"data\":{}}\n"), "{record}");
    }

    #[test]
    fn the_header_names_the_schema_and_the_clock() {
        let header = text(|out| write_header(out, "headwater send", Some("2026-11-20T18:00:00Z")));
        let json: serde_json::Value = serde_json::from_str(header.strip_prefix('\u{1e}').unwrap()).unwrap();
        assert_eq!(json["trace"]["event_schemas"][0], EVENT_SCHEMA);
        assert_eq!(json["serialization_format"], "application/qlog+json-seq");
        let time = &json["trace"]["common_fields"];
        assert_eq!(time["time_format"], "relative_to_epoch");
        assert_eq!(time["reference_time"]["epoch"], "unknown");
        assert_eq!(time["reference_time"]["wall_clock_time"], "2026-11-20T18:00:00Z");
        assert!(!text(|out| write_header(out, "netsim", None)).contains("wall_clock"));
    }

    #[test]
    fn counters_lie_flat_beside_the_outcome() {
        let mut progress = Progress { packets: 2, bytes: 3_000, ..Progress::default() };
        progress.dropped_for.0[3] = ("bad_symbol", 4);
        let event = Event::SessionEnded { role: Role::Receiver, outcome: "completed", progress };
        let line =
            text(|out| write_line(out, Instant::ZERO + Duration::from_secs(3_600), Some("steady"), &event));
        let json: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(json["time"], 3_600_000.0);
        assert_eq!((&json["end"], &json["role"]), (&"steady".into(), &"receiver".into()));
        assert_eq!(json["dropped_for"], serde_json::json!({"bad_symbol": 4}));
        assert_eq!((&json["outcome"], &json["bytes"]), (&"completed".into(), &3_000.into()));
    }
}
