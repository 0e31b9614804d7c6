//! Reasons for the rate of a sender whose receivers send NAKs.

use headwater_proto::control::{Counters, Value};

/// Returns parts of a progress line by importance: `worst receiver 10.87.0.4`, `RTT 84 ms`,
/// `31 losses reported`, `rate reduced 8 times`; empty at a fixed rate.
pub fn parts(counters: &Counters) -> Vec<String> {
    let Some(Value::Time(rtt)) = counters.get("rtt") else { return Vec::new() };
    let mut parts = Vec::new();
    if let Some(Value::Address(address)) = counters.get("worst") {
        parts.push(format!("worst receiver {address}"));
    }
    parts.push(format!("RTT {} ms", rtt.as_millis()));
    parts.push(format!("{} reported", losses(counters.count("loss_indications"))));
    parts.push(format!("rate reduced {}", times(counters.count("reductions"))));
    parts
}

/// Returns the summary of a session:
/// `receivers reported 31 lost packets in 12 loss events; the rate was reduced 8 times, ...`; `None` at a
/// fixed rate.
pub fn summary(counters: &Counters) -> Option<String> {
    let Some(Value::Time(rtt)) = counters.get("rtt") else { return None };
    let worst = match (counters.get("worst"), counters.get("worst_share")) {
        (Some(Value::Address(address)), Some(Value::Share(share))) => {
            format!("; {:.0} % of the loss events were those of {address}, the worst receiver", 100.0 * share)
        }
        _ => String::new(),
    };
    Some(format!(
        "receivers reported {} in {} loss events; the rate was reduced {}; round trip {} ms{worst}",
        losses(counters.count("loss_indications")),
        counters.count("loss_events"),
        times(counters.count("reductions")),
        rtt.as_millis()
    ))
}

fn losses(number: u64) -> String {
    if number == 1 { "1 loss".to_owned() } else { format!("{number} losses") }
}

fn times(number: u64) -> String {
    if number == 1 { "once".to_owned() } else { format!("{number} times") }
}
