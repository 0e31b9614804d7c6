mod ends;
mod hostile;
mod kept;
mod properties;
mod trace;

use super::window::{Ask, RainbowWindow};
use crate::time::{Duration, Instant};

fn at(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

/// What the window asks for now: label and level.
fn asks(window: &mut RainbowWindow) -> Vec<(u16, u16)> {
    core::iter::from_fn(|| window.poll_ask(at(u32::MAX.into())))
        .map(|Ask { label, level }| (label, level))
        .collect()
}
