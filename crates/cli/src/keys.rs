//! Keys of the command line: files of keys, `headwater keygen`, and the senders that a receiver knows.

use std::cell::Cell;
use std::env;
use std::fs;
use std::io::{self, BufRead, IsTerminal, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use headwater::keys::{
    GroupKeys, KeyError, KnownSender, KnownSenders, PublicKey, SenderKey, Trust, TrustedKey, Unopened,
    fingerprint, openssh, parse_trusted,
};
use headwater::{ReceiveSummary, ReceiveUpdate};
use zeroize::Zeroizing;

use crate::args::{GROUP_DEFAULT, KeygenArgs, SignArgs, TrustArgs};
use crate::exit::{Exit, Failure, OrExit};
use crate::system::without_echo;

/// Most seconds that the clocks of two keys' machines may differ. A session that begins in the second of the
/// session before counts as a second later, too.
const CLOCKS_APART: u32 = 300;
/// Variable that names a private key.
const KEY_VARIABLE: &str = "HEADWATER_KEY";

/// Returns the folder of keys; `None` without a home.
fn folder() -> Option<PathBuf> {
    headwater_folder("XDG_CONFIG_HOME", ".config")
}

/// Returns the folder with the record of known senders, apart from private keys: a confined receiver may
/// write there. `None` without a home.
pub fn state_folder() -> Option<PathBuf> {
    headwater_folder("XDG_STATE_HOME", ".local/state")
}

/// Returns this program's folder below the folder that a variable names, or below a folder of the home.
/// Windows sets no HOME, and the system knows the home.
fn headwater_folder(variable: &str, below_home: &str) -> Option<PathBuf> {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || absolute("HOME").or_else(|| env::home_dir().filter(|_| cfg!(windows)));
    let parent = absolute(variable).or_else(|| home().map(|home| home.join(below_home)));
    parent.map(|parent| parent.join("headwater"))
}

/// Makes a key.
pub fn keygen(args: &KeygenArgs) -> Result<Exit, Failure> {
    if let Some(path) = args.file.as_deref().filter(|_| args.group) {
        return group_keygen(path, args.next);
    }
    let path = match &args.file {
        Some(path) => path.clone(),
        None => default_key().ok_or_else(|| {
            Failure::new(
                Exit::Usage,
                "there is no home folder for the key; name a file: headwater keygen FILE",
            )
        })?,
    };
    let key = SenderKey::create(&path).map_err(failure)?;
    let mut out = io::stdout().lock();
    let written = writeln!(out, "{}", openssh(&key.public()));
    written.or_exit(Exit::Other, "cannot write to standard output")?;
    eprintln!("wrote {} and {0}.pub, {}", path.display(), fingerprint(&key.public()));
    Ok(Exit::Ok)
}

/// Makes a group key, or adds the next key to a file.
fn group_keygen(path: &Path, is_next: bool) -> Result<Exit, Failure> {
    let keys = if is_next { GroupKeys::add_next(path) } else { GroupKeys::create(path) };
    let keys = keys.map_err(failure)?;
    let epochs: Vec<String> = keys.epochs().map(|epoch| epoch.to_string()).collect();
    eprintln!(
        "wrote {} with the key of epoch {}; copy the file to each member by a way that nobody else can read, \
         to senders last",
        path.display(),
        epochs.join(" and ")
    );
    Ok(Exit::Ok)
}

/// Reads the file of `--group-key`.
pub fn group_key(path: Option<&Path>) -> Result<Option<GroupKeys>, Failure> {
    path.map(GroupKeys::load).transpose().map_err(failure)
}

/// Returns the reason why the content of a session is not taken, and advice.
pub fn not_opened(reason: Unopened, has_group_key: bool) -> String {
    match reason {
        Unopened::NoKey { epoch } if has_group_key => format!(
            "is encrypted by the group key of epoch {epoch}, which the file of --group-key does not hold; get the \
             current file from whoever runs the sender"
        ),
        Unopened::NoKey { epoch } => format!(
            "is encrypted by a group key (epoch {epoch}); get its file from whoever runs the sender, and receive with \
             --group-key FILE"
        ),
        Unopened::WrongKey { epoch } => format!(
            "is encrypted, and the key of epoch {epoch} in the file of --group-key does not decrypt it; get this \
             group's file from whoever runs the sender"
        ),
        Unopened::Clear => {
            "is not encrypted, and with --group-key nothing in the clear is received; leave --group-key out"
                .into()
        }
    }
}

fn default_key() -> Option<PathBuf> {
    folder().map(|folder| folder.join("id_ed25519"))
}

impl SignArgs {
    /// Whether the user has named no key, and has not refused to sign.
    pub fn is_default(&self) -> bool {
        !self.no_sign && self.sign.is_none() && env::var_os(KEY_VARIABLE).is_none()
    }
}

/// Returns the key that signs a session; `None` for `--no-sign`. Without a home that can be written to, a key
/// for this session alone. A rehearsal makes no file.
pub fn signing_key(args: &SignArgs, is_rehearsal: bool) -> Result<Option<SenderKey>, Failure> {
    if args.no_sign {
        return Ok(None);
    }
    let named = args.sign.clone().or_else(|| env::var_os(KEY_VARIABLE).map(PathBuf::from));
    if let Some(path) = named {
        return load(&path).map(Some);
    }
    let ephemeral = || SenderKey::ephemeral().or_exit(Exit::Other, "cannot make a key").map(Some);
    let Some(path) = default_key() else { return ephemeral() };
    if path.exists() {
        return load(&path).map(Some);
    }
    if is_rehearsal {
        return ephemeral();
    }
    match SenderKey::create(&path) {
        Ok(key) => {
            tracing::info!("made the key {}", path.display());
            Ok(Some(key))
        }
        // Another sender has made the key meanwhile.
        Err(_) if path.exists() => load(&path).map(Some),
        Err(error) => {
            tracing::info!(
                "{error}: the session is signed by a key of its own, which receivers do not remember"
            );
            ephemeral()
        }
    }
}

/// Returns the file that a session signed by the key writes, and makes the file.
pub fn written(key: Option<&SenderKey>) -> Option<PathBuf> {
    let file = key?.started_file()?;
    fs::OpenOptions::new().append(true).create(true).open(file).ok()?;
    Some(file.to_owned())
}

fn load(path: &Path) -> Result<SenderKey, Failure> {
    let mut ask = || passphrase(path);
    SenderKey::load(path, &mut ask).map_err(failure)
}

/// Asks for a passphrase on the terminal, without echo.
fn passphrase(path: &Path) -> Option<Zeroizing<String>> {
    let input = io::stdin();
    if !input.is_terminal() {
        return None;
    }
    eprint!("passphrase of {}: ", path.display());
    let mut line = Zeroizing::new(String::new());
    let read = without_echo(|| input.lock().read_line(&mut line))?;
    eprintln!();
    read.ok()?;
    Some(Zeroizing::new(line.trim_end_matches(['\r', '\n']).to_owned()))
}

fn failure(error: KeyError) -> Failure {
    let exit = match &error {
        KeyError::Io { .. } | KeyError::Record { .. } | KeyError::Exists { .. } => Exit::Disk,
        _ => Exit::Usage,
    };
    Failure::of(exit, error)
}

/// Senders that a receiver accepts, and the record of known senders.
pub struct TrustedSenders {
    /// Keys that the session may have.
    pub trust: Trust,
    group: SocketAddr,
    known: Option<KnownSenders>,
    /// Sender that the group is known to have, if the receiver therefore refuses other senders.
    expected: Option<PublicKey>,
    /// Whether the user has told the senders to accept.
    pub is_told: bool,
    /// Verified sender of the session.
    verified: Cell<Option<KnownSender>>,
}

impl TrustedSenders {
    /// Reads the options, and the known sender of the group.
    pub fn new(args: &TrustArgs, group: SocketAddr) -> Result<Self, Failure> {
        let known = state_folder().map(|folder| KnownSenders::new(folder.join("known_senders")));
        // The default group is everybody's.
        let is_everybodys = group.to_string() == GROUP_DEFAULT;
        let known = known.filter(|_| !is_everybodys);
        let is_told = args.unsigned || !args.trust.is_empty();
        let new = |trust, known, expected| {
            Ok(Self { trust, group, known, expected, is_told, verified: Cell::new(None) })
        };
        if args.unsigned {
            return new(Trust::Unchecked, None, None);
        }
        if args.trust.iter().any(|text| text == "any") {
            return new(Trust::First, None, None);
        }
        if known.is_none() && !is_everybodys {
            tracing::warn!("there is no home folder: senders are not remembered; set HOME or XDG_STATE_HOME");
        }
        let sender = match &known {
            Some(known) => known.get(group).map_err(failure)?,
            None => None,
        };
        // A session of the next key is later than each session of the key that has announced the next key: a
        // recording of an earlier one would take the place of the known sender.
        let trusted = |key: PublicKey| {
            let known = sender.filter(|_| !args.allow_older);
            let started_min = match known {
                Some(known) if known.key == key => known.started,
                Some(known) if known.next == Some(key) => known.started.saturating_sub(CLOCKS_APART),
                _ => 0,
            };
            TrustedKey { key, started_min }
        };
        if !args.trust.is_empty() {
            let keys = public_keys("--trust", &args.trust)?.into_iter().map(trusted).collect();
            return new(Trust::Keys(keys), known, None);
        }
        match sender {
            Some(KnownSender { key, next, .. }) => {
                let keys = [key].into_iter().chain(next).map(trusted).collect();
                new(Trust::Keys(keys), known, Some(key))
            }
            None => new(Trust::First, known, None),
        }
    }

    /// Returns the folder in which known senders are recorded, if the session's sender is to be recorded.
    pub fn folder(&self) -> Option<PathBuf> {
        self.known.as_ref()?.path().parent().map(Path::to_owned)
    }

    /// Records the verified sender of a session as the group's, and the key that the sender announces.
    pub fn on_update(&self, update: &ReceiveUpdate) {
        let sender = match *update {
            ReceiveUpdate::SessionVerified { key, is_ephemeral: false, started, .. } => {
                Some(KnownSender { key, started, next: None })
            }
            ReceiveUpdate::NextKeyAnnounced { key } => {
                self.verified.get().map(|sender| KnownSender { next: Some(key), ..sender })
            }
            _ => return,
        };
        // A session of an earlier start does not take the place of the latest session.
        let is_earlier = self
            .verified
            .get()
            .zip(sender)
            .is_some_and(|(latest, sender)| latest.key == sender.key && latest.started > sender.started);
        if is_earlier {
            return;
        }
        self.verified.set(sender);
        let (Some(known), Some(sender)) = (&self.known, sender) else { return };
        if let Err(error) = known.put(self.group, sender) {
            tracing::warn!("{error}: the sender is not remembered");
        }
    }

    /// Prepares for the next session of the sender that was verified: a recording of an earlier session is
    /// refused from now on, and so is another sender. A sender with a key for one session can be anybody the
    /// next time.
    pub fn follow(&mut self) {
        let Some(KnownSender { key, started, next }) = self.verified.take() else { return };
        self.trust = self.trust.following(key, started);
        if let Some(next) = next {
            self.trust = self.trust.following(next, started.saturating_sub(CLOCKS_APART));
        }
    }

    /// Packets came within the timeout, but no packet of a trusted sender. `summary` is that of a session
    /// that was to be received into `out`.
    pub fn nothing_trusted(&self, summary: &ReceiveSummary, out: &Path) -> Failure {
        let group = self.group;
        if let ([pinned, ..], Some(kept)) = (&summary.pinned[..], &summary.kept) {
            let message = format!(
                "the unfinished files in '{}' came from {}, and only packets of others came; receive into another \
                 folder, delete '{}' to start over, or name the sender to continue with: --trust KEY or --trust any",
                out.display(),
                fingerprint(pinned),
                kept.display()
            );
            return Failure::new(Exit::Untrusted, message);
        }
        let message = match (&self.known, self.expected) {
            (Some(known), Some(key)) => format!(
                "the sender of {group} was known as {}, and only packets of others, or of earlier sessions of this sender, \
                 came; receive an earlier session with --allow-older; if the sender has another key now, remove the line \
                 that begins with {group} from {}, or receive with --trust KEY, --trust any or --unsigned",
                fingerprint(&key),
                known.path().display()
            ),
            _ => format!(
                "packets came from {group}, but none of a trusted sender; ask the sender for its key (--trust KEY), or \
                 receive with --trust any, or --unsigned if it does not sign"
            ),
        };
        Failure::new(Exit::Untrusted, message)
    }
}

/// Reads the value of `--next-key`.
pub fn next_key(value: Option<&String>) -> Result<Option<PublicKey>, Failure> {
    let Some(value) = value else { return Ok(None) };
    match public_keys("--next-key", std::slice::from_ref(value))?[..] {
        [key] => Ok(Some(key)),
        _ => Err(Failure::new(Exit::Usage, format!("--next-key '{value}' holds several keys; name one"))),
    }
}

/// Reads the values of an option that takes public keys and files of keys.
fn public_keys(option: &str, values: &[String]) -> Result<Vec<PublicKey>, Failure> {
    let mut keys = Vec::new();
    for value in values {
        let found = match parse_trusted(option, value) {
            Ok(found) => found,
            Err(error @ KeyError::Kind { .. }) => return Err(failure(error)),
            Err(_) => {
                let tried =
                    || format!("{option} '{value}' is no public key, and cannot be read as a file of keys");
                let text = fs::read_to_string(value).or_exit(Exit::Usage, tried())?;
                parse_trusted(value, &text).map_err(failure)?
            }
        };
        keys.extend(found.keys);
    }
    if keys.is_empty() {
        return Err(Failure::new(Exit::Usage, format!("all keys of {option} are revoked or expired")));
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verified(key: u8, started: u32, is_ephemeral: bool) -> ReceiveUpdate {
        ReceiveUpdate::SessionVerified { tsi: 1, key: [key; 32], is_ephemeral, started }
    }

    fn senders(args: &TrustArgs) -> TrustedSenders {
        TrustedSenders::new(args, GROUP_DEFAULT.parse().unwrap()).unwrap()
    }

    /// The keys that are accepted, each by its first byte, with the earliest start.
    fn accepted(senders: &TrustedSenders) -> Vec<(u8, u32)> {
        match &senders.trust {
            Trust::Keys(keys) => keys.iter().map(|trusted| (trusted.key[0], trusted.started_min)).collect(),
            _ => Vec::new(),
        }
    }

    #[test]
    fn a_follower_takes_no_earlier_session_and_no_other_sender() {
        let mut senders = senders(&TrustArgs::default());
        senders.on_update(&verified(7, 1000, false));
        senders.follow();
        assert_eq!(accepted(&senders), [(7, 1000)]);
        senders.on_update(&verified(7, 2000, false));
        senders.on_update(&ReceiveUpdate::NextKeyAnnounced { key: [8; 32] });
        senders.follow();
        assert_eq!(accepted(&senders), [(7, 2000), (8, 2000 - CLOCKS_APART)]);
        // Nothing was received.
        senders.follow();
        assert_eq!(accepted(&senders), [(7, 2000), (8, 2000 - CLOCKS_APART)]);
        senders.on_update(&verified(8, 3000, false));
        senders.follow();
        assert_eq!(accepted(&senders), [(7, 2000), (8, 3000)]);
    }

    #[test]
    fn a_sender_with_a_key_for_one_session_may_have_another_key_the_next_time() {
        let mut senders = senders(&TrustArgs::default());
        senders.on_update(&verified(7, 1000, true));
        senders.follow();
        assert!(matches!(senders.trust, Trust::First));
    }
}
