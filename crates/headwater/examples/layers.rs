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
use std::time::Duration;

use headwater::{CongestionControl, LayerOptions};
use headwater::{StreamReceiveOptions, StreamReceiver, StreamSendOptions, StreamSender};

const SECOND: Duration = Duration::from_secs(1);
const BUFFERS: u8 = 30;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |index: usize| arguments.get(index).cloned();
    let (Some(what), Some(group)) = (argument(0), argument(1)) else {
        return Err("usage: layers send|receive GROUP:PORT [INTERFACE] [MAX-RATE]".into());
    };
    let group = group.parse()?;
    let rate = argument(3).unwrap_or_else(|| "8M".to_owned()).parse()?;
    if what == "send" {
        let layers = LayerOptions::new().with_max_rate(rate);
        let options = StreamSendOptions::new(group, CongestionControl::M2c(layers));
        send(StreamSender::open(options.with_interface(argument(2)))?, rate.as_bits())
    } else {
        let options = StreamReceiveOptions::new(group).with_max_rate(Some(rate));
        let options = options.with_interface(argument(2)).with_timeout(Some(30 * SECOND));
        receive(StreamReceiver::open(options)?)
    }
}

fn send(mut sender: StreamSender, rate: u64) -> Result<(), Box<dyn Error>> {
    println!("{:?}", sender.started());
    let bytes = usize::try_from(rate / 4)?;
    for number in 0..BUFFERS {
        sender.submit(vec![number; bytes], SECOND)?;
        let sent = sender.progress();
        println!("buffer {number}: {} kbit/s, {} packets", sent.rate_bits / 1_000, sent.stats.packets);
    }
    let summary = sender.finish()?;
    println!("{:?}", summary.progress.stats);
    Ok(())
}

fn receive(mut receiver: StreamReceiver) -> Result<(), Box<dyn Error>> {
    for buffer in receiver.by_ref() {
        let (prefix, length) = (buffer.prefix.len(), buffer.length.unwrap_or(0));
        println!("buffer {}: the first {prefix} of {length} bytes", buffer.id);
    }
    let summary = receiver.finish()?;
    println!("{:?}, {:?}", summary.outcome, summary.progress.stats.parts);
    Ok(())
}
