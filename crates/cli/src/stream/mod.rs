//! `headwater stream`: live video and other content of which each receiver gets the beginning of each buffer.

mod encoder;
pub mod ffmpeg;
mod folder;
pub mod input;
pub mod player;
mod receive;
mod send;
pub mod source;
pub mod video;

use crate::args::{StreamArgs, StreamCommand};
use crate::exit::{Exit, Failure};

pub use ffmpeg::run_tied;

/// Runs `headwater stream send` or `headwater stream receive`.
pub fn run(args: &StreamArgs) -> Result<Exit, Failure> {
    match &args.command {
        StreamCommand::Send(args) => send::run(args),
        StreamCommand::Receive(args) => receive::run(args),
    }
}

/// Returns text of another program without control characters.
fn plain(text: &str) -> String {
    text.chars().map(|sign| if sign.is_control() { ' ' } else { sign }).collect()
}
