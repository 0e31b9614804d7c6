//! Sends buffers in layers and prints what a receiver has of each: the same program at both ends.
//!
//! ```text
//! cargo run --release -p headwater --example layers -- receive 239.255.72.90:7290 [INTERFACE] [MAX-RATE]
//! cargo run --release -p headwater --example layers -- send 239.255.72.90:7290 [INTERFACE] [MAX-RATE]
//! ```
//!
//! The sender makes a second of "video" each second, 30 s long: twice as many bytes as it can send, the base
//! layer first. Give two receivers two maximum rates, `1M` and `4M`: each has as much of every buffer as its
//! rate brings.

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use headwater::stream::{StreamReceiveOptions, StreamReceiveSession, StreamReceiveUpdate};
use headwater::stream::{StreamSendOptions, StreamSendSession, StreamSendUpdate};
use headwater::{CongestionControl, LayerOptions, LinkOptions, ListenOptions, Session};

const SECOND: Duration = Duration::from_secs(1);
const BUFFERS: u8 = 30;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |index: usize| arguments.get(index).cloned();
    let (Some(what), Some(group)) = (argument(0), argument(1)) else {
        return Err("usage: layers send|receive GROUP:PORT [INTERFACE] [MAX-RATE]".into());
    };
    let group: SocketAddr = group.parse()?;
    let rate = argument(3).unwrap_or_else(|| "8M".to_owned()).parse()?;
    if what == "send" {
        let layers = LayerOptions::new().with_max_rate(rate);
        let link = LinkOptions { interface: argument(2), ..LinkOptions::new(group) };
        let options = StreamSendOptions::new(link, CongestionControl::M2c(layers));
        send(StreamSendSession::open(options)?, rate.as_bits())
    } else {
        let mut listen = ListenOptions::new(group);
        (listen.interface, listen.max_rate) = (argument(2), Some(rate));
        listen.timeout = Some(30 * SECOND);
        receive(StreamReceiveSession::open(StreamReceiveOptions::new(listen))?)
    }
}

fn send(session: StreamSendSession, rate: u64) -> Result<(), Box<dyn Error>> {
    println!("{:?}", session.started());
    let (feed, bytes) = (session.feed(), usize::try_from(rate / 4)?);
    let thread = session.spawn()?;
    for number in 0..BUFFERS {
        feed.submit(vec![number; bytes], SECOND)?;
        if let Some(StreamSendUpdate::Progress(sent)) = thread.progress() {
            println!("buffer {number}: {} kbit/s, {} packets", sent.rate_bits / 1_000, sent.stats.packets);
        }
    }
    feed.finish();
    let summary = thread.join()?;
    println!("{:?}", summary.progress.stats);
    Ok(())
}

fn receive(session: StreamReceiveSession) -> Result<(), Box<dyn Error>> {
    let mut thread = session.spawn()?;
    for update in thread.updates() {
        let StreamReceiveUpdate::Buffer(buffer) = update else { continue };
        let (prefix, length) = (buffer.prefix.len(), buffer.length.unwrap_or(0));
        println!("buffer {}: the first {prefix} of {length} bytes", buffer.id);
    }
    let summary = thread.join()?;
    println!("{:?}, {:?}", summary.outcome, summary.progress.stats.parts);
    Ok(())
}
