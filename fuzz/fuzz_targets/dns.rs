//! A response to a query for relays is read or refused, and gives at most the stated number of relays.
#![no_main]
use headwater_wire::dns::{QUERY_BYTES_MAX, RELAYS_MAX, emit_query, parse_response};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut query = [0; QUERY_BYTES_MAX];
    let length = emit_query(0x1234, [192, 0, 2, 1].into(), &mut query).expect("there is room");
    // The header and the question are right more often than by chance.
    let mut response = query[..length].to_vec();
    response[2] |= 0x80;
    if let [answers, rest @ ..] = bytes {
        response[7] = *answers;
        response.extend(rest);
    }
    for response in [bytes, &response] {
        if let Ok(relays) = parse_response(&query[..length], response) {
            assert!(relays.len() <= RELAYS_MAX);
        }
    }
});
