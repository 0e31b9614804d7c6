//! Options about metadata: modes, times, owners, links.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use headwater::{PrepareOptions, Preserve};

/// Treatment of symbolic links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LinksName {
    /// Send the file that a link refers to, under the link's name; leave links to folders out
    Follow,
    /// Leave links out
    Skip,
    /// Send relative links that stay inside of the folder as links, which receivers make with --links keep
    Keep,
}

impl From<LinksName> for headwater::Links {
    fn from(links: LinksName) -> Self {
        match links {
            LinksName::Follow => Self::Follow,
            LinksName::Skip => Self::Skip,
            LinksName::Keep => Self::Keep,
        }
    }
}

/// Kind of metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PreserveName {
    /// Permission bits, within the receiver's umask
    Modes,
    /// Times of the last modification
    Times,
    /// Folders without files
    Empty,
    /// Numeric user and group, modes regardless of the umask, and the bits set-user-ID, set-group-ID, sticky
    Owner,
    /// Extended attributes of users; with owner, access control lists, too
    Xattrs,
    /// Several names of a file, which travels once; without this at the receiver, the names are copies
    Hardlinks,
    /// All of these
    All,
    /// Nothing
    None,
}

/// Returns the kinds of a list.
pub fn kinds(names: &[PreserveName]) -> Preserve {
    let mut preserve = Preserve::NOTHING;
    for name in names {
        match name {
            PreserveName::All => preserve = Preserve::ALL,
            PreserveName::None => {}
            PreserveName::Modes => preserve.modes = true,
            PreserveName::Times => preserve.times = true,
            PreserveName::Empty => preserve.empty = true,
            PreserveName::Owner => preserve.owner = true,
            PreserveName::Xattrs => preserve.xattrs = true,
            PreserveName::Hardlinks => preserve.hardlinks = true,
        }
    }
    preserve
}

/// Links and metadata of a sender.
#[derive(Args, Clone, Debug)]
pub struct SentMetadataArgs {
    /// Treatment of symbolic links inside folders; a PATH that is a link is always followed
    #[arg(long, value_name = "WAY", value_enum, default_value_t = LinksName::Follow)]
    pub links: LinksName,
    /// Metadata that travels; each receiver chooses what it applies
    #[arg(long, value_name = "KINDS", value_enum, value_delimiter = ',', default_values = ["modes", "times", "empty"])]
    pub preserve: Vec<PreserveName>,
    /// Blocks that are holes of sparse files
    #[arg(long, value_name = "WAY", value_enum, default_value_t = HolesName::Skip)]
    pub holes: HolesName,
}

/// Treatment of holes of sparse files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum HolesName {
    /// Leave them out: receivers know blocks of zeros by their digests
    Skip,
    /// Send zeros, for receivers of other programs and of older versions
    Send,
}

impl SentMetadataArgs {
    /// Returns the options for finding the files.
    pub fn prepare_options(&self) -> PrepareOptions {
        PrepareOptions { links: self.links.into(), preserve: kinds(&self.preserve) }
    }
}

/// Treatment of links at a receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum KeptLinks {
    /// Make no links
    #[default]
    Skip,
    /// Make the links that the sender keeps, last of all: relative links that stay inside of the folder
    Keep,
}

/// Links and metadata of a receiver.
#[derive(Args, Clone, Debug)]
pub struct AppliedMetadataArgs {
    /// Symbolic links of a sender with --links keep
    #[arg(long, value_name = "WAY", value_enum, default_value_t = KeptLinks::Skip)]
    pub links: KeptLinks,
    /// Metadata that is applied, if the sender sends it
    #[arg(long, value_name = "KINDS", value_enum, value_delimiter = ',', default_values = ["modes", "times", "empty"])]
    pub preserve: Vec<PreserveName>,
    /// Take blocks with equal digests from this older file, at any multiple of their length, or from the
    /// files of this folder with the same names; an older file in DIR always gives blocks at the same place
    #[arg(long, value_name = "OLD", value_hint = ValueHint::AnyPath)]
    pub base: Option<PathBuf>,
}
