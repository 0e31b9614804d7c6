//! Content codings: encoding with bounded output, decoding with bounded output and memory.
//!
//! Encoded content is deterministic: the same content, coding and version of the libraries give the same
//! bytes, so that receivers go on after a restart of the sender.

use std::io::{self, BufRead, Read, Write};

use flate2::bufread::MultiGzDecoder;
use flate2::write::GzEncoder;
use flate2::{Compression, GzBuilder};
use headwater_proto::delivery::ContentCoding;

/// Level of zstd: 3, the library's default. A single thread encodes faster than any common network sends.
const ZSTD_LEVEL: i32 = 3;
/// Level of gzip: 6, the default of all tools.
const GZIP_LEVEL: u32 = 6;
/// Largest window of a zstd frame that is decoded, as a power of two: 8 MiB, which RFC 8878 (section
/// 3.1.1.1.2) asks every decoder to support.
const WINDOW_LOG_MAX: u32 = 23;
/// Bound on the memory of decoding, in bytes: the window, and the buffers of the library and of [`decode`].
pub(crate) const DECODING_BYTES: u64 = (1 << WINDOW_LOG_MAX) + (2 << 20);
/// Bytes that are decoded at once.
const CHUNK_BYTES: usize = 256 << 10;

/// Reason why encoded content is not decoded.
#[derive(Debug, thiserror::Error)]
pub enum DecodeFault {
    /// The content is longer than announced.
    #[error("the decoded content is longer than the {0} bytes that were announced")]
    Longer(u64),
    /// The content is shorter than announced.
    #[error("the decoded content has {got} bytes, and {announced} were announced")]
    Shorter {
        /// Bytes of the content.
        got: u64,
        /// Announced bytes.
        announced: u64,
    },
    /// The encoded content is cut short, damaged, or followed by other bytes.
    #[error("the content is no valid {coding}: {reason}")]
    Corrupt {
        /// The coding.
        coding: ContentCoding,
        /// Message of the library.
        reason: String,
    },
    /// The encoding asks the decoder for too much memory.
    #[error("the content needs a window above {} MiB; encode it with a smaller window", 1 << (WINDOW_LOG_MAX - 20))]
    Window,
    /// The decoded content could not be written.
    #[error(transparent)]
    Sink(io::Error),
}

/// Decodes content of exactly `bytes` bytes and passes the content piece by piece to `sink`, which never gets
/// more than `bytes`. All of `input` must belong to the encoding: several gzip members or zstd frames, and
/// nothing else.
///
/// Memory: 10 MiB.
///
/// # Errors
/// [`DecodeFault`]. The content that `sink` got by then has no value.
pub fn decode(
    coding: ContentCoding,
    input: impl BufRead,
    bytes: u64,
    mut sink: impl FnMut(&[u8]) -> io::Result<()>,
) -> Result<(), DecodeFault> {
    let fault = |error: io::Error| {
        let reason = error.to_string();
        // The library has no kind for this error.
        let is_window = coding == ContentCoding::Zstd && reason.contains("too much memory");
        if is_window { DecodeFault::Window } else { DecodeFault::Corrupt { coding, reason } }
    };
    let mut decoder: Box<dyn Read + '_> = match coding {
        ContentCoding::Gzip => Box::new(MultiGzDecoder::new(input)),
        ContentCoding::Zstd => {
            let mut decoder = zstd::Decoder::with_buffer(input).map_err(fault)?;
            decoder.window_log_max(WINDOW_LOG_MAX).map_err(fault)?;
            Box::new(decoder)
        }
    };
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut got = 0;
    loop {
        let read = match decoder.read(&mut chunk) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read.map_err(fault)?,
        };
        got += read as u64;
        if got > bytes {
            return Err(DecodeFault::Longer(bytes));
        }
        if read == 0 {
            break;
        }
        sink(&chunk[..read]).map_err(DecodeFault::Sink)?;
    }
    if got < bytes { Err(DecodeFault::Shorter { got, announced: bytes }) } else { Ok(()) }
}

/// Encoder that writes to `W`.
pub(crate) enum Encoder<W: Write> {
    Gzip(GzEncoder<W>),
    Zstd(zstd::Encoder<'static, W>),
}

impl<W: Write> Encoder<W> {
    /// Encodes content of `bytes` bytes.
    ///
    /// # Errors
    /// If the library refuses the parameters.
    pub(crate) fn new(coding: ContentCoding, to: W, bytes: u64) -> io::Result<Self> {
        match coding {
            // Without name and time: the same content gives the same bytes.
            ContentCoding::Gzip => {
                Ok(Self::Gzip(GzBuilder::new().mtime(0).write(to, Compression::new(GZIP_LEVEL))))
            }
            ContentCoding::Zstd => {
                let mut encoder = zstd::Encoder::new(to, ZSTD_LEVEL)?;
                encoder.set_pledged_src_size(Some(bytes))?;
                encoder.include_checksum(true)?;
                Ok(Self::Zstd(encoder))
            }
        }
    }

