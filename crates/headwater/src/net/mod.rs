//! UDP sockets: a sender to groups, a receiver of many channels, a unicast socket, and a poller for all
//! sockets.
//!
//! On Linux reading is batched (`recvmmsg`, GRO), with destination address, ECN and time of arrival;
//! sending hands many runs of datagrams to the kernel at once (`sendmmsg`, GSO). Elsewhere a call carries a
//! datagram. Only [`Poller::wait`] blocks, and [`SenderSocket::send`] while the send buffer is full.
//!
//! | file | contents |
//! |---|---|
//! | `interface` | network interfaces: list, look-up, the kernel's choice for a group |
//! | `link` | detection of an interface outage, and recovery |
//! | `channels` | the groups of a session |
//! | `sender`, `send_error`, `receiver`, `unicast` | the sockets |
//! | `tunnel` | a receiver's socket behind an AMT relay |
//! | `groups` | a relay's socket for any groups |
//! | `query` | requests of receivers to senders |
//! | `batch` | datagrams read in one call, their ancillary data and time of arrival |
//! | `observed` | a group's datagrams with their TTL and traffic class, for `doctor` |
//! | `poller` | waiting |
//! | `endpoint`, `descriptor` | common parts: a bound socket, descriptors |
//! | `sys` | the calls that depend on the system, in two layers |

mod batch;
mod channels;
mod descriptor;
mod endpoint;
mod full_link;
mod groups;
mod interface;
mod link;
mod observed;
mod poller;
mod query;
mod receiver;
mod send_error;
mod sender;
mod sys;
mod tunnel;
mod unicast;

pub use batch::RecvBatch;
pub use channels::{Channels, ChannelsError};
pub use descriptor::{AsFd, BorrowedFd};
pub use endpoint::{BufferSize, OpenError};
pub use groups::GroupsSocket;
pub use interface::{Interface, InterfaceError};
pub use link::{LinkChange, LinkState};
pub use observed::{ObservedDatagram, ObservedSocket};
pub use poller::{Poller, Readiness, Waker};
pub use receiver::{MembershipError, ReceiverCounters, ReceiverOptions, ReceiverSocket};
pub use send_error::SendError;
pub(crate) use sender::RUN_BYTES_MAX;
pub use sender::{Run, SenderCounters, SenderOptions, SenderSocket};
pub use sys::SocketLayer;
pub(crate) use sys::bind_interface;
pub use tunnel::AmtSocket;
pub use unicast::{UnicastOptions, UnicastSocket};
