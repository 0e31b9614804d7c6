//! Headwater against the `flute` crate, an independent implementation of FLUTE: files cross in both
//! directions, over a link that loses and reorders packets, in virtual time and without sockets.
//!
//! What either side does differently from the RFCs is in `docs/errata/flute.md`.

#![expect(clippy::unwrap_used, reason = "the helpers of tests panic as tests do")]

mod from_flute;
mod link;
mod to_flute;

/// A file of a session: name and content.
type Named = (&'static str, Vec<u8>);

/// Transport session identifier of all sessions here.
const TSI: u16 = 3_107;
/// Bytes of a symbol.
const SYMBOL_SIZE: u16 = 1_024;

/// Files of all sizes that matter: one byte, around one symbol, several blocks of every code.
fn files() -> Vec<Named> {
    let sizes = [
        ("one", 1),
        ("dir/symbol", usize::from(SYMBOL_SIZE)),
        ("dir/sub/symbol and a byte.bin", usize::from(SYMBOL_SIZE) + 1),
        ("dir/sub/few.kB", 9_000),
        ("large", 2_000_003),
    ];
    sizes.into_iter().map(|(name, bytes)| (name, link::content(name, bytes))).collect()
}

fn sorted<T: Ord>(mut items: Vec<T>) -> Vec<T> {
    items.sort_unstable();
    items
}
