//! Errors of calls, by the names of Unix.

use std::fmt;
use std::io::{self, ErrorKind};

/// Reasons why a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Errno {
    Kind(ErrorKind),
    Raw(i32),
}

impl Errno {
    pub(crate) const NOENT: Self = Self::Kind(ErrorKind::NotFound);
    pub(crate) const EXIST: Self = Self::Kind(ErrorKind::AlreadyExists);
    pub(crate) const ACCESS: Self = Self::Kind(ErrorKind::PermissionDenied);
    pub(crate) const NOTDIR: Self = Self::Kind(ErrorKind::NotADirectory);
    pub(crate) const LOOP: Self = Self::Raw(1_921);
    pub(crate) const WOULDBLOCK: Self = Self::Kind(ErrorKind::WouldBlock);
    pub(crate) const AGAIN: Self = Self::Kind(ErrorKind::ResourceBusy);
    pub(crate) const BUSY: Self = Self::Raw(32);
    pub(crate) const NOSPC: Self = Self::Kind(ErrorKind::StorageFull);
    pub(crate) const DQUOT: Self = Self::Kind(ErrorKind::QuotaExceeded);
    pub(crate) const FBIG: Self = Self::Kind(ErrorKind::FileTooLarge);
    pub(crate) const MFILE: Self = Self::Raw(4);
    pub(crate) const NFILE: Self = Self::Raw(36);
    pub(crate) const INVAL: Self = Self::Kind(ErrorKind::InvalidInput);
    pub(crate) const BADF: Self = Self::Raw(6);
    pub(crate) const OPNOTSUPP: Self = Self::Kind(ErrorKind::Unsupported);
    pub(crate) const PERM: Self = Self::Raw(1_314);

    pub(crate) fn from_io_error(error: &io::Error) -> Option<Self> {
        const KINDS: [ErrorKind; 10] = [
            ErrorKind::NotFound,
            ErrorKind::AlreadyExists,
            ErrorKind::PermissionDenied,
            ErrorKind::NotADirectory,
            ErrorKind::WouldBlock,
            ErrorKind::StorageFull,
            ErrorKind::QuotaExceeded,
            ErrorKind::FileTooLarge,
            ErrorKind::InvalidInput,
            ErrorKind::Unsupported,
        ];
        let kind = error.kind();
        if KINDS.contains(&kind) { Some(Self::Kind(kind)) } else { error.raw_os_error().map(Self::Raw) }
    }
}

impl From<io::Error> for Errno {
    fn from(error: io::Error) -> Self {
        Self::from_io_error(&error).unwrap_or(Self::Kind(error.kind()))
    }
}

impl From<Errno> for io::Error {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::Kind(kind) => kind.into(),
            Errno::Raw(code) => Self::from_raw_os_error(code),
        }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        io::Error::from(*self).fmt(f)
    }
}
