//! Analyses from the LE-SBCC paper. The protocol itself is [`headwater_proto::le_sbcc`].

pub mod markov;
pub mod rounds;
