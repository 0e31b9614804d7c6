//! Keys of senders: a [`SenderKey`] signs a session, and a [`Trust`] states the keys that a receiver accepts.
//!
//! [`GroupKeys`] encrypt the content of a session for the members of a group.
//!
//! Only Ed25519 keys sign. A private key is read from a file that the owner alone can read (OpenSSH, also
//! with a passphrase, or PKCS#8), never printed, and wiped from memory at the end. Public keys are read in
//! the forms of OpenSSH (also as `allowed_signers`), PEM and minisign.

mod format;
mod group;
mod known;
mod trust;

use std::cell::Cell;
use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use ed25519_dalek::Signer as _;
use headwater_proto::auth::{SIGNATURE_BYTES, Signer, Signing, SigningConfig, Verifier};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::clock::ntp_now;
use crate::net::OpenError;
use crate::system;
use crate::system::files::{DirBuilderExt, MetadataExt};

pub use format::{TrustFile, parse_trusted};
pub use group::GroupKeys;
pub use headwater_proto::auth::PublicKey;
pub use headwater_proto::crypt::{GroupKey, Unopened};
pub use known::{KnownSender, KnownSenders};
pub(crate) use trust::check_fdt;
pub use trust::{Trust, TrustedKey};

/// Longest file with a private key.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// Error of a key or of a file with keys.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file cannot be read or written.
    #[error("cannot use the key file '{}'", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The record of known senders cannot be read or written.
    #[error(
        "cannot use the record of known senders '{}'; move it away to know the senders anew from their next sessions",
        path.display()
    )]
    Record {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The file does not exist.
    #[error("there is no key file '{}'; check the name, or make a key: headwater keygen (a group's: --group)", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// The file for a new key exists.
    #[error(
        "the key file '{}' exists already, and no key is overwritten; name another file, or remove this one",
        path.display()
    )]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// Other users can read the private key.
    #[error(
        "the key file '{}' can be read by others (mode {mode:03o}); its owner alone may: chmod 600 '{}'",
        path.display(), path.display()
    )]
    Readable {
        /// The file.
        path: PathBuf,
        /// Permissions.
        mode: u32,
    },
    /// The key is of another kind.
    #[error("'{what}' holds a key of kind {kind}; only Ed25519 keys sign sessions: ssh-keygen -t ed25519")]
    Kind {
        /// File or text of the key.
        what: String,
        /// Kind of the key.
        kind: String,
    },
    /// The private key is encrypted, and the passphrase is missing or wrong.
    #[error(
        "the private key '{}' is encrypted, and the passphrase is missing or wrong; start this command on a \
         terminal, which asks for it, or store the key without: ssh-keygen -p -N '' -f '{}'",
        path.display(), path.display()
    )]
    Passphrase {
        /// The file.
        path: PathBuf,
    },
    /// No group keys.
    #[error(
        "'{}' holds no group keys: one or two lines of different epochs, as headwater keygen --group writes them",
        path.display()
    )]
    GroupFormat {
        /// The file.
        path: PathBuf,
    },
    /// No key of a known form.
    #[error("'{what}' holds no Ed25519 key of a known form (OpenSSH, PEM or minisign)")]
    Format {
        /// File or text.
        what: String,
    },
}

impl KeyError {
    /// Returns the error of a system call on a key file.
    fn of(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::NotFound => Self::Missing { path },
            io::ErrorKind::AlreadyExists => Self::Exists { path },
            _ => Self::Io { path, source },
        }
    }
}

/// Reads a file that the owner alone can read.
fn read_private(path: &Path) -> Result<Zeroizing<String>, KeyError> {
    let file = File::open(path).map_err(|error| KeyError::of(path, error))?;
    let mode = file.metadata().map_err(|error| KeyError::of(path, error))?.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(KeyError::Readable { path: path.to_owned(), mode });
    }
    let mut text = Zeroizing::new(String::new());
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(|error| KeyError::of(path, error))?;
    Ok(text)
}

/// Private key of a sender. The key is wiped from memory with the last copy.
#[derive(Clone)]
pub struct SenderKey {
    key: Arc<ed25519_dalek::SigningKey>,
    is_ephemeral: bool,
    /// File with the start of the key's latest session.
    started: Option<PathBuf>,
}

impl fmt::Debug for SenderKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SenderKey").field("public", &fingerprint(&self.public())).finish_non_exhaustive()
    }
}

