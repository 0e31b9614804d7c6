//! Messages on standard input and output.

use std::io::{self, BufRead, ErrorKind, Read, Write};

use crate::args::Form;

/// Maximum bytes of a stream to read at once: the capacity of a pipe.
const PIECE_BYTES: usize = 64 << 10;

/// Error of reading messages.
#[derive(Debug)]
pub enum ReadError {
    /// A message is longer than the session accepts.
    TooLong { bytes_max: usize },
    /// The input ends within a message.
    Truncated,
    /// Error of the kernel.
    Io(io::Error),
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::UnexpectedEof => Self::Truncated,
            _ => Self::Io(error),
        }
    }
}

/// Reads messages of a form, a single message at a time.
pub struct Messages<R> {
    input: R,
    form: Form,
    /// Bytes of a message with [`Form::Bytes`]; 0 for all available bytes.
    size: usize,
    bytes_max: usize,
}

impl<R: BufRead> Messages<R> {
    pub fn new(input: R, form: Form, size: usize, bytes_max: usize) -> Self {
        Self { input, form, size, bytes_max }
    }

    /// Reads the next message into `message`; false at the end.
    pub fn next(&mut self, message: &mut Vec<u8>) -> Result<bool, ReadError> {
        message.clear();
        match self.form {
            Form::Lines => self.line(message),
            Form::Lengths => self.counted(message),
            Form::Bytes if self.size == 0 => self.some(message),
            Form::Bytes => self.piece(message),
        }
    }

    fn line(&mut self, message: &mut Vec<u8>) -> Result<bool, ReadError> {
        let most = self.bytes_max as u64 + 1;
        self.input.by_ref().take(most).read_until(b'\n', message)?;
        let had_some = !message.is_empty();
        if message.last() == Some(&b'\n') {
            message.pop();
        }
        self.check(message.len())?;
        Ok(had_some)
    }

    fn counted(&mut self, message: &mut Vec<u8>) -> Result<bool, ReadError> {
        if self.input.fill_buf()?.is_empty() {
            return Ok(false);
        }
        let mut length = [0; 4];
        self.input.read_exact(&mut length)?;
        let length = u32::from_be_bytes(length) as usize;
        self.check(length)?;
        message.resize(length, 0);
        self.input.read_exact(message)?;
        Ok(true)
    }

    /// Reads a message of fixed length; the last message may be shorter.
    fn piece(&mut self, message: &mut Vec<u8>) -> Result<bool, ReadError> {
        self.check(self.size)?;
        self.input.by_ref().take(self.size as u64).read_to_end(message)?;
        Ok(!message.is_empty())
    }

    /// Reads the available bytes, or waits for the next bytes.
    fn some(&mut self, message: &mut Vec<u8>) -> Result<bool, ReadError> {
        message.resize(PIECE_BYTES.min(self.bytes_max), 0);
        let bytes = loop {
            match self.input.read(message) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        message.truncate(bytes);
        Ok(bytes > 0)
    }

    const fn check(&self, bytes: usize) -> Result<(), ReadError> {
        if bytes > self.bytes_max { Err(ReadError::TooLong { bytes_max: self.bytes_max }) } else { Ok(()) }
    }
}

/// Writes a message in a form.
pub fn write(out: &mut impl Write, form: Form, message: &[u8]) -> io::Result<()> {
    match form {
        Form::Lines => {
            out.write_all(message)?;
            out.write_all(b"\n")
        }
        Form::Lengths => {
            let length = u32::try_from(message.len()).map_err(|_| ErrorKind::InvalidInput)?;
            out.write_all(&length.to_be_bytes())?;
            out.write_all(message)
        }
        Form::Bytes => out.write_all(message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(input: &[u8], form: Form) -> (Vec<Vec<u8>>, Option<ReadError>) {
        let mut messages = Messages::new(input, form, 3, 5);
        let (mut all, mut message) = (Vec::new(), Vec::new());
        loop {
            match messages.next(&mut message) {
                Ok(true) => all.push(message.clone()),
                Ok(false) => return (all, None),
                Err(error) => return (all, Some(error)),
            }
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let messages = [b"one".to_vec(), b"".to_vec(), b"five!".to_vec()];
        for form in [Form::Lines, Form::Lengths] {
            let mut bytes = Vec::new();
            messages.iter().for_each(|message| write(&mut bytes, form, message).unwrap());
            let (all, error) = read(&bytes, form);
            assert!(all == messages && error.is_none(), "{form:?}: {all:?} {error:?}");
        }
        assert_eq!(read(b"one\ntwo", Form::Lines).0, [b"one", b"two"], "the last line may be without an end");
        assert_eq!(read(b"onetwofo", Form::Bytes).0, [&b"one"[..], b"two", b"fo"]);
    }

    #[test]
    fn what_is_too_long_or_breaks_off_is_an_error_and_takes_no_memory() {
        let (all, error) = read(b"fine\nlonger than five", Form::Lines);
        assert!(all == [b"fine"] && matches!(error, Some(ReadError::TooLong { bytes_max: 5 })));
        let (_, error) = read(&u32::MAX.to_be_bytes(), Form::Lengths);
        assert!(matches!(error, Some(ReadError::TooLong { .. })));
        for cut in [&b"\0\0"[..], b"\0\0\0\x03ab"] {
            assert!(matches!(read(cut, Form::Lengths).1, Some(ReadError::Truncated)));
        }
    }
}
