//! Replies that take a breadcrumb and requests that leave it anew, in a router whose table is full, for a
//! tool that counts what `measured` takes. With `replies` replies alone, which leave it; with `relay` a whole
//! relay; with `sequence` labels one after the other.
//!
//! ```text
//! cargo build --release -p headwater-proto --example breadcrumbs
//! for entries in 1000 65536 1000000; do
//!     valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect='*measured*' \
//!         target/release/examples/breadcrumbs $entries
//! done
//! ```
//!
//! `Collected` are the instructions of as many of them as it prints. With `--cache-sim=yes` it has lines that
//! a cache does not hold, too.

#[path = "../benches/breadcrumbs/mod.rs"]
mod breadcrumbs;

use headwater_proto::InterfaceId;
use headwater_proto::bcfs::BreadcrumbRouter;
use headwater_proto::bcfs::relay::Relay;

use breadcrumbs::{BATCH, Bed, Forwards, Labels};

const BATCHES: usize = 10_000;

fn main() {
    #[expect(clippy::disallowed_methods, reason = "a program that a person starts")]
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |word| arguments.iter().any(|argument| argument == word);
    let entries = arguments.first().and_then(|entries| entries.parse().ok()).unwrap_or(1_000);
    let labels = if has("sequence") { Labels::in_sequence(entries) } else { Labels::scattered(entries) };
    if has("relay") {
        run::<Relay>(entries, labels, has("replies"));
    } else {
        run::<BreadcrumbRouter<InterfaceId>>(entries, labels, has("replies"));
    }
}

fn run<F: Forwards>(entries: u32, mut labels: Labels, replies: bool) {
    let mut bed = Bed::<F>::new(entries, true);
    measured(&mut bed, &mut labels, if replies { Bed::replies } else { Bed::pairs });
    println!("{} {}", BATCHES * BATCH, if replies { "replies" } else { "pairs" });
}

#[inline(never)]
fn measured<F>(bed: &mut Bed<F>, labels: &mut Labels, give: fn(&mut Bed<F>, &mut Labels)) {
    (0..BATCHES).for_each(|_| give(bed, labels));
}
