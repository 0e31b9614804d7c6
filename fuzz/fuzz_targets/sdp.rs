//! Session descriptions and FDT documents are written as text that reads the same.
#![no_main]
use headwater_wire::sdp::{FdtDocument, SessionDescription};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(description) = SessionDescription::parse(bytes) {
        assert_eq!(SessionDescription::parse(description.to_text().as_bytes()), Ok(description));
    }
    if let Some(document) = FdtDocument::parse(bytes) {
        assert_eq!(FdtDocument::parse(document.to_text().as_bytes()), Some(document));
    }
});
