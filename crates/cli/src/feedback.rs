//! Why a sender that goes by its receivers' NAKs sends at its rate.

use headwater::pgm::PgmSendProgress;
use headwater_proto::eventlog::Feedback;

/// For the event log.
pub fn event(sent: &PgmSendProgress) -> Feedback {
    let counters = &sent.counters;
    let feedback = Feedback {
        allowed_rate: sent.allowed.as_bits(),
        loss_indications: counters.asked,
        repairs: counters.repairs,
        confirmations: counters.ncfs,
        asked_future: counters.refused.future,
        asked_past: counters.refused.past,
        foreign: counters.refused.foreign,
        ..Feedback::default()
    };
    let Some(why) = &sent.feedback else { return feedback };
    Feedback {
        rtt: Some(1e3 * why.rtt.as_secs_f64()),
        rtt_deviation: Some(1e3 * why.rtt_deviation.as_secs_f64()),
        loss_indications: why.counters.indications,
        loss_events: why.counters.events,
        passed: why.counters.passed,
        reductions: why.counters.reductions,
        receivers: why.receivers,
        worst: why.worst.map(|(address, _)| address),
        worst_share: why.worst.map(|(_, share)| share),
        ..feedback
    }
}

/// For people: `RTT 84 ± 21 ms, 31 LIs, 12 LEs, 9 passed, 8 reductions, worst 10.87.0.4 (71 %)`; nothing at a fixed rate.
pub fn line(sent: &PgmSendProgress) -> Option<String> {
    let why = sent.feedback.as_ref()?;
    let (rtt, deviation, counters) = (why.rtt.as_millis(), why.rtt_deviation.as_millis(), &why.counters);
    let mut line = format!(
        "RTT {rtt} ± {deviation} ms, {} LIs, {} LEs, {} passed, {} reductions",
        counters.indications, counters.events, counters.passed, counters.reductions
    );
    if let Some((address, share)) = why.worst {
        line.push_str(&format!(", worst {address} ({:.0} %)", 100.0 * share));
    }
    Some(line)
}
