//! Ways to protect a buffer of video against lost packets, compared.
//!
//! A session of 2400 kbit/s with rungs at 5, 30 and 100 %, buffers of one second in packets of 1344 bytes.
//! Three receivers hold 10, 60 and 180 packets of each buffer. The table shows the percentage of buffers
//! without a picture, and with a rung below the receiver's own. Figures: `lab/notebook/video.md`.

use headwater_media::{Cutter, Protection, ReceivedBuffer};

use crate::generator::{Chance, Encoder};

const PACKET: usize = 1_344;
/// Packets of each receiver's prefix.
const RECEIVERS: [usize; 3] = [10, 60, 180];

/// Way to protect a buffer.
struct Scheme {
    name: &'static str,
    protection: Protection,
    /// Bytes of the tracks: rungs, then audio.
    tracks: [usize; 4],
    /// Packets of the header, the audio and the lowest rung that stand again behind the second rung.
    repeated: usize,
}

#[test]
fn at_one_percent_of_loss_few_buffers_have_no_picture() {
    let scheme = &schemes()[2];
    for packets in RECEIVERS {
        let (without, below) = run(scheme, packets, 300, 0.01, 1.0);
        assert!(without < 2.0 && below < 4.0, "{packets} packets: {without} %, {below} %");
    }
}

#[test]
fn reed_solomon_symbols_leave_fewer_buffers_without_a_picture_than_repetition() {
    let without = |scheme: &Scheme| run(scheme, RECEIVERS[0], 300, 0.03, 1.0).0;
    let [none, repetition, reed_solomon, _] = schemes();
    assert!(2.0 * without(&reed_solomon) < without(&repetition).min(without(&none)));
    if option_env!("HEADWATER_LONG").is_some() {
        print_table(4_000);
    }
}

/// Prints the table of the notebook.
fn print_table(buffers: usize) {
    println!("scheme            loss  bursts   5 %: none       30 %: none  below    100 %: none  below");
    for scheme in &schemes() {
        for (loss, burst) in [(0.01, 1.0), (0.01, 3.0), (0.03, 1.0), (0.03, 3.0)] {
            let cells = RECEIVERS.map(|packets| run(scheme, packets, buffers, loss, burst));
            let [low, middle, high] = cells;
            println!(
                "{:<18}{:>3} %  {burst:>5}{:>10.2} %{:>14.2} %{:>7.2} %{:>12.2} %{:>7.2} %",
                scheme.name,
                loss * 100.0,
                low.0,
                middle.0,
                middle.1,
                high.0,
                high.1
            );
        }
    }
}

fn schemes() -> [Scheme; 4] {
    let reed_solomon = |percent| Protection { symbol_bytes: 1_344, percent, first_block: 9 };
    [
        Scheme {
            name: "none",
            protection: Protection::default(),
            tracks: [9_900, 64_000, 155_000, 2_200],
            repeated: 0,
        },
        Scheme {
            name: "repetition",
            protection: Protection::default(),
            tracks: [9_900, 50_500, 155_000, 2_200],
            repeated: 10,
        },
        Scheme {
            name: "Reed-Solomon 4 %",
            protection: reed_solomon(4),
            tracks: [8_600, 62_000, 148_000, 2_200],
            repeated: 0,
        },
        Scheme {
            name: "Reed-Solomon 8 %",
            protection: reed_solomon(8),
            tracks: [8_600, 59_000, 142_000, 2_200],
            repeated: 0,
        },
    ]
}

/// Returns the percentages of buffers without a picture, and with a lower rung than without losses.
fn run(scheme: &Scheme, packets: usize, buffers: usize, loss: f64, burst: f64) -> (f64, f64) {
    let mut chance = Chance(7);
    let mut encoder = Encoder::new(3, true, scheme.protection);
    let mut cutter = Cutter::default();
    let own = RECEIVERS.iter().position(|held| *held == packets).unwrap_or(0);
    let (mut without, mut below, mut is_bad) = (0, 0, false);
    for buffer in 0..buffers {
        let bytes = encoder.gop(&scheme.tracks).bytes;
        let uniform = |chance: &mut Chance| (chance.next() >> 11) as f64 / (1_u64 << 53) as f64;
        // Gilbert's model: bursts of a mean length, at a mean loss.
        let lost: Vec<bool> = (0..packets)
            .map(|_| {
                let change = if is_bad { 1.0 / burst } else { loss / (1.0 - loss) / burst };
                is_bad = if burst > 1.0 {
                    is_bad != (uniform(&mut chance) < change)
                } else {
                    uniform(&mut chance) < loss
                };
                is_bad && buffer > 0
            })
            .collect();
        let mut is_here: Vec<bool> = lost.iter().map(|lost| !lost).collect();
        // The copy stands behind the second rung, within the reach of the faster receivers.
        for packet in 0..scheme.repeated.min(packets) {
            let copy = RECEIVERS[1] - scheme.repeated + packet;
            is_here[packet] |= is_here.get(copy).is_some_and(|copy| *copy);
        }
        let runs = runs(&is_here, bytes.len());
        let prefix = runs.first().filter(|run| run.0 == 0).map_or(0, |run| run.1);
        let pieces = runs.iter().filter(|run| run.0 > 0).map(|run| (run.0, &bytes[run.0..run.1])).collect();
        let received =
            ReceivedBuffer { length: (prefix > 0).then_some(bytes.len()), prefix: &bytes[..prefix], pieces };
        match cutter.cut(&received).ok().and_then(|cut| cut.rung) {
            None => without += 1,
            Some((rung, _)) => below += usize::from(rung < own),
        }
    }
    let percent = |count: usize| 100.0 * count as f64 / buffers as f64;
    (percent(without), percent(below))
}

/// Ranges of bytes of the packets that are here.
fn runs(is_here: &[bool], bytes: usize) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for (number, _) in is_here.iter().enumerate().filter(|(number, here)| **here && number * PACKET < bytes) {
        let (from, to) = (number * PACKET, ((number + 1) * PACKET).min(bytes));
        match runs.last_mut() {
            Some(run) if run.1 == from => run.1 = to,
            _ => runs.push((from, to)),
        }
    }
    runs
}
