//! The queues and loss models of a plan.

use crate::network::{CodelConfig, GilbertElliott, LinkQueue, LossConfig, PolicerConfig};
use headwater_proto::queue::{
    Limit, Marking, ParameterError, PriorityConfig, QueueConfig, RedConfig, THRESHOLD_DEFAULT, Thresholds,
    Weight,
};
use headwater_proto::{Duration, Rate, Size};

use super::section::Section;
use super::tree::Value;
use super::value::Probability;
use crate::network::{Impairments, LossFilter};

/// Packets that a queue holds where a plan says nothing (the default of ns-2).
const PACKETS_DEFAULT: u32 = 50;
/// Maximum number of packets in a loss script.
const SCRIPT_PACKETS_MAX: usize = 100_000;

const DROP_TAIL_KEYS: &[&str] = &["kind", "packets", "bytes"];
const RED_KEYS: &[&str] = &[
    "kind",
    "packets",
    "bytes",
    "preset",
    "th-min",
    "th-max",
    "th-time",
    "weight",
    "max-p",
    "gentle",
    "wait",
    "average-in-bytes",
    "draw-by-bytes",
    "mean-packet",
    "ecn",
    "mark-p",
    "hard-drop",
];
/// Keys of priority marking.
const PRIORITY_KEYS: &[&str] =
    &["kind", "packets", "bytes", "marking", "threshold", "average", "priority", "th-min", "th-max", "max-p"];
const POLICER_KEYS: &[&str] = &["kind", "packets", "bytes", "rate", "burst"];
const CODEL_KEYS: &[&str] = &["kind", "packets", "bytes", "target", "interval", "ecn"];

const LOSS_KEYS: &[&str] = &[
    "kind",
    "p",
    "rate",
    "burst",
    "good-to-bad",
    "bad-to-good",
    "loss-good",
    "loss-bad",
    "packets",
    "filter",
    "direction",
];

/// Random or scripted loss behind a queue.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Loss {
    /// Loss model.
    pub model: LossConfig,
    /// Packets subject to the model.
    pub filter: LossFilter,
}

impl Loss {
    /// Packets that a script names.
    pub(crate) fn scripted(&self) -> usize {
        match &self.model {
            LossConfig::Script(numbers) => numbers.len(),
            _ => 0,
        }
    }
}

/// The queue under `queue`, for a link of this rate and delay.
pub(crate) fn queue(link: &Section<'_>, rate: Rate, delay: Duration) -> Option<LinkQueue> {
    let Some(Value::Table(table)) = link.node("queue").map(|node| &node.value) else {
        // Reports an entry that is not a table.
        link.section("queue", DROP_TAIL_KEYS);
        return Some(QueueConfig::drop_tail(PACKETS_DEFAULT).into());
    };
    let written = table.entries.get("kind").map(|entry| &entry.node.value);
    let keys = match written {
        Some(Value::Text(kind)) => match kind.as_str() {
            "priority" => PRIORITY_KEYS,
            "policer" => POLICER_KEYS,
            "codel" => CODEL_KEYS,
            "drop-tail" => DROP_TAIL_KEYS,
            _ => RED_KEYS,
        },
        Some(_) => RED_KEYS,
        None => DROP_TAIL_KEYS,
    };
    let section = link.section("queue", keys)?;
    let config = match section.word_or("kind", &["drop-tail", "red", "priority", "policer", "codel"])? {
        "red" => QueueConfig::Red(red(&section)?).into(),
        "priority" => QueueConfig::Priority(priority(&section)?).into(),
        "policer" => LinkQueue::Policer(policer(&section)?),
        "codel" => LinkQueue::Codel(codel(&section)?),
        _ => QueueConfig::DropTail(limit(&section)?).into(),
    };
    if let Err(error) = config.check(rate, delay) {
        let ParameterError { parameter, value, requirement } = error;
        let parameter = if parameter == "packet_bytes_mean" { "mean-packet" } else { parameter };
        let message = format!("'{parameter}' is {value}; it must be {requirement}").replace('_', "-");
        section.problem(&section.span, message);
        return None;
    }
    Some(config)
}

