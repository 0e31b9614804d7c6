//! UDP multicast sockets: one that sends, one that receives many channels, and the wait between them. Linux.
//!
//! Reading is batched by `quinn-udp` (`recvmmsg`, GRO, destination address, ECN); sending hands runs of datagrams to the
//! kernel (GSO). Nothing here blocks but [`Poller::wait`], and [`SenderSocket::send`] while the send buffer is full.
//!
//! | file | what |
//! |---|---|
//! | `interface`, `route` | which interfaces exist, which one was meant, which one the kernel would use |
//! | `channels` | the groups of a session |
//! | `sender`, `send_error`, `receiver` | the sockets |
//! | `batch` | datagrams read in one call |
//! | `observed` | a group's datagrams with their TTL and traffic class, for `doctor` |
//! | `poller` | waiting |
//! | `endpoint`, `control`, `sys` | what they share: a bound socket, control messages, options without a safe wrapper |

mod batch;
mod channels;
mod control;
mod endpoint;
mod interface;
mod observed;
mod poller;
mod receiver;
mod route;
mod send_error;
mod sender;
mod sys;

pub use batch::RecvBatch;
pub use channels::{Channels, ChannelsError};
pub use endpoint::{BufferSize, OpenError};
pub use interface::{Interface, InterfaceError};
pub use observed::{Observed, ObservedSocket};
pub use poller::{Poller, Readiness, Waker};
pub use receiver::{MembershipError, ReceiverCounters, ReceiverOptions, ReceiverSocket};
pub use send_error::SendError;
pub use sender::{Run, SenderCounters, SenderOptions, SenderSocket};
