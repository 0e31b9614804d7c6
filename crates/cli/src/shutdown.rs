//! SIGINT, SIGTERM and SIGHUP: the first signal ends the sessions in good order, the second signal writes
//! buffered packets of a capture and ends the process.

use std::sync::{Arc, Mutex, PoisonError};

use headwater::StopHandle;

use crate::capture::Capture;
use crate::exit::Failure;
pub use crate::system::EarlySignals;

/// Sessions that signals stop.
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
    /// Installs the handler of the signals.
    pub fn install(capture: Option<&Capture>) -> Result<Self, Failure> {
        EarlySignals::catch()?.serve(capture)
    }

    /// Adds a session to stop at a signal; stops the session at once if a signal has arrived.
    pub fn watch(&self, session: StopHandle) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.is_asked {
            session.stop();
        }
        state.sessions.push(session);
    }

    /// Sets the only session to stop at a signal, in place of sessions that have ended.
    pub fn watch_only(&self, session: StopHandle) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).sessions.clear();
        self.watch(session);
    }

    /// Stops all sessions, like a signal.
    pub fn stop_sessions(&self) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.sessions.iter().for_each(StopHandle::stop);
    }

    /// Whether a signal has arrived.
    pub fn is_asked(&self) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).is_asked
    }

    /// Stops all sessions; `false` if all sessions were stopped before.
    pub(crate) fn ask(&self) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = !state.is_asked;
        state.is_asked = true;
        state.sessions.iter().for_each(StopHandle::stop);
        is_first
    }
}
