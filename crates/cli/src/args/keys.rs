//! Options about keys, common to several commands, and `headwater keygen`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

pub const KEYGEN_EXAMPLES: &str = "\
Examples:
  headwater keygen                    the key that `send` signs by; prints the public key
  headwater keygen news.key           another key, for --sign, with news.key.pub for receivers' --trust
  headwater keygen --group team.key   a key for --group-key or --roster-key, to be copied to each member by a safe way
  headwater keygen --group --next team.key   its successor, behind the key in use: members first, sender last";

/// Signature options of a sender.
#[derive(Debug, Args)]
#[command(next_help_heading = "Keys")]
pub struct SignArgs {
    /// Private key that signs the session (Ed25519: OpenSSH or PKCS#8)
    /// [default: HEADWATER_KEY, else ~/.config/headwater/id_ed25519, made on first use]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "no_sign")]
    pub sign: Option<PathBuf>,
    /// Do not sign: receivers cannot detect forged packets
    #[arg(long)]
    pub no_sign: bool,
    /// Announce the key that will sign later sessions: a public key or its file. Receivers that know the
    /// sender accept both keys
    #[arg(long, value_name = "KEY|FILE", value_hint = ValueHint::FilePath, conflicts_with = "no_sign")]
    pub next_key: Option<String>,
    /// Encrypt the content by the last key of this file, for receivers with the same --group-key
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub group_key: Option<PathBuf>,
}

/// Senders that a receiver accepts.
#[derive(Clone, Debug, Args, Default)]
#[command(next_help_heading = "Keys")]
pub struct TrustArgs {
    /// Receive from holders of this key alone: a public key, a file of keys (OpenSSH, also allowed_signers;
    /// PEM; minisign), or `any`; may be given again
    /// [default: the known sender of the group, else the first signed sender, else an unsigned sender]
    #[arg(long, value_name = "KEY|FILE", value_hint = ValueHint::FilePath, conflicts_with = "unsigned")]
    pub trust: Vec<String>,
    /// Verify nothing: take the first session, signed or not
    #[arg(long)]
    pub unsigned: bool,
    /// Receive sessions that started before the newest known session of the same sender, too
    #[arg(long, conflicts_with = "unsigned")]
    pub allow_older: bool,
    /// Receive content encrypted by a key of this file (headwater keygen --group), and none in the clear
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "unsigned")]
    pub group_key: Option<PathBuf>,
}

/// `headwater keygen`.
#[derive(Debug, Args)]
pub struct KeygenArgs {
    /// File for the private key, which must not exist; the public key is written to FILE.pub
    /// [default: ~/.config/headwater/id_ed25519]
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: Option<PathBuf>,
    /// Make a group key, for --group-key or --roster-key of senders and receivers, in FILE
    #[arg(long, requires = "file")]
    pub group: bool,
    /// With --group: add the next key to FILE, which keeps the newest two
    #[arg(long, requires = "group")]
    pub next: bool,
}
