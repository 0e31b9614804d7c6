//! UDP sockets: one that sends to groups, one that receives many channels, one of a relay, and the wait
//! between them. Linux.
//!
//! Reading is batched (`recvmmsg`, GRO), with destination address, ECN and time of arrival; sending hands
//! many runs of datagrams to the kernel at once (`sendmmsg`, GSO). Nothing here blocks but [`Poller::wait`],
//! and [`SenderSocket::send`] while the send buffer is full.
//!
//! | file | what |
//! |---|---|
//! | `interface`, `route` | which interfaces exist, which one was meant, which one the kernel would use |
//! | `link`, `outage` | an interface that goes away and comes back: noticed, and ridden out |
//! | `channels` | the groups of a session |
//! | `sender`, `sender_options`, `pieces`, `send_error`, `receiver`, `unicast` | the sockets |
//! | `batch`, `told`, `wall` | datagrams read in one call, what the kernel tells of them, when they arrived |
//! | `observed` | a group's datagrams with their TTL and traffic class, for `doctor` |
//! | `poller` | waiting |
//! | `endpoint`, `control`, `sys` | what they share: a bound socket, control messages, options without a safe wrapper |

mod batch;
mod channels;
mod control;
mod endpoint;
mod interface;
mod link;
mod observed;
mod outage;
mod pieces;
mod poller;
mod receiver;
mod route;
mod send_error;
mod sender;
mod sender_options;
mod sys;
mod told;
mod unicast;
mod wall;

pub use batch::RecvBatch;
pub use channels::{Channels, ChannelsError};
pub use endpoint::{BufferSize, OpenError};
pub use interface::{Interface, InterfaceError};
pub use link::{LinkChange, LinkState};
pub use observed::{Observed, ObservedSocket};
pub(crate) use pieces::RUN_BYTES_MAX;
pub use poller::{Poller, Readiness, Waker};
pub use receiver::{MembershipError, ReceiverCounters, ReceiverOptions, ReceiverSocket};
pub use send_error::SendError;
pub use sender::{Run, SenderCounters, SenderSocket};
pub use sender_options::SenderOptions;
pub use unicast::{UnicastOptions, UnicastSocket};
