//! Why a session cannot be received.

use std::net::{IpAddr, SocketAddr};

use headwater_proto::delivery::StoreError;

use crate::driver::DriverError;
use crate::net::{ChannelsError, InterfaceError, OpenError};

/// Why a session cannot be received. What goes wrong with its content is a
/// [`ReceiveOutcome`](crate::ReceiveOutcome) instead.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    /// The group is no multicast address.
    #[error(transparent)]
    Channels(#[from] ChannelsError),
    /// There is no interface to receive on.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// The socket could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The chance of loss is no probability.
    #[error("the loss probability is {0}, which must be from 0 to 1")]
    Loss(f64),
    /// The folder for the files cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The source, or the relay that it is to be asked by, is no address of a host.
    #[error(
        "nothing of {0} can be asked for by way of {1}: port 0, an unspecified address and a group are no host's"
    )]
    Nobody(SocketAddr, SocketAddr),
    /// Receiving failed: the interface or a membership.
    #[error("receiving from {group} failed")]
    Network {
        /// The base channel's group, or the source that is asked.
        group: IpAddr,
        /// What went wrong.
        source: DriverError,
    },
}
