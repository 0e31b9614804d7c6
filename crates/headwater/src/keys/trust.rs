//! Keys that a receiver accepts.

use headwater_proto::Seed;
use headwater_proto::auth::{PublicKey, VerifyingConfig};
use headwater_proto::delivery::Verifying;

use super::Ed25519;
use crate::system;

/// Channels of the controls: numbers of 8 bits.
const CHANNELS: u16 = 256;

/// Senders whose packets a receiver accepts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// Any sender: no packet is verified.
    #[default]
    Unchecked,
    /// The sender whose key is verified first, or an unsigned session if no packet was verified within a
    /// second.
    First,
    /// Holders of these keys alone.
    Keys {
        /// The keys.
        keys: Vec<PublicKey>,
        /// Earliest start of an accepted session, in seconds of the NTP era: replayed recordings are older.
        started_min: u32,
    },
}

impl Trust {
    /// Returns the verification of a session.
    pub(crate) fn verifying(&self, is_on_request: bool) -> Option<Verifying> {
        let config = match self {
            Self::Unchecked => return None,
            Self::First => {
                VerifyingConfig::new(Vec::new(), CHANNELS).with_first_key(true).with_unsigned(true)
            }
            Self::Keys { keys, started_min } => {
                VerifyingConfig::new(keys.clone(), CHANNELS).with_started_min(*started_min)
            }
        };
        let config = config.with_request(is_on_request);
        Some(Verifying::new(config, Box::new(Ed25519), Seed(system::random_u64())))
    }
}
