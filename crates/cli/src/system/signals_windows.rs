//! Ctrl-C on Windows.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::capture::Capture;
use crate::exit::{Exit, Failure, OrExit};
use crate::shutdown::Shutdown;

/// Interval of looks at the flag that the handler sets.
const INTERVAL: Duration = Duration::from_millis(50);

/// Requests to end during a start.
pub struct EarlySignals {
    is_asked: Arc<AtomicBool>,
}

impl EarlySignals {
    /// Installs the handler.
    pub fn catch() -> Result<Self, Failure> {
        let is_asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            let installed = signal_hook::flag::register(signal, Arc::clone(&is_asked));
            installed.or_exit(Exit::Other, "cannot catch signals")?;
        }
        Ok(Self { is_asked })
    }

    /// Whether a request has arrived.
    pub fn is_asked(&self) -> bool {
        self.is_asked.load(Ordering::Relaxed)
    }

    /// Handles requests on a thread, also requests that have arrived already.
    pub fn serve(self, capture: Option<&Capture>) -> Result<Shutdown, Failure> {
        let shutdown = Shutdown::default();
        let (own, flush) = (shutdown.clone(), capture.map(Capture::flusher));
        let wait = move || loop {
            if self.is_asked.swap(false, Ordering::Relaxed) && !own.ask() {
                if let Some(flush) = &flush {
                    flush();
                }
                std::process::exit(Exit::Interrupted as i32);
            }
            thread::sleep(INTERVAL);
        };
        let thread = thread::Builder::new().name("signals".into()).spawn(wait);
        thread.or_exit(Exit::Other, "cannot catch signals")?;
        Ok(shutdown)
    }
}
