//! `headwater pgm`: messages over PGM, to and from receivers and senders of any make.

mod messages;
mod progress;
mod receive;
mod send;

use headwater::pgm::Framing;

use crate::args::{FramingName, PgmArgs, PgmCommand};
use crate::exit::{Exit, Failure};

/// Sends or receives.
pub fn run(args: &PgmArgs) -> Result<Exit, Failure> {
    match &args.command {
        PgmCommand::Send(args) => send::run(args),
        PgmCommand::Receive(args) => receive::run(args),
    }
}

impl From<FramingName> for Framing {
    fn from(name: FramingName) -> Self {
        match name {
            FramingName::Messages => Self::Messages,
            FramingName::Zmq => Self::Zmq,
        }
    }
}
