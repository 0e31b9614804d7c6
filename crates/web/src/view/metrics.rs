//! Metrics in the form of OpenMetrics, from the samples of all ends.

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use super::sample::{ENDS_MAX, EndSample};

/// Media type of OpenMetrics.
pub(super) const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Only rises, within a session.
    Counter,
    /// Rises and falls.
    Gauge,
    /// Describes the program; the value is 1.
    Info,
}

impl MetricKind {
    /// Returns the word of OpenMetrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Info => "info",
        }
    }
}

/// Metric of the list of all metrics.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Name as a scrape shows it.
    pub name: &'static str,
    /// Kind.
    pub kind: MetricKind,
    /// Label beside `session`, if any.
    pub label: Option<&'static str>,
    /// Meaning, with the unit.
    pub help: &'static str,
    values: Values,
}

/// Values of a metric for an end.
#[derive(Clone, Copy, Debug)]
enum Values {
    /// A value, if the end has the value.
    One(fn(&EndSample) -> Option<f64>),
    Count(fn(&EndSample) -> Option<u64>),
    /// Values by the value of the label.
    ByLabel(fn(&EndSample) -> Vec<(&str, u64)>),
    Build,
}

const fn counter(name: &'static str, help: &'static str, value: fn(&EndSample) -> Option<u64>) -> Metric {
    Metric { name, kind: MetricKind::Counter, label: None, help, values: Values::Count(value) }
}

const fn gauge(name: &'static str, help: &'static str, value: fn(&EndSample) -> Option<f64>) -> Metric {
    Metric { name, kind: MetricKind::Gauge, label: None, help, values: Values::One(value) }
}

const fn level(name: &'static str, help: &'static str, value: fn(&EndSample) -> Option<u64>) -> Metric {
    Metric { name, kind: MetricKind::Gauge, label: None, help, values: Values::Count(value) }
}

const fn family(
    (name, kind, label): (&'static str, MetricKind, &'static str),
    help: &'static str,
    values: fn(&EndSample) -> Vec<(&str, u64)>,
) -> Metric {
    Metric { name, kind, label: Some(label), help, values: Values::ByLabel(values) }
}

