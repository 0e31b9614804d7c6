//! Options about keys, common to several commands, and `headwater keygen`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

pub const KEYGEN_EXAMPLES: &str = "\
Examples:
  headwater keygen                    the key that `send` signs by; prints the public key
  headwater keygen news.key           another key, for --sign, with news.key.pub for receivers' --trust";

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
}

/// Senders that a receiver accepts.
#[derive(Debug, Args)]
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
}

/// `headwater keygen`.
#[derive(Debug, Args)]
pub struct KeygenArgs {
    /// File for the private key, which must not exist; the public key is written to FILE.pub
    /// [default: ~/.config/headwater/id_ed25519]
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: Option<PathBuf>,
}
