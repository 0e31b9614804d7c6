//! Files and folders beyond the standard library: names below an open folder, metadata, holes, space.
//!
//! Names and signatures are those of `rustix::fs` as far as this crate uses them. Unix: `rustix`. Windows: the
//! standard library, with a folder as an open handle and its path. Owners and extended attributes are not on
//! Windows.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub(crate) use unix::*;
#[cfg(windows)]
pub(crate) use windows::*;
