//! Receives files on a thread of the session and prints each file's name: `spawn GROUP:PORT FOLDER`.

use std::net::SocketAddr;

use headwater::{ReceiveOptions, ReceiveSession, ReceiveUpdate, Session};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (group, folder) = arguments.next().zip(arguments.next()).ok_or("usage: spawn GROUP:PORT FOLDER")?;

    let group: SocketAddr = group.parse()?;
    let mut thread = ReceiveSession::open(ReceiveOptions::new(group, folder))?.spawn()?;
    for update in thread.updates() {
        if let ReceiveUpdate::FileCompleted { path, .. } = update {
            println!("{path}");
        }
    }
    println!("{:?}", thread.join()?.outcome);
    Ok(())
}
