//! What traces say, read back by parsers that are not ours.

use std::any::Any;

use etherparse::{Ipv4Slice, SlicedPacket, TransportSlice};
use headwater_netsim::agent::{Cbr, Sink, TcpConnection};
use headwater_netsim::engine::{Destination, Run};
use headwater_netsim::network::LossConfig;
use headwater_netsim::network::{Builder, LinkConfig, LinkId};
use headwater_netsim::tcp::{Data, Profile};
use headwater_netsim::trace::{EventLog, Pcap};
use headwater_proto::{ChannelId, Duration, Rate, Seed};
use pcap_file::pcap::PcapReader;
use pcap_file::{DataLink, TsResolution};

use crate::script::millis;

/// Ten segments of TCP of which the wire loses two, and a multicast flow, over one link.
fn run() -> (Run, LinkId) {
    let mut network = Builder::new();
    let [a, b] = ["a", "b"].map(|name| network.node(name));
    let config = LinkConfig::new(Rate::from_kilobits(1_000), Duration::from_millis(10));
    let lossy = config.clone().with_loss(LossConfig::Script(vec![6, 7]));
    let link = network.link("a-b", a, b, lossy, config);
    let jitter = Seed(1).stream("tcp/overhead", 0);
    let mut tcp = Profile::Rfc.config();
    tcp.ecn = true;
    TcpConnection::declare(&mut network, "tcp", (a, b), &tcp, Data::Segments(10), jitter).unwrap();
    let group = network.session("session", a, 1).group(ChannelId::BASE).unwrap();
    let flow = network.flow("cbr");
    let cbr =
        network.agent("cbr", a, Cbr::new(flow, Destination::Group(group), Rate::from_kilobits(8), 228, 28));
    network.start_at(cbr, millis(500));
    network.agent("sink", b, Sink::of_groups(vec![group]));
    (network.build(Seed(1), 0).unwrap(), link)
}

/// The one observer of a run, as what it is.
fn observer<T: 'static>(run: &mut Run) -> T {
    let observer: Box<dyn Any> = run.take_observers().pop().unwrap();
    *observer.downcast::<T>().unwrap()
}

#[test]
fn a_capture_holds_real_packets_with_right_checksums() {
    let (mut run, link) = run();
    let capture = Pcap::new(&run, vec![link, link.reverse()], Vec::new());
    run.observe(Box::new(capture));
    run.run_until(millis(2_000));
    let bytes = observer::<Pcap<Vec<u8>>>(&mut run).finish().unwrap();
    let delivered =
        run.link_counters(link).delivered_packets + run.link_counters(link.reverse()).delivered_packets;

    let mut reader = PcapReader::new(&bytes[..]).unwrap();
    assert_eq!(
        (reader.header().datalink, reader.header().ts_resolution),
        (DataLink::RAW, TsResolution::NanoSecond)
    );
    let mut lines = Vec::new();
    while let Some(packet) = reader.next_packet() {
        let packet = packet.unwrap();
        lines.push(format!("{:>10} {}", packet.timestamp.as_nanos(), describe(&packet.data)));
    }
    assert_eq!(lines.len() as u64, delivered);
    insta::assert_snapshot!(lines.join("\n"));
}

/// A packet in a line, once its checksums are right.
fn describe(data: &[u8]) -> String {
    let ip = Ipv4Slice::from_slice(data).unwrap();
    let header = ip.header().to_header();
    assert_eq!(header.header_checksum, header.calc_header_checksum());
    assert_eq!(usize::from(header.total_len), data.len());
    let sliced = SlicedPacket::from_ip(data).unwrap();
    let ends = format!("{} > {}", ip.header().source_addr(), ip.header().destination_addr());
    let ecn = header.ecn.value();
    match sliced.transport.unwrap() {
        TransportSlice::Udp(udp) => {
            let sum = udp.to_header().calc_checksum_ipv4(&header, udp.payload()).unwrap();
            assert_eq!(udp.checksum(), sum);
            format!("{ends} ecn {ecn} udp {} bytes", udp.payload().len())
        }
        TransportSlice::Tcp(tcp) => {
            let fields = tcp.to_header();
            assert_eq!(tcp.checksum(), fields.calc_checksum_ipv4(&header, tcp.payload()).unwrap());
            let flags = [(fields.syn, "S"), (fields.ack, "A"), (fields.ece, "E"), (fields.cwr, "C")];
            let flags: String = flags.into_iter().filter(|(set, _)| *set).map(|(_, name)| name).collect();
            let sack: Vec<_> = tcp.options_iterator().map(|option| option.unwrap()).collect();
            format!(
                "{ends} ecn {ecn} tcp {flags} seq {} ack {} {} bytes {sack:?}",
                fields.sequence_number,
                fields.acknowledgment_number,
                tcp.payload().len()
            )
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_event_log_tells_of_joins_and_losses() {
    let (mut run, _) = run();
    let log = EventLog::new(&run, "test", Vec::new());
    run.observe(Box::new(log));
    run.run_until(millis(2_000));
    let log = String::from_utf8(observer::<EventLog<Vec<u8>>>(&mut run).finish().unwrap()).unwrap();
    let records: Vec<&str> =
        log.split_terminator('\n').map(|line| line.strip_prefix('\u{1e}').unwrap()).collect();
    let json: Vec<serde_json::Value> =
        records.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(json[0]["trace"]["event_schemas"][0], headwater_proto::eventlog::EVENT_SCHEMA);
    let what: Vec<_> =
        json[1..].iter().map(|json| (json["name"].as_str(), json["group_id"].as_str())).collect();
    let (joined, lost) = ((Some("channel:joined"), Some("sink")), (Some("packet:dropped"), None));
    assert_eq!(what, [joined, lost, lost]);
    let expected = serde_json::json!({"link": "a-b", "flow": "tcp", "sequence": 5, "reason": "lost"});
    assert_eq!(json[2]["data"], expected);
}
