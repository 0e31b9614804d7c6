//! Mutated buffers: no panic, and no more memory than the received bytes allow.

use headwater_media::{Cutter, Description, Protection, ReceivedBuffer};

use crate::generator::{Chance, Encoder};

#[test]
fn mutated_buffers_never_panic() {
    // `tests/interop/video.sh --full` builds with HEADWATER_LONG.
    let count = if option_env!("HEADWATER_LONG").is_some() { 10_000_000 } else { 20_000 };
    let mut chance = Chance(0x9e37_79b9_7f4a_7c15);
    let protections = [Protection::default(), Protection { symbol_bytes: 64, percent: 20, first_block: 20 }];
    let buffers: Vec<Vec<u8>> = protections
        .map(|protection| Encoder::new(3, true, protection).gop(&[200, 700, 1_500, 100]).bytes)
        .into();
    let mut cutters = [Cutter::default(), Cutter::default()];
    let mut played = 0;
    for _ in 0..count {
        let which = chance.below(2);
        let mut bytes = buffers[which].clone();
        for _ in 0..chance.below(4) {
            // Most changes hit the header and the description, where lengths stand.
            let end = if chance.below(2) == 0 { 48 } else { bytes.len() };
            let at = chance.below(end);
            bytes[at] = match chance.below(3) {
                0 => 0xff,
                1 => bytes[at].wrapping_add(1),
                _ => chance.next() as u8,
            };
        }
        let (end, hole) = (chance.below(bytes.len() + 1), chance.below(bytes.len()));
        let hole_end = (hole + chance.below(300)).min(end);
        let received = if chance.below(2) == 0 || hole >= end {
            ReceivedBuffer { length: Some(bytes.len()), prefix: &bytes[..end], pieces: Vec::new() }
        } else {
            let length = (hole > 0).then_some(bytes.len());
            let pieces = vec![(hole_end, &bytes[hole_end..end])];
            ReceivedBuffer { length, prefix: &bytes[..hole], pieces }
        };
        if let Ok(cut) = cutters[which].cut(&received) {
            let rung = cut.rung.map_or(0, |(_, bytes)| bytes.len());
            assert!(rung + cut.audio.len() <= 2 * bytes.len());
            played += 1;
        }
        let deflated = &bytes[44.min(end)..end];
        if let Ok(description) = Description::parse(deflated) {
            assert!(description.video_init.len() + description.audio_init.len() <= 64 << 10);
        }
    }
    assert!(played > count / 10, "{played} of {count} were read");
}
