//! A buffer of video with holes, anything in its bytes: no panic, and never more bytes out than came in.
#![no_main]
use headwater_media::{Cutter, ReceivedBuffer};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    bytes: &'a [u8],
    length: Option<u32>,
    hole: Option<(u16, u16)>,
    is_repeated: bool,
}

fuzz_target!(|input: Input<'_>| {
    let bytes = input.bytes;
    let (start, end) = input.hole.map_or((bytes.len(), bytes.len()), |(start, length)| {
        let start = usize::from(start).min(bytes.len());
        (start, (start + usize::from(length)).min(bytes.len()))
    });
    let pieces = if end < bytes.len() && end > start { vec![(end, &bytes[end..])] } else { Vec::new() };
    let received = ReceivedBuffer {
        length: input.length.map(|length| length as usize),
        prefix: &bytes[..start],
        pieces,
    };
    let mut cutter = Cutter::default();
    // The second cut has the protection of the first.
    for _ in 0..=u8::from(input.is_repeated) {
        if let Ok(cut) = cutter.cut(&received) {
            let rung = cut.rung.map_or(0, |(_, bytes)| bytes.len());
            // Repair symbols are at most a fifth of a block.
            assert!(rung <= 2 * bytes.len() && cut.audio.len() <= 2 * bytes.len());
        }
    }
});
