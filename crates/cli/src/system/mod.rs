//! Calls of the command that depend on the system: processes, users, terminals, signs of life.
//!
//! | file | contents |
//! |---|---|
//! | `unix`, `windows` | processes, users, terminals |
//! | `confinement` | Landlock and seccomp, Linux only |
//! | `changes` | changes of folders: inotify, elsewhere a look every few seconds |
//! | `signals` | SIGINT, SIGTERM and SIGHUP, Ctrl-C |
//! | `notify` | signs of life for systemd, Linux only |

#[cfg(target_os = "linux")]
mod changes;
#[cfg(not(target_os = "linux"))]
#[path = "changes_portable.rs"]
mod changes;
#[cfg(target_os = "linux")]
pub mod confinement;
mod notify;
#[cfg(unix)]
mod signals;
#[cfg(windows)]
#[path = "signals_windows.rs"]
mod signals;
#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

pub use changes::FolderWatcher;
pub use notify::{ServiceState, notify, watchdog_interval};
pub use signals::EarlySignals;
#[cfg(unix)]
pub use unix::*;
#[cfg(windows)]
pub use windows::*;

/// Takes the identity of a user: not on this system. On systems by Apple, no safe call sets the groups of a
/// process, which would stay the former user's.
#[cfg(any(windows, target_vendor = "apple"))]
pub fn become_user(name: &str) -> Result<(), crate::exit::Failure> {
    let why = format!(
        "cannot become the user '{name}': --user is not on this system; start the program as that user"
    );
    Err(crate::exit::Failure::new(crate::exit::Exit::Usage, why))
}
