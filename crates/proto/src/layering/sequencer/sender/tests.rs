use super::*;
use crate::layering::StaticLayers;
use crate::rate::Rate;

const PART: usize = 10;

fn at(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

fn buffer(parts: usize, ms: u64) -> Submission {
    let bytes: Vec<u8> = (0..parts * PART).map(|at| u8::try_from(at / PART).unwrap()).collect();
    Submission { bytes: bytes.into(), time: Duration::from_millis(ms) }
}

/// Two layers of 10 packets a second.
fn layers() -> StaticLayers {
    StaticLayers::new(&[Rate::from_bits(800).unwrap(); 2], 10, Instant::ZERO)
}

/// What each departure carries in `from..to`: number of the buffer, part, whether it is over; `None` where
/// reserved.
fn sent(sequencer: &mut Sequencer, from: u64, to: u64) -> Vec<Option<(u16, u32, bool)>> {
    let layers = layers();
    let mut departures: Vec<(Instant, u16)> = Vec::new();
    for level in 0..2 {
        for n in 0..layers.packets(level, at(from), at(to)) {
            departures.push((layers.departure(level, at(from), n), level));
        }
    }
    departures.sort_unstable();
    let loads = departures.into_iter().map(|(at, level)| match sequencer.load(Some(&layers), level, at) {
        Load::Part(buffer) => Some((buffer.id, buffer.part, buffer.is_over)),
        Load::Reserved => None,
        Load::Nothing => panic!("there is a buffer"),
    });
    loads.collect()
}

fn parts(loads: &[Option<(u16, u32, bool)>], id: u16) -> Vec<u32> {
    let mut parts: Vec<u32> =
        loads.iter().flatten().filter(|load| load.0 == id && !load.2).map(|load| load.1).collect();
    parts.sort_unstable();
    parts
}

#[test]
fn buffers_follow_each_other_without_a_gap() {
    let mut sequencer = Sequencer::new(10, Order::Tiles);
    sequencer.submit(buffer(20, 1_000)).unwrap();
    let mut loads = sent(&mut sequencer, 0, 500);
    sequencer.submit(buffer(10, 500)).unwrap();
    assert_eq!(sequencer.submit(buffer(1, 1)), Err(SubmitError::Full));
    loads.extend(sent(&mut sequencer, 500, 1_500));
    assert_eq!(parts(&loads, 0), (0..20).collect::<Vec<_>>());
    assert_eq!(parts(&loads, 1), (0..10).collect::<Vec<_>>());
    assert_eq!(loads.len(), 30);
}

#[test]
fn the_last_buffer_is_sent_again_until_the_next_one_is_there() {
    let mut sequencer = Sequencer::new(10, Order::Tiles);
    assert_eq!(sequencer.load(None, 0, at(0)), Load::Nothing);
    sequencer.submit(buffer(20, 1_000)).unwrap();
    let loads = sent(&mut sequencer, 0, 1_700);
    assert_eq!(parts(&loads, 0), (0..20).collect::<Vec<_>>());
    assert!(sequencer.is_over() && !sequencer.is_idle());
    assert!(loads[20..].iter().all(|load| load.is_some_and(|(id, _, is_over)| id == 0 && is_over)));
    // The next one begins at once, with all of its time.
    sequencer.submit(buffer(20, 1_000)).unwrap();
    assert!(!sequencer.is_over());
    let loads = sent(&mut sequencer, 1_700, 2_700);
    assert_eq!(parts(&loads, 1), (0..20).collect::<Vec<_>>());
}

/// Whoever holds the base alone has no hole where the description went out.
#[test]
fn reserved_packets_leave_no_hole() {
    for order in [Order::Tiles, Order::Exact] {
        let mut sequencer = Sequencer::new(10, order).with_reserve(Some(Reserve::each(4)));
        for id in 0..3 {
            let from = u64::from(id) * 1_000;
            sequencer.submit(buffer(20, 1_000)).unwrap();
            let loads = sent(&mut sequencer, from, from + 1_000);
            let reserved = loads.iter().filter(|load| load.is_none()).count();
            // Of 30 packets of the base in 3 s: 0, 4, .. 28.
            assert_eq!(reserved, [3, 2, 3][usize::from(id)], "buffer {id}");
            let kept = u32::try_from(20 - reserved).unwrap();
            assert_eq!(parts(&loads, id), (0..kept).collect::<Vec<_>>());
        }
    }
}

/// A sender that was away for most of an interval has sent less, but not what is worth least.
#[test]
fn what_was_given_up_is_not_the_beginning() {
    let layers = layers();
    let mut sequencer = Sequencer::new(10, Order::Tiles);
    sequencer.submit(buffer(20, 1_000)).unwrap();
    let Load::Part(first) = sequencer.load(Some(&layers), 0, at(0)) else { panic!("a part") };
    assert_eq!(first.part, 9, "the least important part of the base first");
    sequencer.skip_to(Some(&layers), at(700));
    let mut base = Vec::new();
    for ms in [700, 800, 900] {
        let Load::Part(part) = sequencer.load(Some(&layers), 0, at(ms)) else { panic!("a part") };
        base.push(part.part);
    }
    assert_eq!(base, [2, 1, 0]);
}

#[test]
fn without_layers_parts_go_out_in_their_order() {
    let mut sequencer = Sequencer::new(10, Order::Tiles);
    sequencer.submit(buffer(3, 1_000)).unwrap();
    let mut next = |ms| match sequencer.load(None, 0, at(ms)) {
        Load::Part(part) => (part.part, part.is_repeat, part.is_over),
        other => panic!("{other:?}"),
    };
    assert_eq!(next(0), (0, false, false));
    assert_eq!(next(100), (1, false, false));
    assert_eq!(next(200), (2, false, false));
    assert_eq!(next(300), (0, true, false));
    assert_eq!(next(1_000), (0, true, true));
}

#[test]
fn what_makes_no_sense_is_refused() {
    let mut sequencer = Sequencer::new(10, Order::Tiles);
    assert_eq!(sequencer.submit(buffer(0, 1)), Err(SubmitError::Empty));
    assert_eq!(sequencer.submit(buffer(1, 0)), Err(SubmitError::Time(Duration::ZERO)));
    let long = Duration::from_millis(60_001);
    assert_eq!(sequencer.submit(Submission { time: long, ..buffer(1, 1) }), Err(SubmitError::Time(long)));
}
