//! What is told of a session of messages: counters for the event log, lines for people.

use headwater::pgm::{PgmReceiveProgress, PgmSendProgress};
use headwater_proto::eventlog::{Messages, Progress, Reasons, Repair};
use headwater_proto::pgm::Malformed;

use crate::feedback;
use crate::screen::{percent, rate};

/// The counters of a sender.
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
        feedback: Some(feedback::event(sent)),
        ..Progress::default()
    }
}

/// The counters of a receiver.
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

/// `3.4 Mbit/s of 3.9 Mbit/s, RTT 84 ± 21 ms, 31 LIs, 12 LEs, 9 passed, 8 reductions, worst 10.87.0.4 (71.0 %)`.
pub fn line_of_sender(sent: &PgmSendProgress) -> String {
    let mut line = format!("{} of {}, {} messages", rate(sent.rate_bits), sent.allowed, sent.messages);
    if let Some(why) = feedback::line(sent) {
        line.push_str(&format!(", {why}"));
    }
    line.push_str(&format!(", {} sent again", sent.counters.repairs));
    line
}

/// `3.4 Mbit/s, 10000 messages, 2.1 % missed, 0 lost`.
pub fn line_of_receiver(received: &PgmReceiveProgress) -> String {
    let counters = &received.counters;
    let missed = percent(counters.missed, counters.packets.saturating_add(counters.lost));
    format!(
        "{}, {} messages, {missed} missed at first, {} packets lost for good",
        rate(received.rate_bits),
        received.messages,
        counters.lost
    )
}