fn limit(queue: &Section<'_>) -> Option<Limit> {
    let packets = queue.within("packets", &(0..=u64::from(u32::MAX)));
    match (packets, queue.get::<Size>("bytes")) {
        (Some(_), Some(_)) => {
            queue.problem(&queue.span, "a queue is limited by 'packets' or by 'bytes', not by both");
            None
        }
        (None, Some(Size(bytes))) => Some(Limit::Bytes(bytes)),
        (packets, None) => Some(Limit::Packets(
            packets.and_then(|packets| u32::try_from(packets).ok()).unwrap_or(PACKETS_DEFAULT),
        )),
    }
}

fn red(queue: &Section<'_>) -> Option<RedConfig> {
    let preset = match queue.node("preset") {
        None => "ns1999",
        Some(_) => queue.word("preset", &["ns1999", "after-2001"])?,
    };
    let base = if preset == "ns1999" { RedConfig::ns1999(0) } else { RedConfig::after_2001(0) };
    let mean = queue.get::<Size>("mean-packet").map(|Size(bytes)| u32::try_from(bytes).unwrap_or(u32::MAX));
    Some(RedConfig {
        limit: limit(queue)?,
        thresholds: thresholds(queue, base.thresholds)?,
        weight: weight(queue, base.weight)?,
        max_p: queue.or("max-p", base.max_p),
        gentle: queue.or("gentle", base.gentle),
        wait: queue.or("wait", base.wait),
        average_in_bytes: queue.or("average-in-bytes", base.average_in_bytes),
        draw_by_bytes: queue.or("draw-by-bytes", base.draw_by_bytes),
        packet_bytes_mean: mean.unwrap_or(base.packet_bytes_mean),
        ecn: queue.or("ecn", base.ecn),
        mark_p: queue.or("mark-p", base.mark_p),
        hard_drop: queue.or("hard-drop", base.hard_drop),
    })
}

fn priority(queue: &Section<'_>) -> Option<PriorityConfig> {
    let base = PriorityConfig::new(PACKETS_DEFAULT);
    let marking = match queue.word_or("marking", &["red", "threshold"])? {
        "threshold" => Marking::Threshold(queue.or("threshold", THRESHOLD_DEFAULT)),
        _ => {
            if queue.node("threshold").is_some() {
                queue.problem_at("threshold", "'threshold' is of marking = \"threshold\"");
            }
            Marking::Red
        }
    };
    let weight = queue.get::<Duration>("average").map_or(base.red.weight, Weight::Over);
    let thresholds = thresholds(queue, base.red.thresholds)?;
    let max_p = queue.or("max-p", base.red.max_p);
    let red = RedConfig { limit: limit(queue)?, thresholds, weight, max_p, ..base.red };
    Some(PriorityConfig { red, marking, is_priority: queue.or("priority", true), ..base })
}

fn policer(queue: &Section<'_>) -> Option<PolicerConfig> {
    let (rate, burst): (Option<Rate>, Option<Size>) = (queue.need("rate"), queue.need("burst"));
    Some(PolicerConfig { rate: rate?, burst_bytes: burst?.0, limit: limit(queue)? })
}

fn codel(queue: &Section<'_>) -> Option<CodelConfig> {
    let base = CodelConfig::new(PACKETS_DEFAULT);
    Some(CodelConfig {
        limit: limit(queue)?,
        target: queue.or("target", base.target),
        interval: queue.or("interval", base.interval),
        ecn: queue.or("ecn", base.ecn),
    })
}

fn thresholds(queue: &Section<'_>, preset: Thresholds) -> Option<Thresholds> {
    let time = if queue.knows("th-time") { queue.get::<Duration>("th-time") } else { None };
    match (queue.get::<f64>("th-min"), queue.get::<f64>("th-max"), time) {
        (Some(min), Some(max), None) => Some(Thresholds::Fixed { min, max }),
        (None, None, Some(time)) => Some(Thresholds::Automatic(time)),
        (None, None, None) => Some(preset),
        _ => {
            let message = "thresholds are given by 'th-min' and 'th-max' together, or by 'th-time' alone";
            queue.problem(&queue.span, message);
            None
        }
    }
}

fn weight(queue: &Section<'_>, preset: Weight) -> Option<Weight> {
    match queue.node("weight").map(|node| &node.value) {
        None => Some(preset),
        Some(Value::Text(text)) if text == "auto" => Some(Weight::Automatic),
        Some(Value::Text(text)) => {
            queue
                .problem_at("weight", format!("'{text}' is no weight; write for example 0.002, or \"auto\""));
            None
        }
        Some(_) => queue.get("weight").map(Weight::Fixed),
    }
}

