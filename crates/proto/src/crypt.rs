//! Encryption of content by a group key: AES-256-GCM over FEC Payload ID and symbols. Format, bounds and
//! their reasons: `docs/reference/wire/crypt.md`.
//!
//! A packet is encrypted before the packet is signed or listed, so that relays verify packets without the
//! group key. Headers are in the clear. A receiver with a group key takes no content in the clear.

use core::fmt;

use aes_gcm::aead::AeadInPlace;
use aes_gcm::{Aes256Gcm, KeyInit, Nonce, Tag};
use headwater_wire::alc::{self, AlcError};
use headwater_wire::crypt::{CRYPT_BYTES, Crypt, SEAL_BYTES};
use headwater_wire::extensions::Lateness;
use headwater_wire::{PayloadId, lct};
use zeroize::Zeroizing;

use crate::auth::PublicKey;

/// Most group keys of a receiver: the key in use, and the next or the previous one.
pub const GROUP_KEYS_MAX: usize = 2;
/// Bytes by which encryption makes a packet longer.
pub const ENCRYPTED_BYTES: usize = CRYPT_BYTES + SEAL_BYTES;

/// Secret of the members of a group. Wiped from memory with the last copy.
#[derive(Clone, PartialEq, Eq)]
pub struct GroupKey {
    epoch: u8,
    secret: Zeroizing<[u8; 32]>,
}

impl fmt::Debug for GroupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupKey").field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

impl GroupKey {
    /// Creates the key with the number `epoch`.
    pub fn new(epoch: u8, secret: Zeroizing<[u8; 32]>) -> Self {
        Self { epoch, secret }
    }

    /// Returns the number of the key.
    pub fn epoch(&self) -> u8 {
        self.epoch
    }

    /// Returns the secret.
    pub fn secret(&self) -> &[u8; 32] {
        &self.secret
    }
}

/// Identity of a content key, beside the group key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ContentKeyId {
    epoch: u8,
    /// Key that signs the session; zero for an unsigned session.
    public: PublicKey,
    salt: u64,
    /// High half of the packet number: a content key encrypts at most 2^32 packets.
    range: u32,
}

impl ContentKeyId {
    fn new(public: PublicKey, crypt: &Crypt) -> Self {
        Self { epoch: crypt.epoch, public, salt: crypt.salt, range: (crypt.number >> 32) as u32 }
    }

    fn cipher(&self, key: &GroupKey) -> Aes256Gcm {
        let mut hasher = blake3::Hasher::new_derive_key("headwater content 1");
        hasher.update(key.secret());
        hasher.update(&self.public);
        hasher.update(&self.salt.to_be_bytes());
        hasher.update(&self.range.to_be_bytes());
        let content_key = Zeroizing::new(*hasher.finalize().as_bytes());
        Aes256Gcm::new((&*content_key).into())
    }
}

fn nonce(number: u64) -> [u8; 12] {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&number.to_be_bytes());
    nonce
}

/// Header that the encryption protects: up to EXT_CRYPT, before the extensions of the authentication were
/// inserted. CCI and lateness count as zero: BCFS writes a word for each address into the CCI, and the
/// lateness is written when the packet leaves.
struct ProtectedHeader {
    bytes: [u8; lct::HEADER_LEN_MAX],
    len: usize,
}

impl ProtectedHeader {
    fn new(packet: &lct::Packet<&[u8]>, header: &[u8]) -> Self {
        let (mut bytes, len) = ([0; lct::HEADER_LEN_MAX], header.len());
        bytes[..len].copy_from_slice(header);
        bytes[packet.cci_range()].fill(0);
        if let Some(changing) = Lateness::place(packet).filter(|place| place.end <= len) {
            bytes[changing].fill(0);
        }
        // The length in words, as when the packet was encrypted.
        bytes[2] = u8::try_from(len / 4).unwrap_or(u8::MAX);
        Self { bytes, len }
    }

    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Encryption of a session at its sender.
pub struct Encryption {
    key: GroupKey,
    public: PublicKey,
    salt: u64,
    number: u64,
    cipher: Option<(ContentKeyId, Aes256Gcm)>,
}

impl fmt::Debug for Encryption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encryption")
            .field("key", &self.key)
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

impl Encryption {
    /// Encrypts a session that the holder of `public` signs; `None` for an unsigned session. `salt` is drawn
    /// at random for each session: a salt that repeats under a key breaks the encryption.
    pub fn new(key: GroupKey, public: Option<PublicKey>, salt: u64) -> Self {
        Self { key, public: public.unwrap_or_default(), salt, number: 0, cipher: None }
    }

