//! Errors of preparing and of sending a session.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use headwater_proto::delivery::{FdtTooLarge, PlanError, RelativePath, SourceError};
use headwater_proto::described::DescriptionError;
use headwater_proto::{Rate, Size};

use super::files::{EscapedPath, Skipped};
use crate::driver::DriverError;
use crate::net::{ChannelsError, InterfaceError, OpenError};

/// Error of [`prepare`](super::prepare).
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// The selection holds no regular file that can be sent.
    #[error("there is nothing to send: no regular file is among the paths given{}", Reasons(.skipped))]
    Empty {
        /// Paths that were found: not regular files, or of names that receivers refuse.
        skipped: Vec<Skipped>,
    },
    /// A file or folder could not be read.
    #[error("cannot read '{}'", EscapedPath(path))]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// Error of the kernel.
        source: io::Error,
    },
    /// Two files would have one name at the receivers.
    #[error(
        "'{}' and '{}' would both be sent as '{name}'; rename one, or send a folder that holds both",
        EscapedPath(first),
        EscapedPath(second)
    )]
    SameName {
        /// The name.
        name: RelativePath,
        /// One file.
        first: PathBuf,
        /// Another file.
        second: PathBuf,
    },
    /// One file would stand where receivers need a folder for another.
    #[error("'{file}' would be a file and a folder ('{below}') at the receivers; rename one of them")]
    FileAndFolder {
        /// The file.
        file: RelativePath,
        /// A file below it.
        below: RelativePath,
    },
}

/// Formats `; '/dev/null' is a device` for each of the first few skipped paths.
struct Reasons<'a>(&'a [Skipped]);

impl fmt::Display for Reasons<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN_MAX: usize = 3;
        for skipped in self.0.iter().take(SHOWN_MAX) {
            write!(f, "; {skipped}")?;
        }
        let more = self.0.len().saturating_sub(SHOWN_MAX);
        if more > 0 { write!(f, "; and {more} more") } else { Ok(()) }
    }
}

/// Error that prevents a session or ends it early.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The group is no multicast address, or its channels do not fit above it.
    #[error(transparent)]
    Channels(#[from] ChannelsError),
    /// The rates make no channels.
    #[error(transparent)]
    Layers(#[from] DescriptionError),
    /// There is no room for channels between the base rate and the maximum.
    #[error(
        "a maximum of {max} is too low over a base rate of {base}: it must be at least {least}; or lower the base rate"
    )]
    Rates {
        /// Rate of the base channel.
        base: Rate,
        /// Maximum rate of all channels together.
        max: Rate,
        /// Lowest possible maximum.
        least: Rate,
    },
    /// Window order was requested for a session in which each receiver has a rate of its own.
    #[error("the order 'window' is for receivers of one rate: leave the order out, or send at a fixed rate")]
    NoWindows,
    /// A number of passes was requested for a session in which each receiver has a rate of its own.
    #[error(
        "passes end a session of one rate; where each receiver has a rate of its own, slow ones would still miss most of it: \
         say for how long to send, or send at a fixed rate"
    )]
    NoPasses,
    /// A stream was given a congestion control that sends on request.
    #[error("a stream is sent unasked: choose another congestion control than '{0}'")]
    NotOnRequest(&'static str),
    /// The session is a rehearsal, which never runs.
    #[error("a rehearsal is planned and never runs")]
    Rehearsal,
    /// Two addresses of one IP version.
    #[error("{0} and {1} are of one IP version; a source listens at one address of each, or at all")]
    ListenTwice(SocketAddr, SocketAddr),
    /// There is no interface to send on.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// The socket could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// An option is out of its range.
    #[error("{option} is {value}, which must be {range}")]
    Option {
        /// Name of the option.
        option: &'static str,
        /// Value given.
        value: u64,
        /// Range allowed.
        range: &'static str,
    },
    /// The requested symbols are longer than the interface can send.
    #[error(
        "a packet with a symbol of {symbol_size} bytes does not fit the MTU of {interface}, {mtu} bytes; leave the size to \
         the MTU, or raise it"
    )]
    Mtu {
        /// Bytes of a symbol.
        symbol_size: u16,
        /// Bytes of the longest IP packet.
        mtu: u32,
        /// The interface.
        interface: String,
    },
    /// One session cannot carry the files.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The description of the session is too long.
    #[error(transparent)]
    Fdt(#[from] FdtTooLarge),
    /// Encoding a single block would take more memory than allowed.
    #[error(
        "encoding the content needs {needed} of memory, more than the limit of {limit}; raise the limit, send a single \
         pass, or use no erasure code"
    )]
    Memory {
        /// Least memory that encoding takes.
        needed: Size,
        /// Memory limit.
        limit: Size,
    },
    /// Repair symbols fit neither in memory nor on disk.
    #[error(
        "repair symbols need {needed} in '{}', where {free} are free; make room, choose another folder, allow more \
         memory, send a single pass, or use no erasure code", folder.display()
    )]
    Space {
        /// Folder for the repair symbols.
        folder: PathBuf,
        /// Bytes the repair symbols take.
        needed: Size,
        /// Bytes free in the folder.
        free: Size,
    },
    /// Encoded content does not fit on disk.
    #[error(
        "compressed content needs about {needed} in '{}', where {free} are free; make room, choose another folder with \
         --temp-dir, or send without --compress", folder.display()
    )]
    CompressionSpace {
        /// Folder for encoded content.
        folder: PathBuf,
        /// Bytes the content takes, as far as is known before.
        needed: Size,
        /// Bytes free in the folder.
        free: Size,
    },
    /// The folder of encoded content cannot be used.
    #[error(
        "cannot {attempt} in '{}', where compressed content is kept; choose another folder with --temp-dir, or send \
         without --compress", folder.display()
    )]
    Compression {
        /// Operation that failed.
        attempt: &'static str,
        /// Folder for encoded content.
        folder: PathBuf,
        /// Error of the kernel.
        source: io::Error,
    },
    /// The bytes of an input to keep do not fit on disk.
    #[error(
        "keeping {needed} of the input needs more than the {free} that are free in '{}'; make room, choose another folder, or \
         keep less", folder.display()
    )]
    SpoolSpace {
        /// Folder for the input.
        folder: PathBuf,
        /// Bytes to keep.
        needed: Size,
        /// Bytes free in the folder.
        free: Size,
    },
    /// The file for repair symbols could not be created.
    #[error("cannot {attempt} in '{}', where repair symbols are kept; choose another folder", folder.display())]
    Store {
        /// Operation that failed.
        attempt: &'static str,
        /// Folder for the file.
        folder: PathBuf,
        /// Error of the kernel.
        source: io::Error,
    },
    /// A file could not be read, or changed.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The sockets at which receivers send requests failed.
    #[error("answering receivers failed")]
    Asked {
        /// Error of the driver.
        source: DriverError,
    },
    /// Sending failed: the interface, a route, a firewall.
    #[error("sending to {group} failed")]
    Network {
        /// The base channel's group.
        group: IpAddr,
        /// Error of the driver.
        source: DriverError,
    },
}
