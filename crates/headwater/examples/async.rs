//! Receives files inside an event loop and prints each file's name: `async GROUP:PORT FOLDER`.
//!
//! The session runs on a thread of its own; its handle is a stream for any runtime.

use std::net::SocketAddr;

use futures_lite::{StreamExt, future};
use headwater::{ReceiveOptions, ReceiveSession, ReceiveUpdate, Session};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (group, folder) = arguments.next().zip(arguments.next()).ok_or("usage: async GROUP:PORT FOLDER")?;

    let group: SocketAddr = group.parse()?;
    let mut thread = ReceiveSession::open(ReceiveOptions::new(group, folder))?.spawn()?;
    future::block_on(async {
        while let Some(update) = thread.next().await {
            if let ReceiveUpdate::FileCompleted { path, .. } = update {
                println!("{path}");
            }
        }
    });
    // The updates have ended, so that `join` does not block the event loop.
    println!("{:?}", thread.join()?.outcome);
    Ok(())
}
