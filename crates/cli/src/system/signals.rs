//! SIGINT, SIGTERM and SIGHUP on Unix.

use std::cell::{Cell, RefCell};
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
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
    /// Installs the handler of the signals. SIGHUP stays ignored where it is, by `nohup` for example.
    pub fn catch() -> Result<Self, Failure> {
        let hangup = (!is_ignored(SIGHUP)).then_some(SIGHUP);
        let caught = [SIGINT, SIGTERM].into_iter().chain(hangup);
        let signals = Signals::new(caught).or_exit(Exit::Other, "cannot catch signals")?;
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
            for signal in signals.forever() {
                // A closed terminal sends SIGHUP twice: by the kernel, and by the shell.
                if !own.ask() && signal != SIGHUP {
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

/// Whether this process ignores a signal; true where the kernel does not say.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_none_or(|mask| mask >> (signal - 1) & 1 == 1)
}