/// All metrics, in order. `docs/reference/metrics.md` is generated from this list.
pub const METRICS: &[Metric] = &[
    family(
        ("headwater_received_bytes_total", MetricKind::Counter, "path"),
        "UDP payload received, and content from HTTP servers, in bytes; path as in `bytes_by_path` of the events",
        |end| {
            let paths = end.bytes_by_path.iter().filter(|_| is_receiver(end));
            paths.map(|(path, bytes)| (path.as_str(), *bytes)).collect()
        },
    ),
    family(
        ("headwater_sent_bytes_total", MetricKind::Counter, "path"),
        "UDP payload sent, in bytes: to a group (multicast), on request (unicast), or by a relay",
        |end| if is_receiver(end) { Vec::new() } else { vec![(sent_path(end), end.bytes)] },
    ),
    counter("headwater_received_packets_total", "Datagrams received", |end| received(end, end.packets)),
    counter("headwater_sent_packets_total", "Datagrams sent", |end| {
        (!is_receiver(end)).then_some(end.packets)
    }),
    counter("headwater_lost_packets_total", "Packets missing in the sequence numbers", |end| {
        received(end, end.lost)
    }),
    counter("headwater_marked_packets_total", "Datagrams marked with congestion experienced", |end| {
        received(end, end.marked)
    }),
    family(
        ("headwater_dropped_datagrams_total", MetricKind::Counter, "reason"),
        "Datagrams that the end dropped, by reason (names of `dropped_for` in the events; `unsent` and `queue` at senders and relays)",
        |end| end.dropped.iter().map(|(reason, count)| (reason.as_str(), *count)).collect(),
    ),
    counter(
        "headwater_kernel_drops_total",
        "Datagrams that the kernel dropped before they were read",
        |end| received(end, end.kernel_drops),
    ),
    counter("headwater_useful_symbols_total", "Symbols that the receiver needed on arrival", |end| {
        received(end, end.useful)
    }),
    counter(
        "headwater_duplicate_symbols_total",
        "Symbols that the receiver already had, or that exceeded the need of a block",
        |end| received(end, end.duplicates),
    ),
    family(
        ("headwater_blocks", MetricKind::Gauge, "state"),
        "Blocks of the announced files: whole, or open",
        |end| {
            let blocks =
                end.blocks.map(|[all, whole]| [("whole", whole), ("open", all.saturating_sub(whole))]);
            blocks.into_iter().flatten().collect()
        },
    ),
    family(
        ("headwater_objects", MetricKind::Gauge, "state"),
        "Files: whole, open (announced and not whole), or failed (refused, discarded or withdrawn)",
        |end| {
            let open = end.files_total.saturating_sub(end.files_whole.saturating_sub(end.members));
            let open = open.saturating_sub(end.files_failed);
            vec![("whole", end.files_whole), ("open", open), ("failed", end.files_failed)]
        },
    ),
    family(
        ("headwater_bundle_members", MetricKind::Gauge, "state"),
        "Members of bundles that are in place (whole)",
        |end| if is_receiver(end) { vec![("whole", end.members)] } else { Vec::new() },
    ),
    gauge("headwater_content_ratio", "Part of the content that a receiver has, from 0 to 1", |end| {
        is_receiver(end).then(|| end.done())
    }),
    level("headwater_rate_bits", "Rate over the last second, in bit/s of UDP payload", |end| Some(end.rate)),
    level(
        "headwater_fair_rate_bits",
        "Fair rate by the congestion control, in bit/s of UDP payload",
        |end| end.fair_rate,
    ),
    gauge("headwater_loss_event_ratio", "Recent loss events per packet, by the congestion control", |end| {
        end.loss_events
    }),
    gauge("headwater_rtt_seconds", "Round-trip time, queueing included, in seconds", |end| {
        end.rtt.map(|millis| millis / 1e3)
    }),
    level("headwater_channels_joined", "Subscribed channels", |end| end.channels),
    level("headwater_ceiling_level", "Highest level that the sender sends", |end| end.ceiling),
    level(
        "headwater_ceiling_rate_bits",
        "Rates of all levels that the sender sends at present, together, in bit/s of UDP payload",
        |end| end.ceiling_rate,
    ),
    counter(
        "headwater_demand_reports_total",
        "Reports of receivers, or requests and reports at a relay",
        |end| (!is_receiver(end)).then_some(end.reports),
    ),
    family(
        ("headwater_receivers", MetricKind::Gauge, "state"),
        "Receivers that report to a sender, by state as in `receiver:reported`",
        |end| end.receivers.iter().map(|(state, count)| (state.as_str(), *count)).collect(),
    ),
    Metric {
        name: "headwater_build_info",
        kind: MetricKind::Info,
        label: Some("version"),
        help: "Version of the program",
        values: Values::Build,
    },
];

fn is_receiver(end: &EndSample) -> bool {
    end.role == "receiver"
}

fn received(end: &EndSample, count: u64) -> Option<u64> {
    is_receiver(end).then_some(count)
}

fn sent_path(end: &EndSample) -> &'static str {
    let is_group = |at: std::net::SocketAddr| at.ip().is_multicast();
    match end.role.as_str() {
        "relay" => "relay",
        _ if end.group.parse().is_ok_and(is_group) => "multicast",
        _ => "unicast",
    }
}

/// Returns the metrics of all ends. A process with a single end has the group and port as its session.
pub(super) fn encode(ends: &BTreeMap<String, EndSample>) -> String {
    let sessions = ends.iter().take(ENDS_MAX).map(|(name, end)| {
        let is_unnamed = name == super::feed::UNNAMED && !end.group.is_empty();
        (if is_unnamed { end.group.clone() } else { name.clone() }, end.clone())
    });
    let mut registry = Registry::default();
    registry.register_collector(Box::new(EndSamples(sessions.collect())));
    let mut text = String::new();
    match prometheus_client::encoding::text::encode(&mut text, &registry) {
        Ok(()) => text,
        Err(fmt::Error) => "# EOF\n".to_owned(),
    }
}

#[derive(Debug)]
struct EndSamples(Vec<(String, EndSample)>);

