//! Text forms of keys.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ssh_key::private::{Ed25519Keypair, Ed25519PrivateKey, KeypairData};
use ssh_key::{LineEnding, PrivateKey};
use zeroize::Zeroizing;

use super::{KeyError, PublicKey};

const KIND: &str = "ssh-ed25519";
/// DER of a PKCS#8 private key, in front of 32 bytes (RFC 8410).
const PKCS8: [u8; 16] = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
/// DER of a public key, in front of 32 bytes (RFC 8410).
const SPKI: [u8; 12] = [0x30, 0x2a, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 3, 0x21, 0];
/// Kinds of OpenSSH keys that are refused by name.
const OTHER_KINDS: [(&str, &str); 5] = [
    ("ssh-rsa", "RSA"),
    ("ssh-dss", "DSA"),
    ("ecdsa-sha2-", "ECDSA"),
    ("sk-ssh-ed25519", "Ed25519 on a security token"),
    ("sk-ecdsa-", "ECDSA on a security token"),
];

/// Returns OpenSSH's binary form of a public key.
pub(super) fn blob(key: &PublicKey) -> Vec<u8> {
    let mut blob = Vec::with_capacity(51);
    for part in [KIND.as_bytes(), key] {
        blob.extend(u32::try_from(part.len()).unwrap_or(u32::MAX).to_be_bytes());
        blob.extend(part);
    }
    blob
}

/// Returns a private key in OpenSSH's form.
pub(super) fn to_openssh(key: &ed25519_dalek::SigningKey) -> Option<Zeroizing<String>> {
    let pair = Ed25519Keypair {
        public: ssh_key::public::Ed25519PublicKey(key.verifying_key().to_bytes()),
        private: Ed25519PrivateKey::from_bytes(key.as_bytes()),
    };
    PrivateKey::new(KeypairData::Ed25519(pair), "headwater").ok()?.to_openssh(LineEnding::LF).ok()
}

/// Reads a private key.
pub(super) fn private(
    path: &Path,
    text: &str,
    passphrase: &mut dyn FnMut() -> Option<Zeroizing<String>>,
) -> Result<Zeroizing<[u8; 32]>, KeyError> {
    let what = || path.display().to_string();
    let kind = |kind: &str| KeyError::Kind { what: what(), kind: kind.to_owned() };
    let text = text.trim();
    if text.starts_with("-----BEGIN RSA PRIVATE KEY") {
        return Err(kind("RSA"));
    }
    if text.starts_with("-----BEGIN EC PRIVATE KEY") {
        return Err(kind("ECDSA"));
    }
    if text.starts_with("-----BEGIN PRIVATE KEY") {
        let der = Zeroizing::new(pem(text).ok_or_else(|| KeyError::Format { what: what() })?);
        return match der.strip_prefix(&PKCS8).and_then(|secret| secret.first_chunk::<32>()) {
            Some(secret) => Ok(Zeroizing::new(*secret)),
            None => Err(kind(other_der(&der))),
        };
    }
    if text.starts_with("-----BEGIN ENCRYPTED PRIVATE KEY") {
        return Err(kind("encrypted PKCS#8 (OpenSSH's form can be encrypted: ssh-keygen -p)"));
    }
    // The key's kind is in the clear even if the key is encrypted.
    let key = match PrivateKey::from_openssh(text) {
        Ok(key) => key,
        // The library reads neither keys of RSA nor of curves.
        Err(_) => {
            let bytes = Zeroizing::new(pem(text).unwrap_or_default());
            let name = |prefix: &str| bytes.windows(prefix.len()).any(|window| window == prefix.as_bytes());
            return Err(match OTHER_KINDS.iter().find(|(prefix, _)| name(prefix)) {
                Some((_, name)) => kind(name),
                None => KeyError::Format { what: what() },
            });
        }
    };
    if !matches!(key.algorithm(), ssh_key::Algorithm::Ed25519) {
        let name = key.algorithm().as_str().to_owned();
        return Err(kind(other_kind(&name).unwrap_or(&name)));
    }
    let key = if key.is_encrypted() {
        let wrong = || KeyError::Passphrase { path: path.to_owned() };
        let given = passphrase().ok_or_else(wrong)?;
        key.decrypt(given.as_bytes()).map_err(|_| wrong())?
    } else {
        key
    };
    match key.key_data() {
        KeypairData::Ed25519(pair) => Ok(Zeroizing::new(pair.private.to_bytes())),
        _ => Err(KeyError::Format { what: what() }),
    }
}

fn pem(text: &str) -> Option<Vec<u8>> {
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with("-----"));
    let text = Zeroizing::new(lines.collect::<String>());
    STANDARD.decode(text.as_bytes()).ok()
}

