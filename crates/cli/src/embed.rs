//! Sessions for bindings of other languages: options are the words of the command line, events are the lines
//! of `--json`, and errors have the exit codes and messages of the commands.
//!
//! A session runs on a separate thread and is not confined.

use std::any::Any;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use clap::Parser;
use futures_core::Stream;
use headwater::pgm::PgmFeed;
use headwater::stream::StreamFeed;
use headwater::{Session, SessionThread, StopHandle};

use crate::args::{Cli, Command, OutputArgs, PgmCommand};
use crate::exit::{Exit, Failure, OrExit};

/// Events and content from a session.
#[derive(Debug)]
pub enum Delivery {
    /// Lines of JSON, each with a newline (`docs/reference/events.md`).
    Events(String),
    /// Beginning of a buffer of a stream, as far as the path carried the buffer.
    Buffer {
        /// Bytes from the first on.
        prefix: Vec<u8>,
        /// Length of the whole buffer in bytes, if known.
        length: Option<usize>,
    },
    /// Message.
    Message(Vec<u8>),
    /// Number of packets that are lost for good. Messages are lost with the packets.
    Gap(u64),
}

/// Running session.
pub trait EmbeddedSession: Send {
    /// Waits for the next delivery, at most for `timeout`. `None`: the time is over, or the session has
    /// ended.
    fn next_within(&mut self, timeout: Duration) -> Option<Delivery>;

    /// Polls for the next delivery; `Ready(None)` once the session has ended.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Delivery>>;

    /// Asks the session to end, and returns at once.
    fn stop(&self);

    /// Returns a handle that stops the session.
    fn stop_handle(&self) -> StopHandle;

    /// Waits for the end of the session. Returns the last lines of events.
    ///
    /// # Errors
    /// The failure with the message and the exit code of the command. A session that was stopped is no
    /// failure for a sender or a relay of live content.
    fn end(&mut self) -> (Option<String>, Result<(), Failure>);
}

/// End of a session: the last lines, and the result of the command.
pub(crate) type SessionEnd = (Option<String>, Result<Exit, Failure>);

/// Conversion of the session's result.
type Finish<S> = Box<dyn FnOnce(SessionResult<S>) -> SessionEnd + Send>;

/// Result of a session.
type SessionResult<S> = Result<<S as Session>::Summary, <S as Session>::Error>;

/// Session of a kind, with the conversion of updates.
pub(crate) struct Embedded<S: Session> {
    thread: Option<SessionThread<S>>,
    stop: StopHandle,
    convert: Box<dyn FnMut(S::Update) -> Option<Delivery> + Send>,
    finish: Option<Finish<S>>,
    /// Parts that live as long as the session, for example a server.
    _parts: Box<dyn Any + Send>,
}

impl<S: Session> Embedded<S> {
    /// Starts the session's thread.
    pub(crate) fn start(
        session: S,
        convert: impl FnMut(S::Update) -> Option<Delivery> + Send + 'static,
        finish: impl FnOnce(SessionResult<S>) -> SessionEnd + Send + 'static,
        parts: impl Any + Send,
    ) -> Result<Box<dyn EmbeddedSession>, Failure> {
        let stop = session.stop_handle();
        let thread = Some(session.spawn().or_exit(Exit::Other, "cannot start the session")?);
        let (convert, finish) = (Box::new(convert), Some(Box::new(finish) as Finish<S>));
        Ok(Box::new(Self { thread, stop, convert, finish, _parts: Box::new(parts) }))
    }
}