impl Collector for EndSamples {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for metric in METRICS {
            let (name, kind) = match metric.kind {
                MetricKind::Counter => {
                    (metric.name.strip_suffix("_total").unwrap_or(metric.name), MetricType::Counter)
                }
                MetricKind::Gauge => (metric.name, MetricType::Gauge),
                MetricKind::Info => {
                    (metric.name.strip_suffix("_info").unwrap_or(metric.name), MetricType::Info)
                }
            };
            let mut encoder = encoder.encode_descriptor(name, metric.help, None, kind)?;
            if metric.kind == MetricKind::Info {
                encoder.encode_info(&[("version", env!("CARGO_PKG_VERSION"))])?;
                continue;
            }
            for (session, end) in &self.0 {
                write_values(&mut encoder, metric, (session, end))?;
            }
        }
        Ok(())
    }
}

/// Writes the values of a metric for an end.
fn write_values(
    encoder: &mut MetricEncoder<'_>,
    metric: &Metric,
    (session, end): (&str, &EndSample),
) -> fmt::Result {
    let session = ("session", session);
    match metric.values {
        Values::One(value) => match value(end) {
            Some(value) => encoder.encode_family(&[session])?.encode_gauge(&value),
            None => Ok(()),
        },
        Values::Count(value) => match value(end) {
            Some(value) => number(&mut encoder.encode_family(&[session])?, metric.kind, value),
            None => Ok(()),
        },
        Values::ByLabel(values) => values(end).into_iter().try_for_each(|(word, value)| {
            let labels = [session, (metric.label.unwrap_or_default(), word)];
            number(&mut encoder.encode_family(&labels)?, metric.kind, value)
        }),
        Values::Build => Ok(()),
    }
}

fn number(encoder: &mut MetricEncoder<'_>, kind: MetricKind, value: u64) -> fmt::Result {
    match kind {
        MetricKind::Counter => encoder.encode_counter::<NoLabelSet, u64, u64>(&value, None),
        _ => encoder.encode_gauge(&i64::try_from(value).unwrap_or(i64::MAX)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends() -> BTreeMap<String, EndSample> {
        let mut receiver = EndSample { role: "receiver".into(), packets: 7, ..EndSample::default() };
        receiver.bytes_by_path.insert("multicast".into(), 9_000);
        receiver.dropped.insert("mal\"formed\n".into(), 2);
        (receiver.rtt, receiver.loss_events) = (Some(12.5), Some(0.25));
        receiver.group = "239.0.0.1:7287".into();
        let mut sender = EndSample { role: "sender".into(), bytes: 10, rate: 3, ..EndSample::default() };
        sender.receivers.insert("done".into(), 12);
        BTreeMap::from([("end".to_owned(), receiver), ("sender".to_owned(), sender)])
    }

    #[test]
    fn metrics_have_a_session_and_end_with_eof() {
        let text = encode(&ends());
        for line in [
            "# TYPE headwater_received_bytes counter",
            "headwater_received_bytes_total{session=\"239.0.0.1:7287\",path=\"multicast\"} 9000",
            "headwater_sent_bytes_total{session=\"sender\",path=\"unicast\"} 10",
            "headwater_rtt_seconds{session=\"239.0.0.1:7287\"} 0.0125",
            "headwater_rate_bits{session=\"sender\"} 3",
            "headwater_receivers{session=\"sender\",state=\"done\"} 12",
            "headwater_dropped_datagrams_total{session=\"239.0.0.1:7287\",reason=\"mal\\\"formed\\n\"} 2",
        ] {
            assert!(text.lines().any(|other| other == line), "{line} in\n{text}");
        }
        assert!(text.ends_with("# EOF\n") && text.contains("headwater_build_info{version="), "{text}");
        assert!(!text.contains("headwater_sent_packets_total{session=\"239"), "{text}");
    }

    #[test]
    fn names_are_unique_and_well_formed() {
        let mut names: Vec<_> = METRICS.iter().map(|metric| metric.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), METRICS.len());
        for Metric { name, kind, .. } in METRICS {
            assert!(
                name.starts_with("headwater_")
                    && name.bytes().all(|byte| byte == b'_' || byte.is_ascii_lowercase())
            );
            assert_eq!(name.ends_with("_total"), *kind == MetricKind::Counter, "{name}");
        }
    }

    #[test]
    fn sessions_are_bounded() {
        let many = (0..1_000).map(|number| (format!("end-{number}"), EndSample::default())).collect();
        assert!(encode(&many).matches("headwater_rate_bits{").count() <= ENDS_MAX);
    }
}
