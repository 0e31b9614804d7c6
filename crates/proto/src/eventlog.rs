//! The event log: events of a session, in the same vocabulary for the real driver and for the simulator, so
//! that the same plots serve both.
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

mod records;

pub use records::{
    AmtRelayProgress, ControlState, Messages, PathBytes, PathEstimate, Plan, Progress, Reasons,
    ReceiverReport, Reception, RelayProgress, Repair, SimRelayProgress,
};

use serde::Serialize;

use crate::time::Instant;

/// Schema of this module's names and fields.
pub const EVENT_SCHEMA: &str = "urn:headwater:events:1";

/// RFC 7464: begins a record.
const RECORD_SEPARATOR: u8 = 0x1E;

/// End of a session that wrote a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The one sender.
    Sender,
    /// One of the receivers.
    Receiver,
}

/// An event. The variant's documentation begins with the event's name in the log.
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
        /// Transport session identifier; absent at a receiver that accepts any.
        #[serde(skip_serializing_if = "Option::is_none")]
        tsi: Option<u64>,
        /// The congestion control, at a sender.
        #[serde(skip_serializing_if = "Option::is_none")]
        control: Option<ControlState>,
    },
    /// `session:planned`: result of a dry run; nothing is sent.
    SessionPlanned(Plan<'a>),
    /// `session:found`: the first packet of the session came.
    SessionFound {
        /// Transport session identifier.
        tsi: u64,
        /// Address of the sender.
        source: String,
    },
    /// `session:progress`: a sample of the counters, several times a second.
    SessionProgress(Progress),
    /// `session:completed`: every file has a final outcome.
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
        /// Outcome in one word: `completed`, `incomplete`, `interrupted` and so on.
        outcome: &'a str,
        /// The final counters.
        #[serde(flatten)]
        progress: Progress,
    },
    /// `receiver:reported`: a receiver reported to a sender with a roster.
    ReceiverReported(ReceiverReport<'a>),
    /// `receiver:contested`: a second receiver claims the name of an expected receiver. The first counts.
    ReceiverContested {
        /// The name.
        name: &'a str,
        /// Identifiers of the first and the second receiver, in hexadecimal.
        receivers: [String; 2],
        /// Their addresses and ports.
        addresses: [String; 2],
    },
    /// `object:skipped`: a sender leaves a path out, before the session or in a dry run.
    ObjectSkipped {
        /// Location at the sender; control characters and bytes that are no UTF-8 are escaped.
        path: String,
        /// Reason in words.
        reason: String,
        /// Whether receivers would refuse the name: receivers lack content, and the exit code is 9. Otherwise
        /// the path is no regular file, such as a device.
        refused: bool,
    },
    /// `object:withdrawn`: a file changed or could not be read, and is no longer sent.
    ObjectWithdrawn {
        /// File name at the receivers.
        file: &'a str,
        /// Reason in words.
        reason: &'a str,
    },
    /// `stream:released`: the sender of an input of unknown length no longer sends the first bytes.
    StreamReleased {
        /// Bytes from the beginning of the stream.
        bytes: u64,
    },
    /// `stream:buffer`: a receiver of a stream has a buffer, complete or not.
    StreamBuffer {
        /// Number of the buffer; of video, of the group of pictures.
        number: u32,
        /// Bytes from the beginning to the first hole.
        prefix: usize,
        /// Bytes of the whole buffer, if known.
        #[serde(skip_serializing_if = "Option::is_none")]
        bytes: Option<usize>,
        /// Number of the rung of video that is played, from 0, if any is whole.
        #[serde(skip_serializing_if = "Option::is_none")]
        rung: Option<usize>,
        /// Lost packets that were repaired.
        repaired: usize,
    },
    /// `stream:ended`: the input of a sender has ended.
    StreamEnded {
        /// Length of the stream in bytes.
        bytes: u64,
    },
    /// `stream:missed`: a part of a stream is missing and is not sent any more.
    StreamMissed {
        /// Name of the stream.
        file: &'a str,
        /// Start of the part in bytes.
        offset: u64,
        /// Length of the part in bytes.
        bytes: u64,
    },
    /// `stream:completed`: all parts of a stream up to its end are in place or missing.
    StreamCompleted {
        /// Name of the stream.
        file: &'a str,
        /// Length of the stream in bytes.
        bytes: u64,
        /// Bytes that are missing; the file is named NAME.incomplete if there are any.
        missed: u64,
    },
    /// `pass:completed`: a pass ended; since the last pass, as many symbols were sent as the content has.
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
    /// `rate:limited`: a sender's host cannot sustain the configured rate, or can again.
    RateLimited {
        /// Configured rate, in bit/s of UDP payload.
        asked: u64,
        /// Sent rate, in bit/s of UDP payload.
        rate: u64,
        /// Highest level that is sent, if higher levels exist.
        #[serde(skip_serializing_if = "Option::is_none")]
        ceiling: Option<u16>,
    },
    /// `demand:changed`: the levels that receivers report, or the levels that the sender sends, changed.
    DemandChanged {
        /// Highest level reported of late; 0 for none.
        level: u16,
        /// Highest level that is sent.
        ceiling: u16,
        /// Whether the sender bounds the levels of receivers that lose most packets.
        limited: bool,
    },
    /// `demand:unreported`: no receiver has ever reported to the sender, which sends the idle rate.
    DemandUnreported {
        /// Seconds since the start.
        seconds: u64,
    },
    /// `demand:unheard`: the sender does not react to the receiver's reports.
    DemandUnheard {
        /// Address of the sender.
        sender: String,
    },
    /// `session:dismissed`: the sender has dismissed a receiver that holds the rate at its least.
    SessionDismissed {
        /// Seconds until the receiver joins again.
        seconds: u64,
    },
    /// `channel:joined`: a receiver joined a channel.
    ChannelJoined {
        /// The channel.
        channel: u16,
        /// Group and port of the channel.
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
        /// Reason in one word: `full`, `early`, `forced`, `lost`, `corrupted` or `down`.
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
        /// Name of the interface.
        interface: &'a str,
        /// One word: `up`, `no-link`, `no-address`, `down`, `gone`.
        state: &'a str,
    },
    /// `session:other`: another sender uses the group; its packets are ignored.
    SessionOther {
        /// Transport session identifier.
        tsi: u64,
        /// Address of the other sender.
        source: String,
    },
    /// `session:verified`: the session is signed, and its first packet was verified.
    SessionVerified {
        /// Transport session identifier.
        tsi: u64,
        /// Fingerprint of the sender's key, as `ssh-keygen -l` shows it.
        key: String,
    },
    /// `session:unsigned`: the session is received unsigned.
    SessionUnsigned {
        /// Transport session identifier.
        tsi: u64,
    },
    /// `session:untrusted`: a session is signed with a key that is not trusted; its packets are ignored.
    SessionUntrusted {
        /// Transport session identifier.
        tsi: u64,
        /// Address of the sender.
        source: String,
    },
    /// `session:next-key`: the verified sender announces the key that will sign its later sessions.
    NextKeyAnnounced {
        /// Fingerprint of the announced key.
        key: String,
    },
    /// `session:unopened`: the content of the session is not taken, told once.
    SessionUnopened {
        /// Transport session identifier.
        tsi: u64,
        /// One word: `no-key`, `wrong-key`, or `clear` at a receiver with a group key.
        reason: &'a str,
        /// Number of the key that encrypts the content.
        #[serde(skip_serializing_if = "Option::is_none")]
        epoch: Option<u8>,
    },
    /// `session:contradicted`: an FDT of the session contradicts an earlier one, told once.
    SessionContradicted {
        /// Entries that contradict earlier ones so far.
        contradictions: u64,
    },
    /// `repair:scheduled`: symbols are missing, and a receiver will ask an HTTP server after a wait.
    RepairScheduled {
        /// Time until the first request, in milliseconds.
        wait: f64,
        /// Base URL of the first server.
        url: &'a str,
    },
    /// `repair:serving`: a receiver has everything, and serves it to others.
    RepairServing {
        /// Port of the server.
        port: u16,
        /// Time for which the receiver goes on, in seconds.
        seconds: f64,
    },
    /// `repair:refused`: a server cannot repair a file.
    RepairRefused {
        /// Name of the file.
        file: &'a str,
        /// Base URL of the server.
        url: &'a str,
        /// Reason.
        reason: &'a str,
    },
    /// `repair:failed`: no server can be reached, or no server has what is missing.
    RepairFailed {
        /// Last reason.
        reason: &'a str,
    },
    /// `path:changed`: most of the needed content of the last second came by another path than before.
    PathChanged {
        /// `multicast`, `rainbow` or `http`.
        path: &'a str,
    },
    /// `session:described`: the FDT came by HTTP, before the FDT of the session's packets.
    SessionDescribed {
        /// Fingerprint of the key that signed the FDT, if a trusted key did.
        #[serde(skip_serializing_if = "Option::is_none")]
        key: Option<String>,
    },
    /// `session:silent`: no packet has arrived for a while.
    SessionSilent {
        /// Seconds since the last packet.
        seconds: u64,
        /// Whether a packet of the session had arrived before.
        #[serde(rename = "found")]
        is_found: bool,
    },
    /// `session:heard-again`: packets of a silent session arrive again.
    SessionHeardAgain {
        /// Seconds without a packet.
        seconds: u64,
    },
    /// `packets:too-long`: content packets are longer than the path takes.
    LongPacketsMissing {
        /// Minimum length of an IP packet with content, in bytes.
        packet_bytes: u32,
        /// UDP payload of the longest packet that arrived, in bytes.
        longest: u64,
        /// Receiving interface.
        #[serde(skip_serializing_if = "Option::is_none")]
        interface: Option<&'a str>,
        /// MTU of the interface in bytes.
        #[serde(skip_serializing_if = "Option::is_none")]
        mtu: Option<u32>,
    },
    /// `session:replaced`: the session has been silent, and the receiver switched to another session on the
    /// group.
    SessionReplaced {
        /// Transport session identifier of the new session.
        tsi: u64,
        /// Address of the new session's sender.
        source: String,
    },
    /// `content:compressed`: a sender has encoded the content that shrinks.
    ContentCompressed {
        /// Coding: `gzip`, `zstd`.
        coding: &'a str,
        /// Number of files and bundles that travel encoded.
        encoded: usize,
        /// Bytes of these files and bundles.
        bytes: u64,
        /// Bytes of their encoded content.
        encoded_bytes: u64,
        /// Number of files and bundles whose content does not shrink.
        plain: usize,
    },
    /// `object:announced`: the FDT described a file.
    ObjectAnnounced {
        /// File name.
        file: &'a str,
        /// File length in bytes.
        bytes: u64,
        /// Coding of content that travels encoded: `gzip`, `zstd`.
        #[serde(skip_serializing_if = "Option::is_none")]
        coding: Option<&'a str>,
        /// Bytes of the encoded content.
        #[serde(skip_serializing_if = "Option::is_none")]
        encoded_bytes: Option<u64>,
    },
    /// `object:refused`: the FDT described an object that the receiver does not accept.
    ObjectRefused {
        /// Name as given by the sender.
        location: &'a str,
        /// Reason of the refusal.
        reason: &'a str,
    },
    /// `object:completed`: a file, or a member of a bundle, is complete, verified, and has its final name. A
    /// bundle itself has no such event, and members have no digest. The digest of an encoded file is that of
    /// the encoded content.
    ObjectCompleted {
        /// File name.
        file: &'a str,
        /// File length in bytes.
        bytes: u64,
        /// BLAKE3 over the block digests in hexadecimal, if the sender announced the digest.
        #[serde(skip_serializing_if = "Option::is_none")]
        digest: Option<String>,
        /// Whether the complete file was present already, and no symbol had to be received.
        present: bool,
    },
    /// `object:mismatch`: a complete file did not match the sender's digest, and was discarded.
    ObjectMismatch {
        /// File name.
        file: &'a str,
    },
    /// `copy:compared`: a received file was compared with the original, both read from disk.
    CopyCompared {
        /// File name.
        file: &'a str,
        /// Whether the copy is identical.
        identical: bool,
        /// BLAKE3 of the received file in hexadecimal.
        blake3: String,
    },
    /// `messages:lost`: packets between two messages were given up for good.
    MessagesLost {
        /// Number of packets.
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
    /// `amt-relay:progress`: a sample of the counters of a relay of AMT, each second.
    AmtRelayProgress(AmtRelayProgress),
    /// `amt-relay:ended`: a relay of AMT was stopped; the last event of its log.
    AmtRelayEnded(AmtRelayProgress),
    /// `session:failed`: the cause that ended the session early, as an error message.
    SessionFailed {
        /// The attempt, the failure, and the remedy.
        reason: &'a str,
    },
}

impl Event<'_> {
    /// Returns the event's name in the log, `<category>:<what>`.
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
            Self::ReceiverReported(_) => "receiver:reported",
            Self::ReceiverContested { .. } => "receiver:contested",
            Self::RelayStarted { .. } => "relay:started",
            Self::RelayProgress(_) => "relay:progress",
            Self::RelayEnded(_) => "relay:ended",
            Self::SimRelayProgress(_) => "sim-relay:progress",
            Self::SimRelayEnded(_) => "sim-relay:ended",
            Self::AmtRelayProgress(_) => "amt-relay:progress",
            Self::AmtRelayEnded(_) => "amt-relay:ended",
            Self::MessagesLost { .. } => "messages:lost",
            Self::PassCompleted { .. } => "pass:completed",
            Self::RateUpdated { .. } => "rate:updated",
            Self::RateLimited { .. } => "rate:limited",
            Self::DemandChanged { .. } => "demand:changed",
            Self::DemandUnreported { .. } => "demand:unreported",
            Self::DemandUnheard { .. } => "demand:unheard",
            Self::SessionDismissed { .. } => "session:dismissed",
            Self::ChannelJoined { .. } => "channel:joined",
            Self::ChannelLeft { .. } => "channel:left",
            Self::PacketDropped { .. } => "packet:dropped",
            Self::PacketMarked { .. } => "packet:marked",
            Self::LinkChanged { .. } => "link:changed",
            Self::SessionOther { .. } => "session:other",
            Self::SessionVerified { .. } => "session:verified",
            Self::SessionUnsigned { .. } => "session:unsigned",
            Self::SessionUntrusted { .. } => "session:untrusted",
            Self::NextKeyAnnounced { .. } => "session:next-key",
            Self::SessionUnopened { .. } => "session:unopened",
            Self::SessionContradicted { .. } => "session:contradicted",
            Self::RepairScheduled { .. } => "repair:scheduled",
            Self::RepairServing { .. } => "repair:serving",
            Self::RepairRefused { .. } => "repair:refused",
            Self::RepairFailed { .. } => "repair:failed",
            Self::PathChanged { .. } => "path:changed",
            Self::SessionDescribed { .. } => "session:described",
            Self::SessionSilent { .. } => "session:silent",
            Self::SessionHeardAgain { .. } => "session:heard-again",
            Self::LongPacketsMissing { .. } => "packets:too-long",
            Self::SessionReplaced { .. } => "session:replaced",
            Self::ContentCompressed { .. } => "content:compressed",
            Self::ObjectAnnounced { .. } => "object:announced",
            Self::ObjectRefused { .. } => "object:refused",
            Self::ObjectCompleted { .. } => "object:completed",
            Self::ObjectMismatch { .. } => "object:mismatch",
            Self::ObjectSkipped { .. } => "object:skipped",
            Self::ObjectWithdrawn { .. } => "object:withdrawn",
            Self::StreamReleased { .. } => "stream:released",
            Self::StreamBuffer { .. } => "stream:buffer",
            Self::StreamEnded { .. } => "stream:ended",
            Self::StreamMissed { .. } => "stream:missed",
            Self::StreamCompleted { .. } => "stream:completed",
            Self::CopyCompared { .. } => "copy:compared",
        }
    }
}

/// Writes the first record of a log. `wall_clock` is the time at the driver's zero in RFC 3339 format, if
/// known. A simulation passes no wall clock, so that repeated runs write the same log.
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
        // qlog's terms for the two ends are QUIC's (client, server); the role is in the events.
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

/// Writes an event as a record of a log. `end` distinguishes several ends that share a log.
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

/// Writes an event as a line of JSON. `end` distinguishes several ends that share an output.
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

/// Returns milliseconds with three decimals (microseconds); nanoseconds would only lengthen every record.
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
