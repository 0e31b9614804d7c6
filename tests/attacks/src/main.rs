//! Forger of packets: sends IPv4 datagrams with any source address. Needs root; used in
//! network namespaces alone.
//!
//! usage: headwater-forger ATTACK NAME=VALUE...
//!
//! | attack | values |
//! |---|---|
//! | `requests` | `to` relay or source, `source` in the requests, `victim` (default: random addresses), `label` |
//! | `naks` | `group`, `interface` (its address), `network` (a.b.c), `addresses` 1 to 250 |
//! | `reports` | `group`, `interface`, `network`, `addresses`, `groups` announced instead (default: 0) |
//! | `receivers` | `group`, `interface`; `victim` (default: random addresses) |
//! | `garbage` | `to` group or host, `from` address and port, `bytes` of a datagram |
//! | `symbols`, `numbers`, `closes`, `signatures`, `replays` | `group`, `interface`, `groups` from `group` on that are heard (default: 1) |
//! | `descriptions` | the same; `name` of the file, `session` added to the TSI (default: 0) |
//! | `record` | the same; `file` to write |
//! | `recording` | `file` to send |
//!
//! `rate` (datagrams a second) and `seconds` apply to each. A line of output each quarter of a second, and
//! the last line, have the datagrams and the bytes of UDP payload that were sent so far.

mod attacks;
mod content;
mod raw;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

use raw::ForgingSockets;

const LINE_INTERVAL: Duration = Duration::from_millis(250);

/// Values of the command line.
struct Values(BTreeMap<String, String>);

impl Values {
    fn get<T: FromStr>(&self, name: &str) -> Result<T> {
        let value = self.0.get(name).with_context(|| format!("{name}= is missing"))?;
        value.parse().map_err(|_| anyhow!("{name}={value} cannot be read"))
    }

    fn or<T: FromStr>(&self, name: &str, default: T) -> Result<T> {
        if self.0.contains_key(name) { self.get(name) } else { Ok(default) }
    }
}

/// Pseudo-random numbers (splitmix64); a run is the same each time.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }
}

/// Sends the datagrams of an attack at its rate.
fn send(values: &Values, mut forge: impl FnMut(&mut Draw) -> Option<raw::Forged>) -> Result<()> {
    let (rate, seconds): (u64, f64) = (values.get("rate")?, values.or("seconds", 10.0)?);
    let mut draw = Draw(values.or("seed", 1)?);
    let interface = values.or("interface", Ipv4Addr::UNSPECIFIED)?;
    let (mut sockets, start) = (ForgingSockets::open(interface)?, Instant::now());
    let (mut due, mut sent, mut bytes) = (0_u64, 0_u64, 0_u64);
    let mut next_line = LINE_INTERVAL;
    let print = |sent: u64, bytes: u64| {
        let seconds = start.elapsed().as_secs_f64();
        println!("{{\"sent\": {sent}, \"bytes\": {bytes}, \"seconds\": {seconds:.3}}}");
    };
    while start.elapsed().as_secs_f64() < seconds {
        let now = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
        // A forger that is late sends no burst of more than 10 ms.
        due = due.max((now.saturating_sub(10_000)).saturating_mul(rate) / 1_000_000);
        while due < now * rate / 1_000_000 {
            due += 1;
            if let Some(forged) = forge(&mut draw) {
                sent += 1;
                bytes += forged.payload.len() as u64;
                sockets.push(&forged)?;
            }
        }
        sockets.flush()?;
        if start.elapsed() >= next_line {
            next_line += LINE_INTERVAL;
            print(sent, bytes);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    print(sent, bytes);
    Ok(())
}

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let attack = words.next().context("usage: headwater-forger ATTACK NAME=VALUE...")?;
    let pairs = words.map(|word| {
        let (name, value) = word.split_once('=').with_context(|| format!("'{word}' is no NAME=VALUE"))?;
        Ok((name.to_string(), value.to_string()))
    });
    let values = Values(pairs.collect::<Result<_>>()?);
    match attack.as_str() {
        "requests" => attacks::requests(&values),
        "naks" => attacks::naks(&values),
        "garbage" => attacks::garbage(&values),
        "reports" => attacks::reports(&values),
        "receivers" => attacks::receivers(&values),
        "symbols" => content::symbols(&values),
        "numbers" => content::numbers(&values),
        "descriptions" => content::descriptions(&values),
        "closes" => content::closes(&values),
        "signatures" => content::signatures(&values),
        "replays" => content::replays(&values),
        "record" => content::record(&values),
        "recording" => content::recording(&values),
        other => bail!("no attack is called '{other}'"),
    }
}
