//! UDP sockets: one that sends to groups, one that receives many channels, one of a relay, and the wait
//! between them. Linux.
//!
//! Reading is batched (`recvmmsg`, GRO), with destination address, ECN and time of arrival; sending hands
//! many runs of datagrams to the kernel at once (`sendmmsg`, GSO). Nothing here blocks but [`Poller::wait`],
//! and [`SenderSocket::send`] while the send buffer is full.
//!
//! | file | what |
//! |---|---|
//! | `interface` | which interfaces exist, which one was meant, which one the kernel would use |
//! | `link` | an interface that goes away and comes back: noticed, and ridden out |
//! | `channels` | the groups of a session |
//! | `sender`, `send_error`, `receiver`, `unicast` | the sockets |
//! | `batch` | datagrams read in one call, their ancillary data and time of arrival |
//! | `observed` | a group's datagrams with their TTL and traffic class, for `doctor` |
//! | `poller` | waiting |
//! | `endpoint`, `sys` | what they share: a bound socket, control messages, options without a safe wrapper |

mod batch;
mod channels;
mod endpoint;
mod interface;
mod link;
mod observed;
mod poller;
mod receiver;
mod send_error;
mod sender;
mod sys;
mod unicast;

pub use batch::RecvBatch;
pub use channels::{Channels, ChannelsError};
pub use endpoint::{BufferSize, OpenError};
pub use interface::{Interface, InterfaceError};
pub use link::{LinkChange, LinkState};
pub use observed::{ObservedDatagram, ObservedSocket};
pub use poller::{Poller, Readiness, Waker};
pub use receiver::{MembershipError, ReceiverCounters, ReceiverOptions, ReceiverSocket};
pub use send_error::SendError;
pub(crate) use sender::RUN_BYTES_MAX;
pub use sender::{Run, SenderCounters, SenderOptions, SenderSocket};
pub use unicast::{UnicastOptions, UnicastSocket};
