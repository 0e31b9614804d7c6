//! SIGINT and SIGTERM: the first one ends the sessions in good order, the second one ends the process, but
//! for what a capture still holds in memory.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use headwater::StopHandle;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::capture::Capture;
use crate::exit::{Exit, Failure, OrExit};

/// What signals stop.
#[derive(Clone, Default)]
pub struct Shutdown {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    is_asked: bool,
    sessions: Vec<StopHandle>,
}

impl Shutdown {
    /// Takes over the two signals. A second one writes out the capture before it ends the process.
    pub fn install(capture: Option<&Capture>) -> Result<Self, Failure> {
        let shutdown = Self::default();
        let mut signals = Signals::new([SIGINT, SIGTERM]).or_exit(Exit::Other, "cannot catch signals")?;
        let own = shutdown.clone();
        let flush = capture.map(Capture::flusher);
        let wait = move || {
            for _ in signals.forever() {
                if !own.ask() {
                    if let Some(flush) = &flush {
                        flush();
                    }
                    std::process::exit(Exit::Interrupted as i32);
                }
            }
        };
        thread::Builder::new()
            .name("signals".into())
            .spawn(wait)
            .or_exit(Exit::Other, "cannot catch signals")?;
        Ok(shutdown)
    }

    /// Stops a session with the others; at once if a signal came already.
    pub fn watch(&self, session: StopHandle) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.is_asked {
            session.stop();
        }
        state.sessions.push(session);
    }

    /// Stops all sessions, as a signal does.
    pub fn stop_sessions(&self) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.sessions.iter().for_each(StopHandle::stop);
    }

    /// Whether a signal came.
    pub fn is_asked(&self) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).is_asked
    }

    /// Stops all sessions; `false` if they had been asked before.
    fn ask(&self) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = !state.is_asked;
        state.is_asked = true;
        state.sessions.iter().for_each(StopHandle::stop);
        is_first
    }
}
