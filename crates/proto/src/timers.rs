//! A small table of named timers, for machines with several reasons to wake.

use crate::time::Instant;

/// A deadline per timer of `T`, at most `N` timers; the enum `T` maps to 0..N by `as usize`.
///
/// ```
/// # use headwater_proto::{timers::Timers, Instant};
/// #[derive(Clone, Copy)]
/// enum Timer { Fdt, Idle }
/// impl From<Timer> for usize {
///     fn from(timer: Timer) -> usize { timer as usize }
/// }
/// let mut timers = Timers::<2>::default();
/// timers.set(Timer::Idle, Instant::from_nanos(5));
/// assert_eq!(timers.next(), Some(Instant::from_nanos(5)));
/// assert!(!timers.expire(Timer::Fdt, Instant::from_nanos(9)));
/// assert!(timers.expire(Timer::Idle, Instant::from_nanos(9)));
/// assert_eq!(timers.next(), None);
/// ```
#[derive(Clone, Debug)]
pub struct Timers<const N: usize> {
    deadlines: [Option<Instant>; N],
}

impl<const N: usize> Default for Timers<N> {
    fn default() -> Self {
        Self { deadlines: [None; N] }
    }
}

impl<const N: usize> Timers<N> {
    /// Sets or moves a timer.
    pub fn set(&mut self, timer: impl Into<usize>, at: Instant) {
        self.deadlines[timer.into()] = Some(at);
    }

    /// Stops a timer.
    pub fn stop(&mut self, timer: impl Into<usize>) {
        self.deadlines[timer.into()] = None;
    }

    /// Returns a timer's deadline, if the timer runs.
    pub fn get(&self, timer: impl Into<usize>) -> Option<Instant> {
        self.deadlines[timer.into()]
    }

    /// Returns whether a timer is due at `now`, and stops a due timer.
    pub fn expire(&mut self, timer: impl Into<usize>, now: Instant) -> bool {
        let deadline = &mut self.deadlines[timer.into()];
        let due = deadline.is_some_and(|at| at <= now);
        if due {
            *deadline = None;
        }
        due
    }

    /// Returns the earliest deadline.
    pub fn next(&self) -> Option<Instant> {
        self.deadlines.iter().flatten().min().copied()
    }
}
