//! Progress of sessions of messages: counters for the event log, lines for people.

use std::time::Duration;

use headwater::pgm::{PgmReceiveProgress, PgmSendProgress};
use headwater_proto::Size;
use headwater_proto::eventlog::{Messages, Progress, Reasons, Repair};
use headwater_proto::pgm::Malformed;

use crate::feedback;
use crate::screen::{percent, rate, time};
use crate::send::average;

/// Returns the counters of a sender.
pub fn of_sender(sent: &PgmSendProgress) -> Progress {
    let counters = &sent.counters;
    Progress {
        packets: counters.originals + counters.repairs + counters.ncfs + counters.spms,
        bytes: counters.bytes,
        rate: sent.rate_bits,
        unsent: sent.unsent,
        dropped: counters.refused.malformed.total(),
        dropped_for: reasons(&counters.refused.malformed),
        messages: Some(Messages { messages: sent.messages, message_bytes: sent.message_bytes, repair: None }),
        feedback: sent.feedback.without("malformed"),
        ..Progress::default()
    }
}

/// Returns the counters of a receiver.
pub fn of_receiver(received: &PgmReceiveProgress) -> Progress {
    let counters = &received.counters;
    let repair = Repair {
        missed: counters.missed,
        repaired: counters.repaired,
        naks: counters.naks,
        broken: received.broken,
        foreign: counters.foreign,
    };
    Progress {
        packets: counters.packets,
        bytes: counters.bytes,
        rate: received.rate_bits,
        lost: counters.lost,
        duplicates: counters.duplicates,
        dropped: counters.malformed.total(),
        dropped_for: reasons(&counters.malformed),
        kernel_drops: received.kernel_drops,
        messages: Some(Messages {
            messages: received.messages,
            message_bytes: received.message_bytes,
            repair: Some(repair),
        }),
        ..Progress::default()
    }
}

fn reasons(malformed: &Malformed) -> Reasons {
    let mut reasons = Reasons::default();
    reasons.0.iter_mut().zip(malformed.by_reason()).for_each(|(place, reason)| *place = reason);
    reasons
}

/// Returns `3.4 Mbit/s`, `10000 messages`, `3.9 Mbit/s allowed`, `12 sent again` and reasons for the rate, by
/// importance.
pub fn parts_of_sender(sent: &PgmSendProgress) -> Vec<String> {
    let mut parts = vec![
        rate(sent.rate_bits),
        format!("{} messages", sent.messages),
        format!("{} allowed", sent.allowed),
        format!("{} sent again", sent.counters.repairs),
    ];
    parts.extend(feedback::parts(&sent.feedback));
    parts
}

/// Returns `3.4 Mbit/s`, `10000 messages`, `0 packets lost for good`, `2.1 % missed at first`, by importance.
pub fn parts_of_receiver(received: &PgmReceiveProgress) -> Vec<String> {
    vec![
        rate(received.rate_bits),
        format!("{} messages", received.messages),
        format!("{} packets lost for good", received.counters.lost),
        format!("{} missed at first", missed(received)),
    ]
}

/// Formats the summary of a sender:
/// `sent 10000 messages, 14 MB in 12.3 s, 9.1 Mbit/s on average; 31 packets sent again`.
pub fn summary_of_sender(sent: &PgmSendProgress) -> String {
    let PgmSendProgress { messages, message_bytes, elapsed, counters, .. } = sent;
    let whole = whole("sent", *messages, *message_bytes, *elapsed);
    let why = feedback::summary(&sent.feedback).map_or_else(String::new, |why| format!("; {why}"));
    format!("{whole}; {} packets sent again{why}", counters.repairs)
}

/// Formats the summary of a receiver: `received 10000 messages, 14 MB in 12.3 s, 9.1 Mbit/s on average; 2.1 %
/// of the packets missed at first, 0 lost for good`.
pub fn summary_of_receiver(received: &PgmReceiveProgress) -> String {
    let PgmReceiveProgress { messages, message_bytes, elapsed, counters, .. } = received;
    let whole = whole("received", *messages, *message_bytes, *elapsed);
    format!("{whole}; {} of the packets missed at first, {} lost for good", missed(received), counters.lost)
}

fn whole(done: &str, messages: u64, bytes: u64, elapsed: Duration) -> String {
    let mean = rate(average(bytes, elapsed));
    format!("{done} {messages} messages, {} in {}, {mean} on average", Size(bytes), time(elapsed))
}

fn missed(received: &PgmReceiveProgress) -> String {
    let counters = &received.counters;
    percent(counters.missed, counters.packets.saturating_add(counters.lost))
}
