//! Descriptors of sockets. Unix: the traits of the standard library. Windows: the same names.

#[cfg(unix)]
pub use std::os::fd::{AsFd, BorrowedFd};

#[cfg(windows)]
pub use windows::{AsFd, BorrowedFd};

#[cfg(windows)]
mod windows {
    use std::os::windows::io::{AsSocket, BorrowedSocket};

    /// A socket that stays open while borrowed.
    pub type BorrowedFd<'a> = BorrowedSocket<'a>;

    /// Types that lend a socket.
    pub trait AsFd {
        /// Returns the socket.
        fn as_fd(&self) -> BorrowedFd<'_>;
    }

    impl<T: AsSocket> AsFd for T {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.as_socket()
        }
    }
}