impl<S: Session> EmbeddedSession for Embedded<S> {
    fn next_within(&mut self, timeout: Duration) -> Option<Delivery> {
        let deadline = std::time::Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            let update = self.thread.as_mut()?.next_within(left)?;
            if let Some(delivery) = (self.convert)(update) {
                return Some(delivery);
            }
        }
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Delivery>> {
        loop {
            let Some(thread) = &mut self.thread else { return Poll::Ready(None) };
            match Pin::new(thread).poll_next(context) {
                Poll::Ready(Some(update)) => {
                    if let Some(delivery) = (self.convert)(update) {
                        return Poll::Ready(Some(delivery));
                    }
                }
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn stop(&self) {
        self.stop.stop();
    }

    fn stop_handle(&self) -> StopHandle {
        self.stop.clone()
    }

    fn end(&mut self) -> (Option<String>, Result<(), Failure>) {
        let (Some(thread), Some(finish)) = (self.thread.take(), self.finish.take()) else {
            return (None, Ok(()));
        };
        let (lines, result) = finish(thread.join());
        (lines, result.map(|_exit| ()))
    }
}

/// Parses the words of a command. `allowed` names the options of output that the session has.
fn parse(words: &[String]) -> Result<Command, Failure> {
    let parsed = Cli::try_parse_from(std::iter::once("headwater").chain(words.iter().map(String::as_str)));
    let cli = parsed.map_err(|error| Failure::new(Exit::Usage, crate::args::error_lines(&error)))?;
    let output = match &cli.command {
        Command::Send(args) => Some(&args.output),
        Command::Receive(args) => Some(&args.output),
        Command::Get(args) => Some(&args.output),
        _ => None,
    };
    match output.and_then(refused) {
        Some(option) => Err(Failure::new(Exit::Usage, format!("{option} is an option of the command alone"))),
        None => Ok(cli.command),
    }
}

fn refused(output: &OutputArgs) -> Option<&'static str> {
    let options = [(output.json, "--json"), (output.pcap.is_some(), "--pcap")];
    options.into_iter().find_map(|(is_given, option)| is_given.then_some(option))
}

fn other_command() -> Failure {
    Failure::new(Exit::Usage, "these words are of another command")
}

/// Starts to send files: the words of `headwater send`.
///
/// # Errors
/// As the command.
pub fn send(words: &[String]) -> Result<Box<dyn EmbeddedSession>, Failure> {
    match parse(words)? {
        Command::Send(args) => crate::send::embedded::files(*args),
        _ => Err(other_command()),
    }
}

/// Starts to receive files: the words of `headwater receive` or of `headwater get`.
///
/// # Errors
/// As the command.
pub fn receive(words: &[String]) -> Result<Box<dyn EmbeddedSession>, Failure> {
    match parse(words)? {
        Command::Receive(args) => crate::receive::embedded::files(*args),
        Command::Get(args) => crate::receive::embedded::described(&args),
        _ => Err(other_command()),
    }
}

/// Starts to send a stream of buffers: the words of `headwater send` with any path.
///
/// # Errors
/// As the command.
pub fn send_stream(words: &[String]) -> Result<(Box<dyn EmbeddedSession>, StreamFeed), Failure> {
    match parse(words)? {
        Command::Send(args) => crate::send::embedded::stream(&args),
        _ => Err(other_command()),
    }
}

/// Starts to receive a stream of buffers: the words of `headwater receive` with any folder.
///
/// # Errors
/// As the command.
pub fn receive_stream(words: &[String]) -> Result<Box<dyn EmbeddedSession>, Failure> {
    match parse(words)? {
        Command::Receive(args) => crate::receive::embedded::stream(&args),
        _ => Err(other_command()),
    }
}

/// Starts to send messages: the words of `headwater pgm send`.
///
/// # Errors
/// As the command.
pub fn send_messages(words: &[String]) -> Result<(Box<dyn EmbeddedSession>, PgmFeed), Failure> {
    match parse(words)? {
        Command::Pgm(args) => match args.command {
            PgmCommand::Send(args) => crate::pgm::embed_sender(&args),
            PgmCommand::Receive(_) => Err(other_command()),
        },
        _ => Err(other_command()),
    }
}

/// Starts to receive messages: the words of `headwater pgm receive`.
///
/// # Errors
/// As the command.
pub fn receive_messages(words: &[String]) -> Result<Box<dyn EmbeddedSession>, Failure> {
    match parse(words)? {
        Command::Pgm(args) => match args.command {
            PgmCommand::Receive(args) => crate::pgm::embed_receiver(*args),
            PgmCommand::Send(_) => Err(other_command()),
        },
        _ => Err(other_command()),
    }
}
