//! AMT messages, packets within, and relayed reports are written as bytes that read the same.
#![no_main]
use headwater_wire::amt::Message;
use headwater_wire::amt::demand::RelayedReport;
use headwater_wire::amt::inner::InnerDatagram;
use headwater_wire::amt::membership::{Query, Report};
use headwater_wire::amt::roster::RelayedRosterReport;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(report) = RelayedReport::parse(bytes) {
        assert_eq!(RelayedReport::parse(&report.emit()), Ok(report));
    }
    let mut buffer = vec![0; bytes.len() + 128];
    if let Ok(report) = RelayedRosterReport::parse(bytes) {
        let length = report.emit(&mut buffer).expect("there is room");
        assert_eq!(RelayedRosterReport::parse(&buffer[..length]), Ok(report));
    }
    let Ok(message) = Message::parse(bytes) else { return };
    let length = message.emit(&mut buffer).expect("there is room");
    assert_eq!(Message::parse(&buffer[..length]), Ok(message));
    match message {
        Message::Data { packet } => {
            if let Ok(datagram) = InnerDatagram::parse(packet) {
                let mut buffer = vec![0; bytes.len() + 128];
                let length = datagram.emit(&mut buffer).expect("there is room");
                assert_eq!(InnerDatagram::parse(&buffer[..length]), Ok(datagram));
            }
        }
        Message::Query { query, .. } => _ = Query::parse(query),
        Message::Update { report, .. } => {
            if let Ok(report) = Report::parse(report) {
                for record in report.records() {
                    assert!(record.sources().all(|source| source.is_ipv4() == record.group.is_ipv4()));
                }
            }
        }
        _ => {}
    }
});
