//! SIGINT and SIGTERM: the first signal ends the sessions in good order, the second signal writes buffered
//! packets of a capture and ends the process.

use std::cell::{Cell, RefCell};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use headwater::StopHandle;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::capture::Capture;
use crate::exit::{Exit, Failure, OrExit};

/// Signals of a start, before a thread may handle signals: threads of a confined process start after the
/// confinement.
pub struct EarlySignals {
    signals: RefCell<Signals>,
    is_asked: Cell<bool>,
}

impl EarlySignals {
    /// Installs the handler of both signals.
    pub fn catch() -> Result<Self, Failure> {
        let signals = Signals::new([SIGINT, SIGTERM]).or_exit(Exit::Other, "cannot catch signals")?;
        Ok(Self { signals: RefCell::new(signals), is_asked: Cell::new(false) })
    }

    /// Whether a signal has arrived.
    pub fn is_asked(&self) -> bool {
        if self.signals.borrow_mut().pending().next().is_some() {
            self.is_asked.set(true);
        }
        self.is_asked.get()
    }

    /// Handles signals on a thread, also signals that have arrived already.
    pub fn serve(self, capture: Option<&Capture>) -> Result<Shutdown, Failure> {
        let shutdown = Shutdown::default();
        if self.is_asked.get() {
            shutdown.ask();
        }
        let (own, mut signals) = (shutdown.clone(), self.signals.into_inner());
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
        let thread = thread::Builder::new().name("signals".into()).spawn(wait);
        thread.or_exit(Exit::Other, "cannot catch signals")?;
        Ok(shutdown)
    }
}

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
    /// Installs the handler of both signals.
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
    fn ask(&self) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = !state.is_asked;
        state.is_asked = true;
        state.sessions.iter().for_each(StopHandle::stop);
        is_first
    }
}
