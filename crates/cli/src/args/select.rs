//! Options for the selection of files, for bundles of small files, and for compression.

use clap::{Args, ValueEnum};

/// Options of a receiver that wants some files.
#[derive(Args, Clone, Debug, Default)]
pub struct SelectArgs {
    /// Keep only files that match this pattern; may be repeated: '*.jpg' in any folder, 'photos/**' from the
    /// root. Bundles are received whole. Default: all files
    #[arg(long, value_name = "GLOB")]
    pub include: Vec<String>,
    /// Leave out files that match this pattern, also if --include matches; may be repeated
    #[arg(long, value_name = "GLOB")]
    pub exclude: Vec<String>,
}

/// Small files that travel in bundles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BundleName {
    /// Files below 1000 packets, if there are 32 or more
    Auto,
    /// No bundles; a session then has at most 16 384 files
    Never,
    /// Files below 1000 packets
    Always,
}

impl From<BundleName> for headwater::Bundling {
    fn from(bundle: BundleName) -> Self {
        match bundle {
            BundleName::Auto => Self::Auto,
            BundleName::Never => Self::Never,
            BundleName::Always => Self::Always,
        }
    }
}

/// Coding of compressed content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CodingName {
    /// For receivers of this program
    Zstd,
    /// For other FLUTE receivers, too
    Gzip,
}

impl From<CodingName> for headwater::ContentCoding {
    fn from(coding: CodingName) -> Self {
        match coding {
            CodingName::Zstd => Self::Zstd,
            CodingName::Gzip => Self::Gzip,
        }
    }
}