/// Affected directions of a link: forward, back.
pub(crate) type Sides = [bool; 2];

/// Directions under `direction`; default forward.
pub(crate) fn sides(section: &Section<'_>) -> Sides {
    match section.word("direction", &["forward", "back", "both"]) {
        Some("both") => [true, true],
        Some("back") => [false, true],
        _ => [true, false],
    }
}

/// Reads the loss under `loss`, and the directions to which the loss applies.
pub(crate) fn loss(link: &Section<'_>) -> Option<(Loss, Sides)> {
    let either = link.section("loss", LOSS_KEYS)?;
    either.need::<String>("kind")?;
    let kind = either.word("kind", &["none", "bernoulli", "gilbert", "script"])?;
    let own: &[&'static str] = match kind {
        "bernoulli" => &["p"],
        "gilbert" => &["rate", "burst", "good-to-bad", "bad-to-good", "loss-good", "loss-bad"],
        "script" => &["packets"],
        _ => &[],
    };
    let loss = link.section("loss", &[&["kind", "filter", "direction"], own].concat())?;
    let model = match kind {
        "none" => LossConfig::None,
        "bernoulli" => LossConfig::Bernoulli(loss.need::<Probability>("p")?.0),
        "gilbert" => LossConfig::GilbertElliott(gilbert(&loss)?),
        _ => LossConfig::Script(script(&loss)?),
    };
    if let Err(error) = model.model() {
        loss.problem(&loss.span, format!("this loss makes no sense: {error}"));
        return None;
    }
    let filter = match loss.word("filter", &["data", "all"]) {
        Some("data") => LossFilter::Data,
        _ => LossFilter::All,
    };
    Some((Loss { model, filter }, sides(&loss)))
}

/// Reads `rate` and `burst` (Gilbert's simple chain), or the four probabilities.
fn gilbert(loss: &Section<'_>) -> Option<GilbertElliott> {
    if loss.node("rate").is_some() || loss.node("burst").is_some() {
        let rate = loss.need::<Probability>("rate")?.0;
        let burst = loss.need::<f64>("burst")?;
        if rate >= 1.0 || burst < 1.0 {
            loss.problem(
                &loss.span,
                "'rate' must be below 1, and 'burst', the mean run of losses, at least 1 packet",
            );
            return None;
        }
        return Some(GilbertElliott::simple(rate, burst));
    }
    let chance = |key| loss.need::<Probability>(key).map(|p| p.0);
    Some(GilbertElliott {
        good_to_bad: chance("good-to-bad")?,
        bad_to_good: chance("bad-to-good")?,
        loss_good: loss.or("loss-good", Probability(0.0)).0,
        loss_bad: loss.or("loss-bad", Probability(1.0)).0,
    })
}

fn script(loss: &Section<'_>) -> Option<Vec<u64>> {
    let Some(Value::Array(items)) = loss.node("packets").map(|node| &node.value) else {
        loss.problem_at("packets", "a script lists the packets to drop, numbered from 1: packets = [3, 17]");
        return None;
    };
    if items.len() > SCRIPT_PACKETS_MAX {
        loss.problem_at("packets", format!("a script lists at most {SCRIPT_PACKETS_MAX} packets"));
        return None;
    }
    let mut numbers = Vec::new();
    for item in items {
        match &item.value {
            Value::Integer(number) if *number > 0 => numbers.push(number.unsigned_abs()),
            _ => {
                loss.problem(&item.span, "packets are numbered from 1");
                return None;
            }
        }
    }
    Some(numbers)
}

/// Reads the faults under `impair`, and the directions to which the faults apply.
pub(crate) fn impairments(link: &Section<'_>) -> Option<(Impairments, Sides)> {
    const KEYS: &[&str] = &["reordered", "reordered-by", "duplicated", "corrupted", "damaged", "direction"];
    let impair = link.section("impair", KEYS)?;
    let chance = |key| impair.or(key, Probability(0.0)).0;
    let reordered = chance("reordered");
    let reordered_by = if reordered > 0.0 { impair.need("reordered-by")? } else { Duration::ZERO };
    let impairments = Impairments {
        reordered,
        reordered_by,
        duplicated: chance("duplicated"),
        corrupted: chance("corrupted"),
        damaged: chance("damaged"),
    };
    Some((impairments, sides(&impair)))
}