/// Names the kind of a DER key by the object identifiers of RSA and of curves.
fn other_der(der: &[u8]) -> &'static str {
    let has = |id: &[u8]| der.windows(id.len()).any(|window| window == id);
    if has(&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1]) {
        "RSA"
    } else if has(&[0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1]) {
        "ECDSA"
    } else {
        "unknown"
    }
}

fn other_kind(name: &str) -> Option<&'static str> {
    OTHER_KINDS.iter().find(|(prefix, _)| name.starts_with(prefix)).map(|(_, kind)| *kind)
}

/// Keys of a file or text, by line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustFile {
    /// Keys to trust now.
    pub keys: Vec<PublicKey>,
    /// Number of keys that are revoked, expired or not valid yet.
    pub left_out: usize,
}

/// Reads public keys: lines of OpenSSH's public keys or `allowed_signers`, a PEM key, or a key of minisign.
/// Lines marked `@revoked` win over other lines. `what` names the text in errors.
///
/// # Errors
/// If a key is of another kind than Ed25519, or no key is found.
pub fn parse_trusted(what: &str, text: &str) -> Result<TrustFile, KeyError> {
    let format = || KeyError::Format { what: what.to_owned() };
    if text.trim_start().starts_with("-----BEGIN PUBLIC KEY") {
        let der = pem(text.trim()).ok_or_else(format)?;
        let Some(key) = der.strip_prefix(&SPKI).and_then(|key| key.first_chunk::<32>()) else {
            return Err(KeyError::Kind { what: what.to_owned(), kind: other_der(&der).to_owned() });
        };
        return Ok(TrustFile { keys: vec![*key], left_out: 0 });
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (mut found, mut revoked) = (TrustFile::default(), Vec::new());
    for line in text.lines().map(str::trim) {
        if line.is_empty() || line.starts_with('#') || line.starts_with("untrusted comment:") {
            continue;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        if let Some(key) = minisign(words[0]).filter(|_| words.len() == 1) {
            found.keys.push(key);
            continue;
        }
        let Some(at) = words.iter().position(|word| *word == KIND) else {
            let kind = words.iter().find_map(|word| other_kind(word));
            return Err(match kind {
                Some(kind) => KeyError::Kind { what: what.to_owned(), kind: kind.to_owned() },
                None => format(),
            });
        };
        let key = words.get(at + 1).and_then(|word| public(word)).ok_or_else(format)?;
        if words[0] == "@revoked" {
            revoked.push(key);
        } else if !is_valid(&words[..at], now) {
            found.left_out += 1;
        } else {
            found.keys.push(key);
        }
    }
    let before = found.keys.len();
    found.keys.retain(|key| !revoked.contains(key));
    found.left_out += before - found.keys.len();
    if found.keys.is_empty() && found.left_out == 0 && revoked.is_empty() { Err(format()) } else { Ok(found) }
}

fn public(word: &str) -> Option<PublicKey> {
    let blob = STANDARD.decode(word).ok()?;
    let key = *blob.last_chunk::<32>()?;
    (self::blob(&key) == blob).then_some(key)
}

/// Reads a public key of minisign: algorithm, key number, key.
fn minisign(word: &str) -> Option<PublicKey> {
    let bytes = STANDARD.decode(word).ok()?;
    let key = bytes.strip_prefix(b"Ed")?.get(8..)?;
    key.try_into().ok()
}

/// Whether the options of a line of `allowed_signers` hold now.
fn is_valid(options: &[&str], now: u64) -> bool {
    options.iter().flat_map(|word| word.split(',')).all(|option| {
        let time = |text: &str| seconds(text.trim_matches('"'));
        if option.eq_ignore_ascii_case("cert-authority") {
            return false;
        }
        match option.split_once('=') {
            // An unreadable time trusts nothing.
            Some((name, text)) if name.eq_ignore_ascii_case("valid-before") => {
                time(text).is_some_and(|time| now < time)
            }
            Some((name, text)) if name.eq_ignore_ascii_case("valid-after") => {
                time(text).is_some_and(|time| now >= time)
            }
            _ => true,
        }
    })
}

/// Reads a time `YYYYMMDD[HHMM[SS]][Z]` as seconds of the Unix era, in UTC.
fn seconds(text: &str) -> Option<u64> {
    let text = text.strip_suffix('Z').unwrap_or(text);
    if !matches!(text.len(), 8 | 12 | 14) || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number =
        |at: usize, digits: usize| text.get(at..at + digits).map_or(Some(0), |part| part.parse().ok());
    let (year, month, day): (u64, u64, u64) = (number(0, 4)?, number(4, 2)?, number(6, 2)?);
    let (hour, minute, second): (u64, u64, u64) = (number(8, 2)?, number(10, 2)?, number(12, 2)?);
    if year < 1970 || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Days from the civil calendar, with years that begin in March.
    let (years, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * years + years / 4 - years / 100 + years / 400 + (153 * month + 2) / 5 + day - 1;
    Some((days - 719_468) * 86_400 + hour * 3_600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use headwater_proto::auth::Verifier as _;

    use super::*;

    const PUBLIC: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEB";

    #[test]
    fn lines_of_public_keys_are_read() {
        let key = [1; 32];
        assert_eq!(super::super::openssh(&key), PUBLIC);
        let read = |text: &str| parse_trusted("text", text);
        assert_eq!(read(PUBLIC).unwrap().keys, [key]);
        assert_eq!(read(&format!("# me\na@b,c@d namespaces=\"x\" {PUBLIC} note\n")).unwrap().keys, [key]);
        let expired = read(&format!("a@b valid-before=\"20200101\" {PUBLIC}")).unwrap();
        assert_eq!((expired.keys.len(), expired.left_out), (0, 1));
        assert_eq!(read(&format!("a@b valid-before=\"29990101\" {PUBLIC}")).unwrap().keys, [key]);
        let revoked = read(&format!("{PUBLIC}\n@revoked * {PUBLIC}")).unwrap();
        assert_eq!((revoked.keys.len(), revoked.left_out), (0, 1));
        let minisign = STANDARD.encode([b"Ed".as_slice(), &[7; 8], &key].concat());
        assert_eq!(
            read(&format!("untrusted comment: minisign public key\n{minisign}\n")).unwrap().keys,
            [key]
        );
        let pem = STANDARD.encode([SPKI.as_slice(), &key].concat());
        let pem = format!("-----BEGIN PUBLIC KEY-----\n{pem}\n-----END PUBLIC KEY-----\n");
        assert_eq!(read(&pem).unwrap().keys, [key]);
    }

    /// Public key of minisign's author, from minisign's documentation, with a signature of the text "test".
    #[test]
    fn a_key_of_minisign_is_read() {
        let text = "untrusted comment: minisign public key\n\
                    RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3\n";
        let [key] = parse_trusted("text", text).unwrap().keys[..] else { panic!("one key") };
        let signature = STANDARD
            .decode(
                "RWQf6LRCGA9i59SLOFxz6NxvASXDJeRtuZykwQepbDEGt87ig1BNpWaVWuNrm73YiIiJbq71Wi+dP9eKL8OC351vwIasSSbXxwA=",
            )
            .unwrap();
        // Algorithm and key number come first.
        let signature = signature[10..].try_into().unwrap();
        assert!(super::super::Ed25519::default().verify(&key, b"test", &signature));
    }

    #[test]
    fn an_encrypted_key_of_openssh_needs_its_passphrase() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let mut ssh_keygen = std::process::Command::new("ssh-keygen");
        ssh_keygen.args(["-q", "-t", "ed25519", "-N", "secret", "-f"]).arg(&path);
        assert!(ssh_keygen.status().unwrap().success());
        let load = |given: Option<&str>| {
            let given = given.map(|given| Zeroizing::new(given.to_owned()));
            super::super::SenderKey::load(&path, &mut || given.clone())
        };
        for wrong in [None, Some("Secret")] {
            assert!(matches!(load(wrong), Err(KeyError::Passphrase { .. })), "{wrong:?}");
        }
        let public = std::fs::read_to_string(folder.path().join("key.pub")).unwrap();
        let key = load(Some("secret")).unwrap();
        assert_eq!(parse_trusted("public", &public).unwrap().keys, [key.public()]);
        assert!(!format!("{key:?}").contains("secret"));
    }

    #[test]
    fn other_kinds_are_refused_by_name() {
        for (text, kind) in [
            ("ssh-rsa AAAAB3Nza me", "RSA"),
            ("me ecdsa-sha2-nistp256 AAAA", "ECDSA"),
            ("sk-ssh-ed25519@openssh.com AAAA", "Ed25519 on a security token"),
        ] {
            let error = parse_trusted("text", text).unwrap_err().to_string();
            assert!(error.contains(kind), "{error}");
        }
        assert!(matches!(parse_trusted("text", "nothing"), Err(KeyError::Format { .. })));
        assert!(matches!(parse_trusted("text", ""), Err(KeyError::Format { .. })));
        let path = Path::new("key");
        let rsa = private(path, "-----BEGIN RSA PRIVATE KEY-----\n", &mut || None).unwrap_err();
        assert!(rsa.to_string().contains("RSA"), "{rsa}");
    }

    #[test]
    fn times_are_seconds_of_the_unix_era() {
        assert_eq!(seconds("19700101"), Some(0));
        assert_eq!(seconds("20261127050607Z"), Some(1_795_755_967));
        assert_eq!(seconds("20240229"), Some(1_709_164_800));
        assert_eq!((seconds("2024"), seconds("20241301"), seconds("abcdefgh")), (None, None, None));
    }
}
