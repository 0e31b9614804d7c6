//! Keys of the command line: files of keys, `headwater keygen`, and the senders that a receiver knows.

use std::env;
use std::fs;
use std::io::{self, BufRead, IsTerminal, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use headwater::ReceiveUpdate;
use headwater::keys::{
    KeyError, KnownSender, KnownSenders, PublicKey, SenderKey, Trust, fingerprint, openssh, parse_trusted,
};
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use zeroize::Zeroizing;

use crate::args::{GROUP_DEFAULT, KeygenArgs, SignArgs, TrustArgs};
use crate::exit::{Exit, Failure, OrExit};

/// Variable that names a private key.
const KEY_VARIABLE: &str = "HEADWATER_KEY";

/// Returns the folder of keys; `None` without a home.
fn folder() -> Option<PathBuf> {
    headwater_folder("XDG_CONFIG_HOME", ".config")
}

/// Returns the folder with the record of known senders, apart from private keys: a confined receiver may
/// write there. `None` without a home.
fn state_folder() -> Option<PathBuf> {
    headwater_folder("XDG_STATE_HOME", ".local/state")
}

/// Returns this program's folder below the folder that a variable names, or below a folder of the home.
fn headwater_folder(variable: &str, below_home: &str) -> Option<PathBuf> {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let parent = absolute(variable).or_else(|| absolute("HOME").map(|home| home.join(below_home)));
    parent.map(|parent| parent.join("headwater"))
}

/// Makes a key.
pub fn keygen(args: &KeygenArgs) -> Result<Exit, Failure> {
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
    let before = tcgetattr(&input).ok()?;
    let mut silent = before.clone();
    silent.local_modes.remove(LocalModes::ECHO);
    tcsetattr(&input, OptionalActions::Flush, &silent).ok()?;
    let mut line = Zeroizing::new(String::new());
    let read = input.lock().read_line(&mut line);
    tcsetattr(&input, OptionalActions::Flush, &before).ok();
    eprintln!();
    read.ok()?;
    Some(Zeroizing::new(line.trim_end_matches(['\r', '\n']).to_owned()))
}

fn failure(error: KeyError) -> Failure {
    let exit = match &error {
        KeyError::Io { source, .. } if source.kind() != io::ErrorKind::NotFound => Exit::Disk,
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
}

impl TrustedSenders {
    /// Reads the options, and the known sender of the group.
    pub fn new(args: &TrustArgs, group: SocketAddr) -> Result<Self, Failure> {
        let known = state_folder().map(|folder| KnownSenders::new(folder.join("known_senders")));
        // The default group is everybody's.
        let known = known.filter(|_| group.to_string() != GROUP_DEFAULT);
        let new = |trust, known, expected| Ok(Self { trust, group, known, expected });
        if args.unsigned {
            return new(Trust::Unchecked, None, None);
        }
        if args.trust.iter().any(|text| text == "any") {
            return new(Trust::First, None, None);
        }
        let sender = match &known {
            Some(known) => known.get(group).map_err(failure)?,
            None => None,
        };
        let started_min = |key: &PublicKey| {
            let known = sender.filter(|sender| sender.key == *key && !args.allow_older);
            known.map_or(0, |sender| sender.started)
        };
        if !args.trust.is_empty() {
            let keys = trusted(&args.trust)?;
            let started_min = if let [key] = &keys[..] { started_min(key) } else { 0 };
            return new(Trust::Keys { keys, started_min }, known, None);
        }
        match sender {
            Some(KnownSender { key, .. }) => {
                new(Trust::Keys { keys: vec![key], started_min: started_min(&key) }, known, Some(key))
            }
            None => new(Trust::First, known, None),
        }
    }

    /// Returns the folder in which known senders are recorded, if the session's sender is to be recorded.
    pub fn folder(&self) -> Option<PathBuf> {
        self.known.as_ref()?.path().parent().map(Path::to_owned)
    }

    /// Records the verified sender of a session as the group's.
    pub fn on_update(&self, update: &ReceiveUpdate) {
        let ReceiveUpdate::SessionVerified { key, is_ephemeral: false, started, .. } = update else { return };
        let Some(known) = &self.known else { return };
        if let Err(error) = known.put(self.group, KnownSender { key: *key, started: *started }) {
            tracing::warn!("{error}: the sender is not remembered");
        }
    }

    /// Packets came within the timeout, but no packet of a trusted sender.
    pub fn nothing_trusted(&self) -> Failure {
        let group = self.group;
        let message = match (&self.known, self.expected) {
            (Some(known), Some(key)) => format!(
                "the sender of {group} was known as {}, and only packets of others came; if the sender has another key \
                 now, remove the line that begins with {group} from {}, or receive with --trust KEY, --trust any or --unsigned",
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

/// Reads the values of `--trust`.
fn trusted(values: &[String]) -> Result<Vec<PublicKey>, Failure> {
    let mut keys = Vec::new();
    for value in values {
        let found = match parse_trusted("--trust", value) {
            Ok(found) => found,
            Err(error @ KeyError::Kind { .. }) => return Err(failure(error)),
            Err(_) => {
                let tried =
                    || format!("--trust '{value}' is no public key, and cannot be read as a file of keys");
                let text = fs::read_to_string(value).or_exit(Exit::Usage, tried())?;
                parse_trusted(value, &text).map_err(failure)?
            }
        };
        keys.extend(found.keys);
    }
    if keys.is_empty() {
        return Err(Failure::new(Exit::Usage, "all keys of --trust are revoked or expired"));
    }
    Ok(keys)
}
