//! Follows the description of a session at a URL: a sender that was started again has another identifier.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use headwater::{FetchedDescription, ReceiveUpdate, StopHandle};

/// Time between two requests while the session is silent, and while the silence lasts longer than
/// [`LONG_SILENCE`].
const SILENT_TIME: Duration = Duration::from_secs(2);
const LONG_SILENT_TIME: Duration = Duration::from_secs(10);
const LONG_SILENCE: Duration = Duration::from_secs(60);
/// Time between two requests while packets arrive, perhaps by a path that the sender has left.
const SLOW_TIME: Duration = Duration::from_secs(60);

/// Thread that fetches a description again. The drop ends the thread after the next request.
pub struct DescriptionWatch {
    /// Tells the thread whether the session is silent.
    silence: Sender<bool>,
    is_silent: bool,
    next: Arc<Mutex<Option<FetchedDescription>>>,
}

impl DescriptionWatch {
    /// Starts the thread, which stops the session once the description names another session. Without a
    /// thread, nothing is followed.
    pub fn start(found: &FetchedDescription, session: StopHandle) -> Option<Self> {
        let (silence, told) = channel::<bool>();
        let next = Arc::new(Mutex::new(None));
        let (mut found, slot) = (found.clone(), Arc::clone(&next));
        let run = move || {
            let mut schedule = Schedule::new(Instant::now());
            loop {
                match told.recv_timeout(schedule.next.saturating_duration_since(Instant::now())) {
                    Ok(is_silent) => schedule.tell(is_silent, Instant::now()),
                    Err(RecvTimeoutError::Disconnected) => return,
                    Err(RecvTimeoutError::Timeout) => {
                        if let Some(other) = ask(&mut found) {
                            *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(other);
                            return session.stop();
                        }
                        schedule.asked(Instant::now(), part());
                    }
                }
            }
        };
        thread::Builder::new().name("description".into()).spawn(run).ok()?;
        Some(Self { silence, is_silent: false, next })
    }

    /// Records whether packets arrive.
    pub fn on_update(&mut self, update: &ReceiveUpdate) {
        let is_silent = match update {
            ReceiveUpdate::SessionClosed => true,
            ReceiveUpdate::Progress(progress) => progress.silent.is_some(),
            _ => return,
        };
        if core::mem::replace(&mut self.is_silent, is_silent) != is_silent {
            // The thread has ended with a description.
            self.silence.send(is_silent).ok();
        }
    }

    /// Returns the description of the next session.
    pub fn take(&self) -> Option<FetchedDescription> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Fetches the description. Returns a description of another session by the same sender.
fn ask(found: &mut FetchedDescription) -> Option<FetchedDescription> {
    let other = match found.fetch_again() {
        Ok(other) => other?,
        Err(error) => {
            tracing::debug!("{error}");
            return None;
        }
    };
    if other.description.key == found.description.key {
        return Some(other);
    }
    tracing::warn!(
        "'{}' describes another session by another key, which is not followed; start again to take it",
        found.url
    );
    // Warned once.
    found.description.tsi = other.description.tsi;
    (found.description.groups, found.description.source) =
        (other.description.groups, other.description.source);
    None
}

/// Times of the requests.
struct Schedule {
    next: Instant,
    silent_since: Option<Instant>,
}

impl Schedule {
    fn new(now: Instant) -> Self {
        Self { next: now + SLOW_TIME, silent_since: None }
    }

    /// Asks at once after the begin of a silence.
    fn tell(&mut self, is_silent: bool, now: Instant) {
        self.silent_since = is_silent.then_some(now);
        self.next = if is_silent { now } else { now + SLOW_TIME };
    }

    /// Plans the next request; `part` from 0 to 1 spreads receivers over half of the time.
    fn asked(&mut self, now: Instant, part: f64) {
        let time = match self.silent_since {
            None => SLOW_TIME,
            Some(since) if now.duration_since(since) >= LONG_SILENCE => LONG_SILENT_TIME,
            Some(_) => SILENT_TIME,
        };
        self.next = now + time.mul_f64(0.75 + 0.5 * part);
    }
}

/// Returns a number from 0 to 1 that differs between receivers: the clock's nanoseconds.
fn part() -> f64 {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.subsec_nanos());
    f64::from(nanos / 1_000 % 1_000) / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_session_is_asked_for_each_two_seconds_and_later_each_ten() {
        let began = Instant::now();
        let mut schedule = Schedule::new(began);
        assert_eq!(schedule.next, began + SLOW_TIME);
        let silent = began + Duration::from_secs(7);
        schedule.tell(true, silent);
        assert_eq!(schedule.next, silent, "at once");
        let mut times = Vec::new();
        while schedule.next < silent + Duration::from_secs(100) {
            let now = schedule.next;
            schedule.asked(now, 0.5);
            times.push(schedule.next - now);
        }
        assert_eq!(times, [[SILENT_TIME; 30].as_slice(), &[LONG_SILENT_TIME; 4]].concat());
        schedule.tell(false, silent);
        assert_eq!(schedule.next, silent + SLOW_TIME);
        schedule.asked(silent, 0.0);
        assert_eq!(schedule.next, silent + SLOW_TIME.mul_f64(0.75));
    }
}
