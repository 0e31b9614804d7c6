//! Samples of another page become samples within their bounds.
#![no_main]
use headwater_web::{LiveView, PageReader};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // An error is an answer, too.
    let _refused = PageReader::new("page", LiveView::new().sender()).read(bytes);
});
