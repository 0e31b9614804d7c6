//! TCP agents: what each variant does segment by segment, what holds whatever the network does, and what
//! comes out on simulated links, against closed forms and against the kernel. `--nocapture` shows the
//! numbers.

#![expect(clippy::unwrap_used, reason = "tests")]
#![expect(clippy::cast_precision_loss, reason = "counts of segments in ratios")]

mod bed;
mod exchange;
mod kernel;
mod ns2;
mod padhye;
mod path;
mod properties;
mod rack;
mod saw_tooth;
mod traffic;
