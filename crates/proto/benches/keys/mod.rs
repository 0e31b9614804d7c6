//! Ed25519 for measurements: the same key at both ends.

use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use headwater_proto::auth::{PublicKey, Signer, Verifier};

/// Private key.
#[derive(Debug)]
pub struct Key(SigningKey);

impl Signer for Key {
    fn public_key(&self) -> PublicKey {
        self.0.verifying_key().to_bytes()
    }

    fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.0.sign(message).to_bytes()
    }
}

/// Public key of the default [`Key`].
#[derive(Debug)]
pub struct Check(VerifyingKey);

impl Verifier for Check {
    fn verify(&self, _: &PublicKey, message: &[u8], signature: &[u8; 64]) -> bool {
        self.0.verify_strict(message, &Signature::from_bytes(signature)).is_ok()
    }
}

impl Default for Key {
    fn default() -> Self {
        Self(SigningKey::from_bytes(&[1; 32]))
    }
}

impl Default for Check {
    fn default() -> Self {
        Self(Key::default().0.verifying_key())
    }
}
