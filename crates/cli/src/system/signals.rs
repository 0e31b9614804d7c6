//! SIGINT and SIGTERM on Unix.

use std::cell::{Cell, RefCell};
use std::thread;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::capture::Capture;
use crate::exit::{Exit, Failure, OrExit};
use crate::shutdown::Shutdown;

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
