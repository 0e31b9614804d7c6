//! Group keys: the secret by which a group's content is encrypted.
//!
//! A file has one or two lines `headwater-group-key EPOCH KEY`: the epoch is a number from 1 to 255, the key
//! 32 bytes in base64. A sender encrypts by the last key. A receiver takes content of both, so that a new key
//! can be handed out before the sender uses the key.

use std::fs;
use std::io;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use headwater_proto::crypt::{Encryption, GROUP_KEYS_MAX, GroupKey};
use headwater_proto::roster::ReportKey;
use zeroize::Zeroizing;

use super::{KeyError, SenderKey, read_private};
use crate::net::OpenError;
use crate::system;

const KIND: &str = "headwater-group-key";

/// Keys of a group: one, or two while a new key is handed out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupKeys {
    /// At least one, the newest last.
    keys: Vec<GroupKey>,
}

impl GroupKeys {
    /// Reads a file of keys.
    ///
    /// # Errors
    /// If the file cannot be read, other users can read the file, or the file holds no group keys.
    pub fn load(path: &Path) -> Result<Self, KeyError> {
        let text = read_private(path)?;
        Self::parse(&text).ok_or_else(|| KeyError::GroupFormat { path: path.to_owned() })
    }

    /// Makes a key and writes the key to a new file that the owner alone can read. Folders are made.
    ///
    /// # Errors
    /// If the file exists already or cannot be written.
    pub fn create(path: &Path) -> Result<Self, KeyError> {
        let keys = Self { keys: vec![draw(path, 1)?] };
        keys.write(path)?;
        Ok(keys)
    }

    /// Adds the next key to a file, and drops all but the newest key before.
    ///
    /// # Errors
    /// As for [`GroupKeys::load`], or if the file cannot be written.
    pub fn add_next(path: &Path) -> Result<Self, KeyError> {
        let newest = Self::load(path)?.newest().clone();
        let next = draw(path, newest.epoch() % u8::MAX + 1)?;
        let keys = Self { keys: vec![newest, next] };
        let mut new = path.as_os_str().to_owned();
        new.push(".new");
        // An earlier call that was killed may have left the file.
        let _left = fs::remove_file(&new);
        keys.write(Path::new(&new))?;
        fs::rename(&new, path).map_err(|error| KeyError::of(path, error))?;
        Ok(keys)
    }

    /// Returns the key by which a sender encrypts.
    pub fn newest(&self) -> &GroupKey {
        &self.keys[self.keys.len() - 1]
    }

    /// Returns the numbers of the keys.
    pub fn epochs(&self) -> impl Iterator<Item = u8> {
        self.keys.iter().map(GroupKey::epoch)
    }

    /// Returns all keys, the newest last.
    pub(crate) fn to_vec(&self) -> Vec<GroupKey> {
        self.keys.clone()
    }

    /// Returns the keys that authenticate reports, the newest last. Receivers get a new key first, and use
    /// the oldest key until the sender has the new key, too.
    pub(crate) fn report_keys(&self) -> Vec<ReportKey> {
        self.keys.iter().map(|key| ReportKey::new(key.secret())).collect()
    }

    /// Begins to encrypt a session that `signing` signs.
    pub(crate) fn encryption(&self, signing: Option<&SenderKey>) -> Result<Encryption, OpenError> {
        let salt = u64::from_ne_bytes(system::random_bytes()?);
        Ok(Encryption::new(self.newest().clone(), signing.map(SenderKey::public), salt))
    }

    fn parse(text: &str) -> Option<Self> {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let keys = lines.map(parse_line).collect::<Option<Vec<_>>>()?;
        let is_sound = (1..=GROUP_KEYS_MAX).contains(&keys.len())
            && keys[1..].iter().all(|key| key.epoch() != keys[0].epoch());
        is_sound.then_some(Self { keys })
    }

    fn write(&self, path: &Path) -> Result<(), KeyError> {
        let mut text = Zeroizing::new(String::new());
        for key in &self.keys {
            let secret = Zeroizing::new(STANDARD.encode(key.secret()));
            for part in [KIND, " ", &key.epoch().to_string(), " ", &secret, "\n"] {
                text.push_str(part);
            }
        }
        super::write_private(path, &text)
    }
}

fn draw(path: &Path, epoch: u8) -> Result<GroupKey, KeyError> {
    let secret = system::random_bytes().map_err(|error| KeyError::of(path, io::Error::other(error)))?;
    Ok(GroupKey::new(epoch, Zeroizing::new(secret)))
}

fn parse_line(line: &str) -> Option<GroupKey> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let &[KIND, epoch, secret] = &words[..] else { return None };
    let epoch = epoch.parse().ok().filter(|epoch| *epoch > 0)?;
    let secret = Zeroizing::new(STANDARD.decode(secret).ok()?);
    Some(GroupKey::new(epoch, Zeroizing::new(secret.as_slice().try_into().ok()?)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn keys_are_made_read_and_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/group.key");
        let made = GroupKeys::create(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(GroupKeys::load(&path).unwrap(), made);
        assert!(matches!(GroupKeys::create(&path), Err(KeyError::Exists { .. })), "no key is overwritten");
        let next = GroupKeys::add_next(&path).unwrap();
        assert_eq!(next.epochs().collect::<Vec<_>>(), [1, 2]);
        assert_eq!((&next.keys[0], next.newest()), (made.newest(), &next.keys[1]));
        // A call that was killed has left a part of its file.
        let left = path.with_extension("key.new");
        fs::write(&left, KIND).unwrap();
        let after = GroupKeys::add_next(&path).unwrap();
        assert!(!left.exists());
        assert_eq!(after.epochs().collect::<Vec<_>>(), [2, 3]);
        assert_eq!(GroupKeys::load(&path).unwrap(), after);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(GroupKeys::load(&path), Err(KeyError::Readable { mode: 0o644, .. })));
    }

    #[test]
    fn other_files_hold_no_group_keys() {
        let secret = STANDARD.encode([7; 32]);
        let line = |epoch: &str| format!("{KIND} {epoch} {secret}\n");
        let parsed = GroupKeys::parse(&format!("# ours\n\n{}{}", line("255"), line("1"))).unwrap();
        assert_eq!(parsed.epochs().collect::<Vec<_>>(), [255, 1]);
        for wrong in [
            String::new(),
            line("0"),
            line("256"),
            line("1") + &line("1"),
            line("1") + &line("2") + &line("3"),
            format!("{KIND} 1 {}", STANDARD.encode([7; 31])),
            "ssh-ed25519 AAAA".to_owned(),
        ] {
            assert_eq!(GroupKeys::parse(&wrong), None, "{wrong}");
        }
        assert!(!format!("{parsed:?}").contains("7, 7"), "secrets are not shown");
    }
}
