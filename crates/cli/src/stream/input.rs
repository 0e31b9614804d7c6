//! Buffers from standard input: `headwater stream send --stdin`.

use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use headwater::stream::{BUFFER_BYTES_MAX, StreamError, StreamFeed};

use super::send::STEP;
use crate::args::{self, StreamSendArgs};
use crate::exit::{Exit, Failure, OrExit};
use crate::pgm::messages::{Messages, ReadError};

/// Buffers on standard input.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    form: args::Form,
    size: usize,
    /// Time of a buffer.
    pub time: Duration,
}

/// Returns the form of the buffers, if the arguments ask for standard input.
pub fn form(args: &StreamSendArgs) -> Result<Option<Form>, Failure> {
    let usage = |message: &str| Err(Failure::new(Exit::Usage, message));
    let Some(time) = args.buffer.filter(|_| args.stdin) else { return Ok(None) };
    let size = args.size.map(|size| usize::try_from(size.0).unwrap_or(usize::MAX));
    if size.is_some_and(|size| size == 0 || size > BUFFER_BYTES_MAX) {
        return usage("--size is the length of a buffer, from 1 byte to 64 MiB");
    }
    let (form, size) = match (args.form, size) {
        (None | Some(args::Form::Bytes), Some(size)) => (args::Form::Bytes, size),
        (Some(args::Form::Bytes), None) => {
            return usage("buffers of bytes need a length: add for example --size 250kB");
        }
        (Some(_), Some(_)) => {
            return usage("--size is for --form bytes: leave --size out, or the other --form");
        }
        (form, None) => (form.unwrap_or(args::Form::Lengths), 0),
    };
    Ok(Some(Form { form, size, time }))
}

/// Submits the buffers of standard input on a thread.
pub fn submit(form: Form, feed: StreamFeed) -> Result<JoinHandle<Result<(), Failure>>, Failure> {
    let run = move || {
        let result = read(form, &feed);
        feed.finish();
        result
    };
    Builder::new().name("standard input".to_owned()).spawn(run).or_exit(Exit::Other, "cannot start a thread")
}

fn read(Form { form, size, time }: Form, feed: &StreamFeed) -> Result<(), Failure> {
    let mut messages = Messages::new(std::io::stdin().lock(), form, size, BUFFER_BYTES_MAX);
    let mut buffer = Vec::new();
    while messages.next(&mut buffer).map_err(not_read)? {
        if buffer.is_empty() {
            continue;
        }
        if !offer(feed, &buffer.as_slice().into(), time)? {
            return Ok(());
        }
    }
    Ok(())
}

/// Submits a buffer. Returns `false` once the session has ended.
pub fn offer(feed: &StreamFeed, bytes: &Arc<[u8]>, time: Duration) -> Result<bool, Failure> {
    loop {
        match feed.submit_within(bytes, time, STEP) {
            Ok(true) => return Ok(true),
            Ok(false) => {}
            // The end of the session reports the reason.
            Err(StreamError::Ended) => return Ok(false),
            Err(StreamError::Submit(error)) => {
                return Err(error)
                    .or_exit(Exit::Usage, format!("cannot send a buffer of {} bytes", bytes.len()));
            }
        }
    }
}

fn not_read(error: ReadError) -> Failure {
    match error {
        ReadError::TooLong { bytes_max } => Failure::new(
            Exit::Usage,
            format!(
                "a buffer is longer than {bytes_max} bytes; all buffers before were sent; does the input have --form lengths?"
            ),
        ),
        ReadError::Truncated => Failure::new(
            Exit::Usage,
            "standard input ends within a buffer; all buffers before were sent; does the input have --form lengths?",
        ),
        ReadError::Io(error) => Failure::of(
            Exit::Disk,
            anyhow::Error::from(error).context("cannot read buffers from standard input"),
        ),
    }
}
