//! `headwater pgm`: messages over PGM, to and from any implementation.

mod messages;
mod progress;
mod receive;
mod send;

use headwater::pgm::Framing;

use crate::args::{Form, FramingName, PgmArgs, PgmCommand};
use crate::exit::{Exit, Failure};

/// Runs `headwater pgm send` or `headwater pgm receive`.
pub fn run(args: &PgmArgs) -> Result<Exit, Failure> {
    match &args.command {
        PgmCommand::Send(args) => send::run(args),
        PgmCommand::Receive(args) => receive::run(args),
    }
}

/// Returns the form of messages on standard input or output, if requested or fixed by the framing.
fn form(said: Option<Form>, framing: FramingName) -> Result<Option<Form>, Failure> {
    match (said, framing) {
        (Some(Form::Lines | Form::Lengths), FramingName::Bytes) => {
            let reason = "a stream of bytes has no messages: leave --form out, or choose another --framing";
            Err(Failure::new(Exit::Usage, reason))
        }
        (_, FramingName::Bytes) => Ok(Some(Form::Bytes)),
        (said, _) => Ok(said),
    }
}

impl From<FramingName> for Framing {
    fn from(name: FramingName) -> Self {
        match name {
            FramingName::Messages => Self::Messages,
            FramingName::Zmq => Self::Zmq,
            FramingName::Bytes => Self::Bytes,
        }
    }
}
