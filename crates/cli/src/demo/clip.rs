//! Prepared clip of the demo, for machines without ffmpeg: four seconds of a test picture, again and again.
//!
//! Made by `clip/make.sh`: three rungs and the audio as ffmpeg writes the tracks for `headwater stream send`.

use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use headwater::stream::StreamFeed;
use headwater_media::{Fragment, Init, Packer, Piece, Planned, Splitter};

use crate::exit::{Exit, Failure, OrExit};
use crate::stream::input::offer;

/// Tracks: rungs, then audio.
const TRACKS: [&[u8]; 4] = [
    include_bytes!("clip/t0.mp4"),
    include_bytes!("clip/t1.mp4"),
    include_bytes!("clip/t2.mp4"),
    include_bytes!("clip/t3.mp4"),
];
const GOP_MS: u32 = 1_000;
/// GOPs of the clip.
const GOPS: usize = 4;

/// Submits the clip on a thread, until the session ends.
pub fn submit(plan: Planned, feed: StreamFeed) -> Result<JoinHandle<Result<(), Failure>>, Failure> {
    let run = move || {
        let result = play(plan, &feed);
        feed.finish();
        result
    };
    Builder::new().name("clip".to_owned()).spawn(run).or_exit(Exit::Other, "cannot start a thread")
}

fn play(plan: Planned, feed: &StreamFeed) -> Result<(), Failure> {
    let tried = "cannot play the demo's clip";
    let mut packer = Packer::new(plan, GOP_MS, 1, true);
    let mut tracks = Vec::new();
    for (number, bytes) in TRACKS.iter().enumerate() {
        let (init, fragments) = split(bytes).or_exit(Exit::Other, tried)?;
        packer.push(number, Piece::Init(init.clone())).or_exit(Exit::Other, tried)?;
        tracks.push((init.timescale, fragments));
    }
    for gop in 0_usize.. {
        for (number, (timescale, fragments)) in tracks.iter().enumerate() {
            let time_ms = gop as u64 * u64::from(GOP_MS);
            let moved = fragments.get(gop % GOPS).and_then(|fragment| fragment.at(time_ms, *timescale));
            if let Some(fragment) = moved {
                packer.push(number, Piece::Fragment(fragment)).or_exit(Exit::Other, tried)?;
            }
        }
        while let Some(packed) = packer.poll(|_| 0).or_exit(Exit::Other, tried)? {
            if !offer(feed, &packed.bytes.into(), Duration::from_millis(GOP_MS.into()))? {
                return Ok(());
            }
        }
    }
    Ok(())
}

fn split(bytes: &[u8]) -> Result<(Init, Vec<Fragment>), anyhow::Error> {
    let (mut init, mut fragments) = (None, Vec::new());
    for piece in Splitter::default().push(bytes)? {
        match piece {
            Piece::Init(found) => init = Some(found),
            Piece::Fragment(fragment) => fragments.push(fragment),
        }
    }
    Ok((init.ok_or_else(|| anyhow::anyhow!("a track has no beginning"))?, fragments))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clip_has_all_gops_of_all_tracks_and_is_small() {
        for track in TRACKS {
            let (init, fragments) = split(track).unwrap();
            assert!(fragments.len() >= GOPS, "{}", init.codec);
            let times: Vec<_> = fragments[..GOPS].iter().map(|fragment| fragment.time_ms).collect();
            assert_eq!(times, [0, 1_000, 2_000, 3_000]);
        }
        assert!(TRACKS.iter().map(|track| track.len()).sum::<usize>() < 1_000_000);
    }
}
