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
    /// Any sender: no packet is verified. With a group key, as [`Trust::First`].
    #[default]
    Unchecked,
    /// The sender whose key is verified first, or an unsigned session: after the session's first 512 packets,
    /// or after a second, if no packet was verified until then.
    First,
    /// Holders of these keys alone.
    Keys(Vec<TrustedKey>),
}

/// Key that a receiver accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrustedKey {
    /// The key.
    pub key: PublicKey,
    /// Earliest start of an accepted session of the key, in seconds of the NTP era: replayed recordings are
    /// older.
    pub started_min: u32,
}

impl From<PublicKey> for TrustedKey {
    /// Accepts each session of the key.
    fn from(key: PublicKey) -> Self {
        Self { key, started_min: 0 }
    }
}

impl Trust {
    /// Returns the trust of a receiver that continues files of these senders.
    pub(crate) fn pinned_to(&self, pins: Vec<PublicKey>) -> Self {
        match self {
            Self::Unchecked => Self::Unchecked,
            Self::First => Self::Keys(pins.into_iter().map(TrustedKey::from).collect()),
            Self::Keys(keys) => {
                // A key that has been replaced starts no session later than the key that replaces it.
                let latest = keys.iter().map(|trusted| trusted.started_min).max().unwrap_or(0);
                let trusted = |pin: PublicKey| keys.iter().find(|trusted| trusted.key == pin).copied();
                let replaced = |key| TrustedKey { key, started_min: latest };
                Self::Keys(pins.into_iter().map(|pin| trusted(pin).unwrap_or(replaced(pin))).collect())
            }
        }
    }

    /// Returns the verification of a session, which is encrypted or not.
    pub(crate) fn verifying(&self, is_on_request: bool, is_encrypted: bool) -> Option<Verifying> {
        let config = match self {
            // The content key depends on the sender's key.
            Self::Unchecked if !is_encrypted => return None,
            Self::Unchecked | Self::First => {
                VerifyingConfig::new(Vec::new(), CHANNELS).with_first_key(true).with_unsigned(true)
            }
            Self::Keys(keys) => {
                let config = VerifyingConfig::new(keys.iter().map(|trusted| trusted.key).collect(), CHANNELS);
                keys.iter().fold(config, |config, trusted| {
                    config.with_started_min(&trusted.key, trusted.started_min)
                })
            }
        };
        let config = config.with_request(is_on_request);
        Some(Verifying::new(config, Box::new(Ed25519), Seed(system::random_u64())))
    }
}
