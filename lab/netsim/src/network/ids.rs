//! Identifiers of network elements: indices in the order of declaration.

use std::net::Ipv4Addr;

use headwater_proto::queue::GroupAddress;

/// 232.0.0.1, the address of group 0.
const FIRST_GROUP: u32 = 0xE800_0001;

/// A node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub(crate) u32);

/// A direction of a link. [`LinkId::reverse`] is the opposite direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub(crate) u32);

impl LinkId {
    /// The direction back.
    #[must_use]
    pub const fn reverse(self) -> Self {
        Self(self.0 ^ 1)
    }
}

/// A flow, under which packets are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(pub(crate) u32);

/// A source-specific multicast group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub(crate) u32);

/// Something at a node that sends and receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AgentId(pub(crate) u32);

macro_rules! index {
    ($($id:ident),*) => {$(
        impl $id {
            /// Position in the order of declaration, from 0.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }
    )*};
}

impl GroupId {
    /// Multicast address of the group (source-specific, RFC 4607), as captures and machines see the group.
    pub const fn address(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(FIRST_GROUP + self.0)
    }

    /// Multicast address as a number, for queues.
    pub(crate) const fn number(self) -> GroupAddress {
        (FIRST_GROUP + self.0) as GroupAddress
    }
}

index!(NodeId, LinkId, FlowId, GroupId, AgentId);
