//! A description of the tracks of a video: no panic, bounded memory, and what is read is written as one that
//! reads the same.
#![no_main]
use headwater_media::{DESCRIPTION_BYTES_MAX, Description};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(description) = Description::parse(bytes) else { return };
    assert!(description.video_init.len() + description.audio_init.len() <= DESCRIPTION_BYTES_MAX);
    assert_eq!(Description::parse(&description.emit()), Ok(description));
});
