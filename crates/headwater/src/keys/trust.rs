//! Keys that a receiver accepts.

use headwater_proto::Seed;
use headwater_proto::auth::{PublicKey, Verifier, VerifyingConfig};
use headwater_proto::delivery::Verifying;
use headwater_wire::sdp::{FdtDocument, FdtSignature, signed_fdt};

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

    /// Returns the trust of a receiver for the sessions after a verified session of a key that is remembered:
    /// a recording of an earlier session is refused. [`Trust::First`] becomes this key.
    #[must_use]
    pub fn following(&self, key: PublicKey, started: u32) -> Self {
        let followed = TrustedKey { key, started_min: started };
        match self {
            Self::Unchecked => Self::Unchecked,
            Self::First => Self::Keys(vec![followed]),
            Self::Keys(keys) => {
                let mut keys = keys.clone();
                match keys.iter_mut().find(|trusted| trusted.key == key) {
                    Some(trusted) => trusted.started_min = trusted.started_min.max(started),
                    None => keys.push(followed),
                }
                Self::Keys(keys)
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
        Some(Verifying::new(config, Box::new(Ed25519::default()), Seed(system::random_u64())))
    }
}

/// Checks the signature of an FDT document. Returns the FDT, and the key that signed the FDT. Without trusted
/// keys, the signature is not checked: no key is known to check by.
///
/// # Errors
/// If no trusted key has signed the FDT, or the FDT is of another session than `tsi`, with the reason.
pub(crate) fn check_fdt<'a>(
    bytes: &'a [u8],
    trust: &Trust,
    tsi: Option<u64>,
) -> Result<(&'a str, Option<PublicKey>), String> {
    let document = FdtDocument::parse(bytes).ok_or("it is not text")?;
    if let (Some(signature), Some(tsi)) = (&document.signature, tsi)
        && signature.tsi != tsi
    {
        return Err(format!("it is of session {}, and not of session {tsi}", signature.tsi));
    }
    let Trust::Keys(keys) = trust else { return Ok((document.xml, None)) };
    let FdtSignature { tsi, started, bytes } = document.signature.ok_or("it is not signed")?;
    let message = signed_fdt(tsi, started, document.xml);
    let verifier = Ed25519::default();
    let signer = keys.iter().find(|trusted| verifier.verify(&trusted.key, &message, &bytes));
    let signer = signer.ok_or("no trusted key has signed it")?;
    if started < signer.started_min {
        return Err("it is of an older session than the newest known one of the sender".to_owned());
    }
    Ok((document.xml, Some(signer.key)))
}

#[cfg(test)]
mod tests {
    use headwater_proto::auth::Signer;

    use super::super::SenderKey;
    use super::*;

    #[test]
    fn an_fdt_document_is_taken_from_a_trusted_signer_of_this_session_alone() {
        let key = SenderKey::ephemeral().unwrap();
        let xml = "<FDT-Instance/>";
        let signature = FdtSignature { tsi: 5, started: 9, bytes: key.sign(&signed_fdt(5, 9, xml)) };
        let signed = FdtDocument { xml, signature: Some(signature) }.to_text();
        let check = |text: &str, trust: &Trust, tsi| {
            check_fdt(text.as_bytes(), trust, tsi).map(|(xml, key)| (xml.to_owned(), key))
        };
        let trust = |key, started_min| Trust::Keys(vec![TrustedKey { key, started_min }]);
        let own = trust(key.public(), 9);
        assert_eq!(check(&signed, &own, Some(5)), Ok((xml.to_owned(), Some(key.public()))));
        assert_eq!(check(&signed, &Trust::First, None), Ok((xml.to_owned(), None)));
        for (text, trust, tsi) in [
            (&*signed, &own, Some(6)),
            (&*signed, &trust(key.public(), 10), Some(5)),
            (&*signed, &trust([7; 32], 0), Some(5)),
            (&*signed.replace("Instance", "instance"), &own, Some(5)),
            (&*signed.replace(" 5 9 ", " 5 10 "), &own, Some(5)),
            (xml, &own, Some(5)),
        ] {
            assert!(check(text, trust, tsi).is_err(), "{text} {trust:?} {tsi:?}");
        }
    }
}
