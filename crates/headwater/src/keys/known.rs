//! Senders that were heard on a group before: group, key, and start of the newest session.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::{KeyError, PublicKey, openssh, parse_trusted};
use crate::system::files::{DirBuilderExt, OpenOptionsExt};

/// Longest file of known senders.
const FILE_BYTES_MAX: usize = 1 << 20;

/// Sender of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownSender {
    /// Public key.
    pub key: PublicKey,
    /// Start of the newest session heard, in seconds of the NTP era.
    pub started: u32,
    /// Public key that the sender has announced for later sessions.
    pub next: Option<PublicKey>,
}

/// File of known senders, a line for each: group and port, start of the newest session, public key, and the
/// next public key, if announced.
#[derive(Clone, Debug)]
pub struct KnownSenders {
    path: PathBuf,
}

impl KnownSenders {
    /// Uses this file, which need not exist.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Returns the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the sender of a group.
    ///
    /// # Errors
    /// If the file exists and cannot be read, or the group's line has no key.
    pub fn get(&self, group: SocketAddr) -> Result<Option<KnownSender>, KeyError> {
        let group = group.to_string();
        let text = self.read()?;
        let Some(line) = text.lines().find(|line| line.split_whitespace().next() == Some(&group)) else {
            return Ok(None);
        };
        let mut words = line.splitn(3, ' ').skip(1);
        let (started, key) = (words.next().and_then(|word| word.parse().ok()), words.next());
        let what = || format!("{} (the line of {group})", self.path.display());
        let (Some(started), Some(key)) = (started, key) else {
            return Err(KeyError::Format { what: what() });
        };
        let words: Vec<&str> = key.split_whitespace().collect();
        let lines: Vec<String> = words.chunks(2).map(|words| words.join(" ")).collect();
        let keys = parse_trusted(&what(), &lines.join("\n"))?.keys;
        Ok(keys.first().map(|key| KnownSender { key: *key, started, next: keys.get(1).copied() }))
    }

    /// Records the sender of a group, in place of an earlier line. Of sessions of the same key, the newest
    /// start and the last announced key stay.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn put(&self, group: SocketAddr, sender: KnownSender) -> Result<(), KeyError> {
        let known = self.get(group).ok().flatten();
        let sender = match known.filter(|known| known.key == sender.key) {
            Some(known) => KnownSender {
                started: known.started.max(sender.started),
                next: sender.next.or(known.next),
                ..sender
            },
            None => sender,
        };
        if known == Some(sender) {
            return Ok(());
        }
        let name = group.to_string();
        let mut text: String = self
            .read()?
            .lines()
            .filter(|line| line.split_whitespace().next() != Some(&name))
            .flat_map(|line| [line, "\n"])
            .collect();
        let next = sender.next.map_or_else(String::new, |next| format!(" {}", openssh(&next)));
        text.push_str(&format!("{name} {} {}{next}\n", sender.started, openssh(&sender.key)));
        self.write(&text).map_err(|source| KeyError::Record { path: self.path.clone(), source })
    }

    fn read(&self) -> Result<String, KeyError> {
        match fs::read_to_string(&self.path) {
            Ok(text) if text.len() <= FILE_BYTES_MAX => Ok(text),
            Ok(_) => Err(KeyError::Record {
                path: self.path.clone(),
                source: io::Error::other("the file is longer than 1 MiB"),
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
            Err(source) => Err(KeyError::Record { path: self.path.clone(), source }),
        }
    }

    /// Replaces the file by another file, so that a reader never sees a part.
    fn write(&self, text: &str) -> io::Result<()> {
        if let Some(folder) = self.path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        let mut new = self.path.as_os_str().to_owned();
        new.push(format!(".{}", std::process::id()));
        let mut options = fs::OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        io::Write::write_all(&mut file, text.as_bytes())?;
        fs::rename(&new, &self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_session_of_a_group_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let known = KnownSenders::new(folder.path().join("new/known_senders"));
        let [one, other]: [SocketAddr; 2] =
            ["232.1.1.1:7287", "[ff3e::1]:7287"].map(|at| at.parse().unwrap());
        assert_eq!(known.get(one).unwrap(), None);
        let sender = |key, started| KnownSender { key: [key; 32], started, next: None };
        known.put(one, sender(1, 10)).unwrap();
        known.put(other, sender(2, 20)).unwrap();
        known.put(one, sender(1, 9)).unwrap();
        assert_eq!(known.get(one).unwrap(), Some(sender(1, 10)), "an older session changes nothing");
        known.put(one, sender(1, 11)).unwrap();
        assert_eq!(known.get(one).unwrap(), Some(sender(1, 11)));
        assert_eq!(known.get(other).unwrap(), Some(sender(2, 20)));
        assert_eq!(fs::read_to_string(known.path()).unwrap().lines().count(), 2);

        let announcing = KnownSender { next: Some([3; 32]), ..sender(1, 11) };
        known.put(one, announcing).unwrap();
        assert_eq!(known.get(one).unwrap(), Some(announcing));
        known.put(one, sender(1, 12)).unwrap();
        assert_eq!(known.get(one).unwrap(), Some(KnownSender { started: 12, ..announcing }));
        known.put(one, sender(3, 13)).unwrap();
        assert_eq!(known.get(one).unwrap(), Some(sender(3, 13)), "the next key has taken the place");
    }
}
