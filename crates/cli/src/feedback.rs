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

/// For people, by their importance: `worst receiver 10.87.0.4`, `RTT 84 ms`, `31 losses reported`, `rate reduced 8 times`; nothing at a fixed rate.
pub fn parts(sent: &PgmSendProgress) -> Vec<String> {
    let Some(why) = &sent.feedback else { return Vec::new() };
    let worst = why.worst.map(|(address, _)| format!("worst receiver {address}"));
    let rest = [
        format!("RTT {} ms", why.rtt.as_millis()),
        format!("{} reported", losses(why.counters.indications)),
        format!("rate reduced {}", times(why.counters.reductions)),
    ];
    worst.into_iter().chain(rest).collect()
}

/// What a whole session came to: `receivers reported 31 lost packets in 12 loss events; the rate was reduced 8 times, ...`; nothing at a fixed rate.
pub fn summary(sent: &PgmSendProgress) -> Option<String> {
    let why = sent.feedback.as_ref()?;
    let counters = &why.counters;
    let worst = why.worst.map_or_else(String::new, |(address, share)| {
        format!("; {:.0} % of the loss events were those of {address}, the worst receiver", 100.0 * share)
    });
    Some(format!(
        "receivers reported {} in {} loss events; the rate was reduced {}; round trip {} ms{worst}",
        losses(counters.indications),
        counters.events,
        times(counters.reductions),
        why.rtt.as_millis()
    ))
}

fn losses(number: u64) -> String {
    if number == 1 { "1 loss".to_owned() } else { format!("{number} losses") }
}

fn times(number: u64) -> String {
    if number == 1 { "once".to_owned() } else { format!("{number} times") }
}
