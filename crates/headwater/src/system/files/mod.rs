//! Files and folders beyond the standard library: names below an open folder, metadata, holes, space.
//!
//! Names and signatures follow `rustix::fs`. Unix: `rustix`. Windows: the standard library, with a folder
//! as an open handle and a path. Windows has no owners and extended attributes.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub(crate) use unix::*;
#[cfg(windows)]
pub(crate) use windows::*;
