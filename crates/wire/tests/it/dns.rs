//! Queries for AMT relays and their responses.
use crate::hex::hex;
use headwater_wire::dns::{
    AmtRelay, DnsError, QUERY_BYTES_MAX, RelayName, emit_query, parse_response, reverse_name,
};

const QUESTION: &str = "0131 0132 0130 03313932 07696e2d61646472 0461727061 00 0104 0001";

fn query() -> Vec<u8> {
    let mut buffer = [0; QUERY_BYTES_MAX];
    let source = "192.0.2.1".parse().expect("an address");
    let length = emit_query(0x1234, source, &mut buffer).expect("there is room");
    buffer[..length].to_vec()
}

fn response(answers: &[&str]) -> Vec<u8> {
    hex(&format!("1234 8180 0001 {:04x} 0000 0000 {QUESTION} {}", answers.len(), answers.concat()))
}

#[test]
fn a_query_asks_for_the_name_of_the_address() {
    assert_eq!(query(), hex(&format!("1234 0100 0001 0000 0000 0000 {QUESTION}")));
    let longest = "2001:db8::1".parse().unwrap();
    assert!(reverse_name(longest).starts_with("1.0.0.0.0.0"));
    assert!(reverse_name(longest).ends_with("8.b.d.0.1.0.0.2.ip6.arpa"));
    assert_eq!(emit_query(1, longest, &mut [0; QUERY_BYTES_MAX]), Some(QUERY_BYTES_MAX));
    assert_eq!(emit_query(1, longest, &mut [0; QUERY_BYTES_MAX - 1]), None);
}

#[test]
fn relays_come_by_precedence_and_other_records_are_passed_over() {
    let answers = [
        // An alias.
        "c00c 0005 0001 00000e10 0002 c00e ",
        "c00c 0104 0001 00000e10 0006 0a 01 cb007107 ",
        "c00c 0104 0001 00000e10 0012 05 82 20010db8000000000000000000000009 ",
        "c00c 0104 0001 00000e10 000f 80 03 0372656c 076578616d706c65 00 ",
        // No relay, and an unknown type.
        "c00c 0104 0001 00000e10 0002 00 00 ",
        "c00c 0104 0001 00000e10 0003 00 04 77 ",
    ];
    let relay = |precedence, is_direct, relay| AmtRelay { precedence, is_direct, relay };
    let address = |text: &str| RelayName::Address(text.parse().unwrap());
    let expected = [
        relay(5, true, address("2001:db8::9")),
        relay(10, false, address("203.0.113.7")),
        relay(0x80, false, RelayName::Name("rel.example".into())),
    ];
    let bytes = response(&answers);
    assert_eq!(parse_response(&query(), &bytes), Ok(expected.to_vec()));
    for length in 0..bytes.len() {
        assert!(parse_response(&query(), &bytes[..length]).is_err(), "{length} bytes");
    }
    assert_eq!(parse_response(&query(), &response(&[])), Ok(vec![]));
}

#[test]
fn other_responses_are_refused() {
    let change = |at: usize, byte: u8| {
        let mut bytes = response(&[]);
        bytes[at] = byte;
        parse_response(&query(), &bytes)
    };
    assert_eq!(change(0, 0), Err(DnsError::Foreign), "another number");
    assert_eq!(change(2, 1), Err(DnsError::Foreign), "a query");
    assert_eq!(change(13, b'9'), Err(DnsError::Foreign), "another question");
    assert_eq!(change(3, 0x83), Err(DnsError::Code(3)));
    assert_eq!(change(7, 1), Err(DnsError::Malformed), "an answer is missing");
}