    /// Encrypts the payload of a packet, the first `bytes` bytes of `buffer`, and returns the new length. A
    /// packet without payload stays as it is. `None` if the buffer is too short.
    pub(crate) fn seal(&mut self, buffer: &mut [u8], bytes: usize) -> Option<usize> {
        let packet = lct::Packet::new_checked(buffer.get(..bytes)?).ok()?;
        if packet.payload().is_empty() {
            return Some(bytes);
        }
        let crypt = Crypt { epoch: self.key.epoch, salt: self.salt, number: self.number };
        self.number += 1;
        let start = crypt.insert(buffer, bytes).ok()?.end;
        let (sealed, end) = (bytes + CRYPT_BYTES, bytes + ENCRYPTED_BYTES);
        let packet = lct::Packet::new_checked(buffer.get(..sealed)?).ok()?;
        let header = ProtectedHeader::new(&packet, &buffer[..start]);
        let (payload, tag) = buffer.get_mut(start..end)?.split_at_mut(sealed - start);
        let id = ContentKeyId::new(self.public, &crypt);
        if self.cipher.as_ref().is_none_or(|(known, _)| *known != id) {
            self.cipher = Some((id, id.cipher(&self.key)));
        }
        let (_, cipher) = self.cipher.as_ref()?;
        let nonce = nonce(crypt.number);
        let written = cipher.encrypt_in_place_detached(Nonce::from_slice(&nonce), header.as_bytes(), payload);
        tag.copy_from_slice(&written.ok()?);
        Some(end)
    }
}

/// Reason why a receiver does not take the content of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unopened {
    /// The content is encrypted, and the receiver has no key of this epoch.
    NoKey {
        /// Number of the key.
        epoch: u8,
    },
    /// The receiver's key of this epoch does not decrypt the content.
    WrongKey {
        /// Number of the key.
        epoch: u8,
    },
    /// The content is in the clear, and the receiver has a group key.
    Clear,
}

/// Decryption of packets at a receiver.
#[derive(Default)]
pub(crate) struct ContentOpener {
    keys: Vec<GroupKey>,
    /// Cipher of the last packet that was decrypted.
    cipher: Option<(ContentKeyId, Aes256Gcm)>,
}

impl fmt::Debug for ContentOpener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContentOpener").field("keys", &self.keys).finish_non_exhaustive()
    }
}

/// FEC Payload ID and symbols of a packet, or the reason why the receiver does not take them.
pub(crate) type OpenedContent<'a> = Result<Result<(Option<PayloadId>, &'a [u8]), AlcError>, Unopened>;

impl ContentOpener {
    /// Takes content encrypted by these keys alone; without keys, content in the clear alone.
    pub(crate) fn new(keys: Vec<GroupKey>) -> Self {
        Self { keys, cipher: None }
    }

