//! Signs of life for the service manager systemd. Linux only.

use std::time::Duration;

/// State of the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceState {
    /// The daemon is ready.
    Ready,
    /// The daemon ends.
    Stopping,
    /// The daemon is alive.
    Watchdog,
}

/// Notifies the service manager, if present.
pub fn notify(state: ServiceState) {
    #[cfg(target_os = "linux")]
    {
        let state = match state {
            ServiceState::Ready => sd_notify::NotifyState::Ready,
            ServiceState::Stopping => sd_notify::NotifyState::Stopping,
            ServiceState::Watchdog => sd_notify::NotifyState::Watchdog,
        };
        if let Err(error) = sd_notify::notify(&[state]) {
            tracing::debug!("cannot notify the service manager: {error}");
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = state;
}

/// Returns the longest time between signs of life, if the manager wants any.
pub fn watchdog_interval() -> Option<Duration> {
    #[cfg(target_os = "linux")]
    return sd_notify::watchdog_enabled();
    #[cfg(not(target_os = "linux"))]
    None
}
