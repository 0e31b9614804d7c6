//! The analysis in LE-SBCC's paper. The protocol itself is [`headwater_proto::le_sbcc`].

pub mod markov;
pub mod rounds;
