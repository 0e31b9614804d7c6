//! Authentication of every packet of a session by its sender.
//!
//! A packet is *signed* (the packet carries an Ed25519 signature) or *listed* (a signed manifest carries the
//! packet's tag). [`SigningEnd`] stands behind a sender and plans packets ahead, so that manifests precede
//! the packets that they list. [`VerifyingFront`] stands before a receiver's congestion control and decoder.
//! Neither machine has a socket, a clock or entropy. Signatures come from outside by [`Signer`] and
//! [`Verifier`]. Formats, bounds and their reasons: `docs/reference/wire/auth.md`.

mod budget;
mod hash;
mod line;
mod pass;
mod signing;
mod tags;
#[cfg(test)]
mod tests;
mod verdict;
mod verifying;
mod waiting;
mod window;

pub use hash::PublicKey;
pub(crate) use line::{AuthPacket, DEMAND_LEAD_MAX, MANIFEST_BYTES_MAX, START_LEAD_MAX, SigningLine, lead};
pub use line::{LISTED_RATE, Signing, TREE_BYTES, TREES_RATE, signed_bytes};
pub use signing::{GROUP, PLANNED, PLANNED_MAX, SigningConfig, SigningEnd, SigningError, Slot};
pub use verdict::{AuthCounters, AuthVerdict, Rejection, Released};
pub use verifying::{VerifyingConfig, VerifyingFront};
pub use waiting::{Origin, UNSIGNED_TIME, WAITING_BYTES_MAX, WAITING_TIME};

/// Bytes of a signature.
pub const SIGNATURE_BYTES: usize = 64;

/// Holder of a private key.
pub trait Signer: core::fmt::Debug {
    /// Returns the public key.
    fn public_key(&self) -> PublicKey;

    /// Signs a message (Ed25519, RFC 8032).
    fn sign(&self, message: &[u8]) -> [u8; SIGNATURE_BYTES];
}

/// Check of signatures.
pub trait Verifier: core::fmt::Debug {
    /// Returns whether the holder of `key` signed the message. The check is strict: no weak key, and a single
    /// signature for each message and key.
    fn verify(&self, key: &PublicKey, message: &[u8], signature: &[u8; SIGNATURE_BYTES]) -> bool;
}

impl<T: Signer + ?Sized> Signer for Box<T> {
    fn public_key(&self) -> PublicKey {
        (**self).public_key()
    }

    fn sign(&self, message: &[u8]) -> [u8; SIGNATURE_BYTES] {
        (**self).sign(message)
    }
}

impl<T: Verifier + ?Sized> Verifier for Box<T> {
    fn verify(&self, key: &PublicKey, message: &[u8], signature: &[u8; SIGNATURE_BYTES]) -> bool {
        (**self).verify(key, message, signature)
    }
}

/// Signatures for simulations: their length is that of Ed25519, but anybody can make them.
#[derive(Clone, Copy, Debug)]
pub struct StandIn(pub PublicKey);

impl Signer for StandIn {
    fn public_key(&self) -> PublicKey {
        self.0
    }

    fn sign(&self, message: &[u8]) -> [u8; SIGNATURE_BYTES] {
        hash::stand_in(&self.0, message)
    }
}

impl Verifier for StandIn {
    fn verify(&self, key: &PublicKey, message: &[u8], signature: &[u8; SIGNATURE_BYTES]) -> bool {
        hash::stand_in(key, message) == *signature
    }
}
