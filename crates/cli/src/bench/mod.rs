//! `headwater bench`: Headwater, the bare limit measured in the same run, and the ratio.
//!
//! The compared parts take turns, so that other load of the machine slows both alike. The median of the
//! rounds counts.

mod bare;
#[cfg(target_os = "linux")]
mod bare_linux;
#[cfg(not(target_os = "linux"))]
mod bare_portable;
mod disk;
mod fec;
mod net;
mod report;
mod session;

use std::time::{Duration, Instant};

use self::report::BenchReport;
use crate::args::{BenchArgs, BenchPart, MeasureArgs};
use crate::exit::{Exit, Failure};
use crate::system::process_cpu;
pub use crate::system::thread_cpu;

/// Minimum number of rounds for a median.
const ROUNDS: usize = 3;

/// Function that measures a part.
type Measure = fn(&MeasureArgs, &BenchReport) -> Result<(), Failure>;

/// Measures a part and prints the rows of the part.
pub(crate) fn run(args: &BenchArgs) -> Result<Exit, Failure> {
    let (measure, args): (Measure, _) = match &args.part {
        BenchPart::Net(args) => (net::run, args),
        BenchPart::Fec(args) => (fec::run, args),
        BenchPart::Disk(args) => (disk::run, args),
    };
    if args.size.0 == 0 {
        return Err(Failure::new(
            Exit::Usage,
            "cannot measure without content; give a --size of at least 1 byte",
        ));
    }
    measure(args, &BenchReport::new(args.json))?;
    Ok(Exit::Ok)
}

/// Returns the median by a key; the upper median of an even number.
fn median_by<T>(mut rounds: Vec<T>, key: impl Fn(&T) -> f64) -> T {
    rounds.sort_by(|a, b| key(a).total_cmp(&key(b)));
    rounds.swap_remove(rounds.len() / 2)
}

/// Returns the median times in seconds of functions that take turns for `time` in total, and for at least
/// three rounds. Each function returns the measured time, without preparation.
pub fn take_turns<const N: usize>(time: Duration, mut things: [&mut dyn FnMut() -> Duration; N]) -> [f64; N] {
    let began = Instant::now();
    let mut times = [const { Vec::new() }; N];
    while times[0].len() < ROUNDS || began.elapsed() < time {
        for (thing, times) in things.iter_mut().zip(&mut times) {
            times.push(thing().as_secs_f64());
        }
    }
    times.map(|times| median_by(times, |seconds| *seconds))
}

/// Returns the time that a function takes.
fn timed(work: impl FnOnce()) -> Duration {
    let began = Instant::now();
    work();
    began.elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_one() {
        assert_eq!(median_by(vec![9.0, 1.0, 5.0], |x| *x), 5.0);
        assert_eq!(median_by(vec![9.0, 1.0], |x| *x), 9.0);
    }

    #[test]
    fn turns_are_taken_until_the_time_is_over() {
        let mut order = std::cell::RefCell::new(String::new());
        let [a, b] = take_turns(
            Duration::ZERO,
            [
                &mut || {
                    order.borrow_mut().push('a');
                    Duration::from_secs(2)
                },
                &mut || {
                    order.borrow_mut().push('b');
                    Duration::from_secs(1)
                },
            ],
        );
        assert_eq!((a, b, order.get_mut().as_str()), (2.0, 1.0, "ababab"));
    }
}
