//! Headwater over real UDP multicast: the runtime of the protocol machines in `headwater-proto`.

pub mod net;