    /// Ends the encoding.
    ///
    /// # Errors
    /// If the rest cannot be written, or the content had another length.
    pub(crate) fn finish(self) -> io::Result<W> {
        match self {
            Self::Gzip(encoder) => encoder.finish(),
            Self::Zstd(encoder) => encoder.finish(),
        }
    }
}

impl<W: Write> Write for Encoder<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Gzip(encoder) => encoder.write(bytes),
            Self::Zstd(encoder) => encoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Gzip(encoder) => encoder.flush(),
            Self::Zstd(encoder) => encoder.flush(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(coding: ContentCoding, content: &[u8]) -> Vec<u8> {
        let mut encoder = Encoder::new(coding, Vec::new(), content.len() as u64).unwrap();
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    /// Decodes and returns the bytes that the sink got, and the result.
    fn decoded(coding: ContentCoding, encoded: &[u8], bytes: u64) -> (u64, Result<(), DecodeFault>) {
        let mut got = 0;
        let result = decode(coding, encoded, bytes, |chunk| {
            got += chunk.len() as u64;
            Ok(())
        });
        (got, result)
    }

    fn text(bytes: usize) -> Vec<u8> {
        (0..).flat_map(|line: u32| format!("line {line} of a text\n").into_bytes()).take(bytes).collect()
    }

    #[test]
    fn content_comes_back_and_is_encoded_to_the_same_bytes_each_time() {
        for coding in ContentCoding::ALL {
            for content in [text(0), text(1), text(3_000_000)] {
                let encoded_once = encoded(coding, &content);
                assert_eq!(encoded(coding, &content), encoded_once);
                let mut back = Vec::new();
                decode(coding, &encoded_once[..], content.len() as u64, |chunk| {
                    back.extend_from_slice(chunk);
                    Ok(())
                })
                .unwrap();
                assert!(back == content, "{coding}");
            }
        }
    }

    #[test]
    fn a_bomb_writes_no_more_than_announced() {
        for coding in ContentCoding::ALL {
            let mut encoder = Encoder::new(coding, Vec::new(), 1 << 30).unwrap();
            let zeros = vec![0; 1 << 20];
            (0..1_024).for_each(|_| encoder.write_all(&zeros).unwrap());
            let bomb = encoder.finish().unwrap();
            let (got, result) = decoded(coding, &bomb, 1 << 20);
            assert!(matches!(result, Err(DecodeFault::Longer(_))), "{coding}: {result:?}");
            assert!(got <= 1 << 20, "{coding}: {got}");
            // The reverse: a claim of a gibibyte over a mebibyte.
            let (got, result) = decoded(coding, &encoded(coding, &zeros), 1 << 30);
            assert!(
                matches!(result, Err(DecodeFault::Shorter { got: 1_048_576, .. })),
                "{coding}: {result:?}"
            );
            assert_eq!(got, 1 << 20);
        }
    }

    #[test]
    fn cut_damaged_and_prolonged_content_is_refused() {
        let content = text(300_000);
        let bytes = content.len() as u64;
        for coding in ContentCoding::ALL {
            let whole = encoded(coding, &content);
            for cut in [0, 1, 5, whole.len() / 2, whole.len() - 1] {
                assert!(decoded(coding, &whole[..cut], bytes).1.is_err(), "{coding} cut at {cut}");
            }
            for garbage in [&b"x"[..], b"trailing garbage of some length", &[0; 600]] {
                let prolonged = [&whole[..], garbage].concat();
                let result = decoded(coding, &prolonged, bytes).1;
                assert!(matches!(result, Err(DecodeFault::Corrupt { .. })), "{coding}: {result:?}");
            }
            for at in [0, 4, whole.len() / 3, whole.len() - 3] {
                let mut damaged = whole.clone();
                damaged[at] ^= 0x55;
                // Some fields, such as the operating system in gzip's header, say nothing about the content.
                let mut back = Vec::new();
                let result = decode(coding, &damaged[..], bytes, |chunk| {
                    back.extend_from_slice(chunk);
                    Ok(())
                });
                assert!(result.is_err() || back == content, "{coding} damaged at {at}");
            }
            let twice = [&whole[..], &whole].concat();
            assert!(decoded(coding, &twice, 2 * bytes).1.is_ok(), "{coding}: members follow each other");
            assert!(matches!(decoded(coding, &twice, bytes).1, Err(DecodeFault::Longer(_))), "{coding}");
        }
    }

    #[test]
    fn a_window_above_the_limit_is_refused() {
        for (window, is_fine) in [(WINDOW_LOG_MAX, true), (WINDOW_LOG_MAX + 1, false), (27, false)] {
            let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
            encoder.window_log(window).unwrap();
            encoder.write_all(&text(2_000)).unwrap();
            let (got, result) = decoded(ContentCoding::Zstd, &encoder.finish().unwrap(), 2_000);
            match is_fine {
                true => assert!(result.is_ok(), "{result:?}"),
                false => assert!(got == 0 && matches!(result, Err(DecodeFault::Window)), "{result:?}"),
            }
        }
    }

    #[test]
    fn an_error_of_the_sink_ends_the_decoding() {
        let full = |_: &[u8]| Err(io::Error::from(io::ErrorKind::StorageFull));
        let whole = encoded(ContentCoding::Zstd, &text(10));
        assert!(matches!(decode(ContentCoding::Zstd, &whole[..], 10, full), Err(DecodeFault::Sink(_))));
    }
}