impl SenderKey {
    /// Draws a key for one session. Receivers do not remember the key.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn ephemeral() -> Result<Self, OpenError> {
        let secret = Zeroizing::new(system::random_bytes::<32>()?);
        Ok(Self { is_ephemeral: true, ..Self::of(&secret) })
    }

    fn of(secret: &[u8; 32]) -> Self {
        let key = Arc::new(ed25519_dalek::SigningKey::from_bytes(secret));
        Self { key, is_ephemeral: false, started: None }
    }

    /// Reads a private key. `passphrase` is called if the key is encrypted.
    ///
    /// # Errors
    /// If the file cannot be read, other users can read the file, or the file holds no Ed25519 key.
    pub fn load(
        path: &Path,
        passphrase: &mut dyn FnMut() -> Option<Zeroizing<String>>,
    ) -> Result<Self, KeyError> {
        let text = read_private(path)?;
        let secret = format::private(path, &text, passphrase)?;
        let mut started = path.as_os_str().to_owned();
        started.push(".started");
        // A process that confines itself later may write the file, but not make the file.
        let _made = OpenOptions::new().append(true).create(true).open(&started);
        Ok(Self { started: Some(started.into()), ..Self::of(&secret) })
    }

    /// Makes a key and writes the key to a new file that the owner alone can read, in OpenSSH's form; the
    /// public key is written beside it, with `.pub` behind the name. Folders are made.
    ///
    /// # Errors
    /// If a file exists already or cannot be written.
    pub fn create(path: &Path) -> Result<Self, KeyError> {
        let io = |source| KeyError::of(path, source);
        let secret =
            Zeroizing::new(system::random_bytes::<32>().map_err(|error| io(io::Error::other(error)))?);
        let key = Self::of(&secret);
        let text =
            format::to_openssh(&key.key).ok_or_else(|| io(io::Error::other("the key has no text form")))?;
        write_private(path, &text)?;
        let mut public = path.as_os_str().to_owned();
        public.push(".pub");
        fs::write(&public, format!("{}\n", openssh(&key.public())))
            .map_err(|source| KeyError::Io { path: public.into(), source })?;
        Self::load(path, &mut || None)
    }

    /// Returns the public key.
    pub fn public(&self) -> PublicKey {
        self.key.verifying_key().to_bytes()
    }

    /// Whether the key is made for one session.
    pub fn is_ephemeral(&self) -> bool {
        self.is_ephemeral
    }

    /// Returns the file with the start of the key's latest session, which each session writes.
    pub fn started_file(&self) -> Option<&Path> {
        self.started.as_deref()
    }

    /// Begins to sign a session: the session starts after each earlier session of the key.
    pub(crate) fn signing(&self, tsi: u32, is_on_request: bool) -> Result<Signing, OpenError> {
        let secret = system::random_bytes::<32>()?;
        let config = SigningConfig::new(tsi.into(), self.next_started(), 1, secret)
            .with_request(is_on_request)
            .with_ephemeral_key(self.is_ephemeral);
        Ok(Signing::new(config, Box::new(self.clone())))
    }

    /// Returns the start of a session that begins now, and writes the start beside the key, if possible.
    fn next_started(&self) -> u32 {
        let Some(path) = &self.started else { return ntp_now() };
        let last = fs::read_to_string(path).ok().and_then(|text| text.trim().parse::<u32>().ok());
        let started = ntp_now().max(last.map_or(0, |last| last.saturating_add(1)));
        if let Err(error) = fs::write(path, format!("{started}\n")) {
            tracing::debug!("cannot write '{}': {error}", path.display());
        }
        started
    }
}

impl Signer for SenderKey {
    fn public_key(&self) -> PublicKey {
        self.public()
    }

    fn sign(&self, message: &[u8]) -> [u8; SIGNATURE_BYTES] {
        self.key.sign(message).to_bytes()
    }
}

/// Writes a new file that the owner alone can read. Folders are made. Another process sees the whole file or
/// none.
fn write_private(path: &Path, text: &str) -> Result<(), KeyError> {
    let io = |source| KeyError::of(path, source);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(io)?;
    // The mode of a temporary file is 0600.
    let mut file = tempfile::Builder::new().prefix(".key").tempfile_in(folder).map_err(io)?;
    file.write_all(text.as_bytes()).and_then(|()| file.as_file().sync_all()).map_err(io)?;
    file.persist_noclobber(path).map(drop).map_err(|error| io(error.error))
}

/// Check of Ed25519 signatures. Keeps the point of the key used last: the point of a key takes a tenth of the
/// time of a check.
#[derive(Debug, Default)]
pub(crate) struct Ed25519(Cell<Option<ed25519_dalek::VerifyingKey>>);

impl Verifier for Ed25519 {
    fn verify(&self, key: &PublicKey, message: &[u8], signature: &[u8; SIGNATURE_BYTES]) -> bool {
        let kept = self.0.get().filter(|kept| kept.as_bytes() == key);
        let Some(key) = kept.or_else(|| ed25519_dalek::VerifyingKey::from_bytes(key).ok()) else {
            return false;
        };
        self.0.set(Some(key));
        key.verify_strict(message, &ed25519_dalek::Signature::from_bytes(signature)).is_ok()
    }
}

/// Returns the fingerprint of a key, as `ssh-keygen -l` shows it.
pub fn fingerprint(key: &PublicKey) -> String {
    format!("SHA256:{}", STANDARD_NO_PAD.encode(Sha256::digest(format::blob(key))))
}

/// Returns a public key as OpenSSH writes it.
pub fn openssh(key: &PublicKey) -> String {
    format!("ssh-ed25519 {}", base64::engine::general_purpose::STANDARD.encode(format::blob(key)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_of_several_keys_are_checked_in_any_order() {
        let keys = [1, 2].map(|byte| SenderKey::of(&[byte; 32]));
        let check = Ed25519::default();
        for (signing, named) in [(0, 0), (0, 1), (1, 1), (1, 0), (0, 0)] {
            let signature = keys[signing].sign(b"message");
            assert_eq!(check.verify(&keys[named].public(), b"message", &signature), signing == named);
            assert!(!check.verify(&keys[named].public(), b"another message", &signature));
        }
    }

    /// Services of one machine start together, and share the default key.
    #[test]
    fn a_key_that_is_being_made_is_never_seen_in_part() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..20 {
            let path = folder.path().join(format!("folder/{number}"));
            let make_or_load = || match SenderKey::create(&path) {
                Ok(key) => key.public(),
                Err(_) => SenderKey::load(&path, &mut || None).unwrap().public(),
            };
            let keys = std::thread::scope(|scope| {
                let threads = [(); 8].map(|()| scope.spawn(make_or_load));
                threads.map(|thread| thread.join().unwrap())
            });
            assert!(keys.iter().all(|key| *key == keys[0]));
        }
        let names = fs::read_dir(folder.path().join("folder")).unwrap().count();
        assert_eq!(names, 3 * 20, "a private key, a public key and a start for each");
    }
}
