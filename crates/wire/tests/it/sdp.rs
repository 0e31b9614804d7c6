//! Session descriptions of ours and of other senders.

use headwater_wire::sdp::{
    FdtDocument, FdtSignature, Groups, RequestSource, SDP_BYTES_MAX, SdpError, SessionDescription,
};

fn whole() -> SessionDescription {
    SessionDescription {
        version: 9,
        groups: Some(Groups { base: ([239, 1, 2, 3], 7287).into(), count: 12, ttl: 1 }),
        source: Some([192, 0, 2, 1].into()),
        tsi: Some(5),
        encoding_id: Some(6),
        key: Some([7; 32]),
        http: Some("files/".to_owned()),
        fdt: Some("session.fdt".to_owned()),
        rainbow: Some(RequestSource {
            source: ([192, 0, 2, 1], 7288).into(),
            via: Some(([0x2001, 0xDB8, 0, 0, 0, 0, 0, 1], 7289).into()),
        }),
        amt: Some(String::new()),
    }
}

#[test]
fn what_is_written_reads_the_same() {
    let ipv6 = Groups { base: "[ff15::1]:5".parse().unwrap(), count: 1, ttl: 127 };
    let of_ipv6 = SessionDescription { groups: Some(ipv6), source: None, ..whole() };
    let without_multicast = SessionDescription { groups: None, encoding_id: None, ..whole() };
    for description in [whole(), of_ipv6, without_multicast] {
        let text = description.to_text();
        assert_eq!(SessionDescription::parse(text.as_bytes()), Ok(description), "{text}");
    }
}

#[test]
fn the_example_of_ts_26_346_is_read() {
    // TS 26.346, section 7.3.3, with a second medium that is not FLUTE.
    let text = "v=0\no=user123 2890844526 2890842807 IN IP6 2201:056D::112E:144A:1E24\ns=File delivery session example\n\
                i=More information\nt=2873397496 2873404696\na=mbms-mode:broadcast 1234 1\na=FEC-declaration:0 encoding-id=1\n\
                a=source-filter: incl IN IP6 * 2001:210:1:2:240:96FF:FE25:8EC9\na=flute-tsi:3\n\
                m=application 12345 FLUTE/UDP 0\nc=IN IP6 FF1E:03AD::7F2E:172A:1E24/1\nb=64\na=lang:EN\na=FEC:0\n\
                m=video 5 RTP/AVP 0\nc=IN IP4 224.1.1.1/127\na=flute-tsi:x\n";
    let found = SessionDescription::parse(text.as_bytes()).unwrap();
    assert_eq!(found.groups.unwrap().base, "[ff1e:3ad::7f2e:172a:1e24]:12345".parse().unwrap());
    assert_eq!((found.tsi, found.encoding_id, found.groups.unwrap().count), (Some(3), Some(1), 1));
    assert_eq!(found.source, Some("2001:210:1:2:240:96ff:fe25:8ec9".parse().unwrap()));
    assert_eq!((found.key, found.http, found.rainbow, found.amt), (None, None, None, None));
}

#[test]
fn other_texts_are_refused_with_the_line() {
    let parse = |text: &str| SessionDescription::parse(text.as_bytes()).unwrap_err();
    assert_eq!(parse("<html>"), SdpError::Version);
    assert_eq!(parse(&"v=0\n".repeat(SDP_BYTES_MAX)), SdpError::Length);
    assert_eq!(parse("v=0\ns=x\n"), SdpError::NoSession);
    for wrong in [
        "a=flute-tsi:0",
        "a=x-hw-key:ssh-rsa AAAA",
        "a=x-hw-http:a b",
        "c=IN IP4 host",
        "a=x-hw-rainbow:host",
    ] {
        let error = parse(&format!("v=0\n{wrong}\nm=application 5 FLUTE/UDP 0\n"));
        assert!(matches!(error, SdpError::Line { line: 2, .. }), "{wrong}: {error:?}");
    }
}

#[test]
fn an_fdt_document_carries_its_signature_in_a_comment() {
    let signature = Some(FdtSignature { tsi: 5, started: 9, bytes: [3; 64] });
    let document = FdtDocument { xml: "<FDT-Instance Expires=\"1\"/>", signature };
    let text = document.to_text();
    assert_eq!(FdtDocument::parse(text.as_bytes()), Some(document));
    let unsigned = FdtDocument { signature: None, ..document };
    assert_eq!(FdtDocument::parse(unsigned.to_text().as_bytes()), Some(unsigned));
    assert!(headwater_wire::fdt::Instance::parse(text.as_bytes()).is_ok(), "a comment does not harm");
}