    /// Returns FEC Payload ID and symbols of a packet. `public` is the key that signs the session. Encrypted
    /// content is decrypted into `plain`.
    pub(crate) fn open<'a>(
        &mut self,
        public: Option<&PublicKey>,
        header: &alc::Repr,
        packet: &[u8],
        payload: &'a [u8],
        plain: &'a mut Vec<u8>,
    ) -> OpenedContent<'a> {
        let Some(crypt) = header.extensions.crypt else {
            let is_refused = !self.keys.is_empty() && header.payload_id.is_some();
            return if is_refused { Err(Unopened::Clear) } else { Ok(Ok((header.payload_id, payload))) };
        };
        let Crypt { epoch, number, .. } = crypt;
        let key = self.keys.iter().find(|key| key.epoch == epoch).ok_or(Unopened::NoKey { epoch })?;
        let id = ContentKeyId::new(public.copied().unwrap_or_default(), &crypt);
        let known = self.cipher.as_ref().filter(|(known, _)| *known == id).map(|(_, cipher)| cipher);
        let new = known.is_none().then(|| id.cipher(key));
        let cipher = known.or(new.as_ref()).ok_or(Unopened::NoKey { epoch })?;
        let wrong = Unopened::WrongKey { epoch };
        let (encrypted, tag) = payload.split_last_chunk::<SEAL_BYTES>().ok_or(wrong)?;
        let packet_view = lct::Packet::new_checked(packet).map_err(|_| wrong)?;
        let (_, place) = Crypt::find(&packet_view).ok().flatten().ok_or(wrong)?;
        let associated = ProtectedHeader::new(&packet_view, &packet[..place.end]);
        plain.clear();
        plain.extend_from_slice(encrypted);
        let (nonce, tag) = (nonce(number), Tag::from_slice(tag));
        let nonce = Nonce::from_slice(&nonce);
        cipher.decrypt_in_place_detached(nonce, associated.as_bytes(), plain, tag).map_err(|_| wrong)?;
        if let Some(cipher) = new {
            self.cipher = Some((id, cipher));
        }
        Ok(alc::split_payload(header.codepoint, plain))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PUBLIC: PublicKey = [7; 32];

    fn key(epoch: u8, secret: u8) -> GroupKey {
        GroupKey::new(epoch, Zeroizing::new([secret; 32]))
    }

    /// Packet of RaptorQ with FEC Payload ID 01 000005 and six bytes of symbol.
    fn packet() -> Vec<u8> {
        packet_with(&[])
    }

    /// The same with a header extension.
    fn packet_with(extension: &[u8]) -> Vec<u8> {
        let words = 3 + u8::try_from(extension.len() / 4).unwrap();
        let header = [0x10, 0x10, words, 6, 1, 2, 0, 3, 0, 7, 0, 1];
        [&header[..], extension, &[1, 0, 0, 5], b"symbol"].concat()
    }

    fn sealed(encryption: &mut Encryption) -> Vec<u8> {
        let mut buffer = packet();
        let bytes = buffer.len();
        buffer.resize(bytes + ENCRYPTED_BYTES, 0);
        assert_eq!(encryption.seal(&mut buffer, bytes), Some(bytes + ENCRYPTED_BYTES));
        buffer
    }

    /// Symbols of a packet, or the reason why they are not taken.
    fn open(keys: Vec<GroupKey>, public: PublicKey, packet: &[u8]) -> Result<Vec<u8>, Unopened> {
        let (header, payload) = alc::parse(packet).unwrap();
        let mut plain = Vec::new();
        let opened = ContentOpener::new(keys).open(Some(&public), &header, packet, payload, &mut plain)?;
        let (payload_id, symbols) = opened.unwrap();
        assert_eq!(payload_id, Some(PayloadId { sbn: 1, esi: 5 }));
        Ok(symbols.to_vec())
    }

    #[test]
    fn the_group_reads_the_content_and_nobody_else() {
        let packet = sealed(&mut Encryption::new(key(2, 9), Some(PUBLIC), 5));
        assert!(!packet.windows(6).any(|window| window == b"symbol"));
        assert_eq!(open(vec![key(2, 9)], PUBLIC, &packet), Ok(b"symbol".to_vec()));
        assert_eq!(open(vec![key(1, 1), key(2, 9)], PUBLIC, &packet), Ok(b"symbol".to_vec()));
        assert_eq!(open(vec![], PUBLIC, &packet), Err(Unopened::NoKey { epoch: 2 }));
        assert_eq!(open(vec![key(3, 9)], PUBLIC, &packet), Err(Unopened::NoKey { epoch: 2 }));
        assert_eq!(open(vec![key(2, 8)], PUBLIC, &packet), Err(Unopened::WrongKey { epoch: 2 }));
        // The content belongs to the sender: another key in the signature is another content key.
        assert_eq!(open(vec![key(2, 9)], [8; 32], &packet), Err(Unopened::WrongKey { epoch: 2 }));
    }

    /// The format, fixed: receivers of later versions must read the same bytes.
    #[test]
    fn an_encrypted_packet_is_these_bytes() {
        let mut encryption = Encryption::new(key(2, 9), Some(PUBLIC), 5);
        let packet = sealed(&mut encryption);
        let header = [0x10, 0x10, 8, 6, 1, 2, 0, 3, 0, 7, 0, 1, 98, 5, 2, 0];
        assert_eq!(packet[..16], header);
        assert_eq!(packet[16..32], [0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0]);
        let mut hasher = blake3::Hasher::new_derive_key("headwater content 1");
        hasher.update(&[9; 32]).update(&PUBLIC).update(&5_u64.to_be_bytes()).update(&[0; 4]);
        let cipher = Aes256Gcm::new(hasher.finalize().as_bytes().into());
        let mut associated = packet[..32].to_vec();
        associated[4..8].fill(0);
        let mut plain = packet[32..packet.len() - 16].to_vec();
        let tag = Tag::from_slice(&packet[packet.len() - 16..]);
        let nonce = Nonce::from_slice(&[0; 12]);
        cipher.decrypt_in_place_detached(nonce, &associated, &mut plain, tag).unwrap();
        assert_eq!(plain, [&[1, 0, 0, 5], b"symbol".as_slice()].concat());
        assert_eq!(sealed(&mut encryption)[31], 1, "each packet has a number of its own");
    }

    #[test]
    fn each_bit_is_protected_but_the_cci_and_the_authentication() {
        let packet = sealed(&mut Encryption::new(key(2, 9), Some(PUBLIC), 5));
        for bit in 0..8 * packet.len() {
            let mut changed = packet.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let Ok((header, payload)) = alc::parse(&changed) else { continue };
            let mut plain = Vec::new();
            let opened = ContentOpener::new(vec![key(2, 9)]).open(
                Some(&PUBLIC),
                &header,
                &changed,
                payload,
                &mut plain,
            );
            let is_cci = (4..8).contains(&(bit / 8));
            assert_eq!(opened.is_ok(), is_cci, "bit {bit}: {opened:?}");
        }
        let mut stamped = packet_with(&[226, 0, 0, 0]);
        let bytes = stamped.len();
        stamped.resize(bytes + ENCRYPTED_BYTES, 0);
        Encryption::new(key(2, 9), Some(PUBLIC), 5).seal(&mut stamped, bytes).unwrap();
        stamped[13..16].copy_from_slice(&[1, 2, 3]);
        assert_eq!(open(vec![key(2, 9)], PUBLIC, &stamped), Ok(b"symbol".to_vec()), "the lateness changes");
        let mut signed = packet.clone();
        signed.resize(packet.len() + 36, 0);
        let sender = headwater_wire::auth::SenderKey { public: PUBLIC, is_ephemeral: false };
        assert_eq!(sender.insert(&mut signed, packet.len()), Ok(signed.len()));
        assert_eq!(open(vec![key(2, 9)], PUBLIC, &signed), Ok(b"symbol".to_vec()));
    }

    #[test]
    fn a_receiver_with_a_key_takes_nothing_in_the_clear() {
        assert_eq!(open(vec![], PUBLIC, &packet()), Ok(b"symbol".to_vec()));
        assert_eq!(open(vec![key(2, 9)], PUBLIC, &packet()), Err(Unopened::Clear));
        // A packet without content has nothing to hide.
        let mut closing = packet()[..12].to_vec();
        let mut encryption = Encryption::new(key(2, 9), None, 5);
        assert_eq!(encryption.seal(&mut closing, 12), Some(12));
        let (header, payload) = alc::parse(&closing).unwrap();
        let mut plain = Vec::new();
        let opened = ContentOpener::new(vec![key(2, 9)]).open(None, &header, &closing, payload, &mut plain);
        assert_eq!(opened, Ok(Ok((None, [].as_slice()))));
    }

    #[test]
    fn content_keys_change_after_2_to_the_32_packets_and_secrets_are_not_shown() {
        let mut encryption = Encryption::new(key(2, 9), Some(PUBLIC), 5);
        encryption.number = u64::from(u32::MAX);
        let packets = [sealed(&mut encryption), sealed(&mut encryption)];
        for packet in &packets {
            assert_eq!(open(vec![key(2, 9)], PUBLIC, packet), Ok(b"symbol".to_vec()));
        }
        assert_eq!(encryption.number, (1 << 32) + 1);
        assert_eq!(format!("{:?}", key(2, 9)), "GroupKey { epoch: 2, .. }");
        assert!(!format!("{encryption:?}").contains("9, 9"));
        let mut full = packet();
        let bytes = full.len();
        assert_eq!(encryption.seal(&mut full, bytes), None, "no room");
    }

    #[test]
    fn key_schedules_are_wiped() {
        fn assert_is_wiped<T: zeroize::ZeroizeOnDrop>() {}
        assert_is_wiped::<aes::Aes256>();
    }
}
