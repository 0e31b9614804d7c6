//! What the parts of a network are called: indices in the order of declaration.

use std::net::Ipv4Addr;

use headwater_proto::queue::GroupAddress;

/// 232.0.0.1, the address of group 0.
const FIRST_GROUP: u32 = 0xE800_0001;

/// A node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub(crate) u32);

/// One direction of a link. The other one is [`LinkId::reverse`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub(crate) u32);

impl LinkId {
    /// The direction back.
    #[must_use]
    pub const fn reverse(self) -> Self {
        Self(self.0 ^ 1)
    }
}

/// What packets are counted under.
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
    /// Its multicast address (source-specific, RFC 4607), as captures and machines have it.
    pub const fn address(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(FIRST_GROUP + self.0)
    }

    /// The same as queues have it.
    pub(crate) const fn number(self) -> GroupAddress {
        (FIRST_GROUP + self.0) as GroupAddress
    }
}

index!(NodeId, LinkId, FlowId, GroupId, AgentId);
