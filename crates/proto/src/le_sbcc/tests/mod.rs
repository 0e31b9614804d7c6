mod binomial;
mod chain;
mod estimator;
mod filters;
mod hostile;
mod start;

use core::net::{IpAddr, Ipv4Addr};

use crate::rng::{Seed, Stream};
use crate::time::{Duration, Instant};

fn stream(seed: u64) -> Stream {
    Seed(seed).stream("le-sbcc", 0)
}

fn address(number: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from_bits(0x0A00_0000 + number))
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn at(millis: u64) -> Instant {
    Instant::ZERO + ms(millis)
}
