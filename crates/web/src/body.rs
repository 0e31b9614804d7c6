//! Bytes of a file at the server's rate.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::Body;
use bytes::Bytes;
use futures_core::Stream;
use headwater::PublishedFile;
use headwater_proto::Rate;
use headwater_proto::delivery::SourceError;
use tokio::sync::mpsc;

/// Bounds of the bytes that are read at once. A connection holds at most three pieces.
const PIECE_BYTES_MIN: u64 = SEGMENT_BYTES;
const PIECE_BYTES_MAX: u64 = 32 << 10;
/// Pieces a second at the rate: no connection waits for long while all others send a piece each.
const PIECES_PER_SECOND: u64 = 64;
/// Burst above the rate, as time at the rate.
const BURST: Duration = Duration::from_millis(50);
/// Bytes of headers of TCP, IPv4 and Ethernet for each [`SEGMENT_BYTES`] of content.
const HEADER_BYTES: u64 = 66;
const SEGMENT_BYTES: u64 = 1_448;

/// Token bucket of all connections, with the time of the last byte.
#[derive(Debug)]
pub(crate) struct Pacer {
    rate: u64,
    began: Instant,
    state: Mutex<State>,
    /// Milliseconds from `began` to the last byte that was sent.
    last_sent: AtomicU64,
}

#[derive(Debug)]
struct State {
    /// Time at which the bucket is full again.
    full_at: Instant,
}

impl Pacer {
    pub(crate) fn new(rate: Rate) -> Self {
        let began = Instant::now();
        let state = Mutex::new(State { full_at: began });
        Self { rate: rate.as_bits().max(1), began, state, last_sent: AtomicU64::new(0) }
    }

    /// Returns the bytes of a piece.
    fn piece_bytes(&self) -> u64 {
        (self.rate / 8 / PIECES_PER_SECOND).clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX)
    }

    /// Waits until `bytes` of content may be sent. Callers are served in the order of their calls.
    pub(crate) async fn take(&self, bytes: u64) {
        let wait = self.reserve(bytes, Instant::now());
        if wait > Duration::ZERO {
            tokio::time::sleep(wait).await;
        }
        let sent = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_sent.store(sent, Ordering::Relaxed);
    }

    /// Reserves the rate for `bytes` of content and their headers. Returns the time to wait before sending.
    fn reserve(&self, bytes: u64, now: Instant) -> Duration {
        let bits = (bytes + bytes.div_ceil(SEGMENT_BYTES) * HEADER_BYTES).saturating_mul(8);
        let cost = u128::from(bits) * 1_000_000_000 / u128::from(self.rate);
        let cost = Duration::from_nanos(u64::try_from(cost).unwrap_or(u64::MAX));
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.full_at = state.full_at.max(now) + cost;
        state.full_at.saturating_duration_since(now).saturating_sub(BURST)
    }

    /// Returns the time since the last byte, or since the start.
    pub(crate) fn quiet(&self) -> Duration {
        let sent = Duration::from_millis(self.last_sent.load(Ordering::Relaxed));
        self.began.elapsed().saturating_sub(sent)
    }
}

/// Creates the body of a response: `bytes` bytes of a file from `start` on. Reads the first piece before, so
/// that a file that has changed gets another response.
///
/// # Errors
/// If the file has changed or cannot be read. A later failure ends the connection, so that no client takes
/// the content for complete.
pub(crate) async fn body(
    file: PublishedFile,
    start: u64,
    bytes: u64,
    pacer: Arc<Pacer>,
) -> Result<Body, SourceError> {
    let piece_bytes = pacer.piece_bytes();
    let mut piece = read(&file, start, bytes.min(piece_bytes)).await?;
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        let (mut at, end) = (start, start + bytes);
        loop {
            pacer.take(piece.len() as u64).await;
            at += piece.len() as u64;
            if sender.send(Ok(piece)).await.is_err() || at == end {
                return;
            }
            piece = match read(&file, at, piece_bytes.min(end - at)).await {
                Ok(piece) => piece,
                Err(error) => {
                    // The client may have gone already.
                    let _gone = sender.send(Err(error)).await;
                    return;
                }
            };
        }
    });
    Ok(Body::from_stream(Pieces(receiver)))
}

/// Creates the body of a response: a text.
pub(crate) fn text_body(text: Arc<str>, pacer: Arc<Pacer>) -> Body {
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        let length = usize::try_from(pacer.piece_bytes()).unwrap_or(usize::MAX);
        for piece in text.as_bytes().chunks(length) {
            pacer.take(piece.len() as u64).await;
            if sender.send(Ok(Bytes::copy_from_slice(piece))).await.is_err() {
                return;
            }
        }
    });
    Body::from_stream(Pieces::<SourceError>(receiver))
}

async fn read(file: &PublishedFile, at: u64, bytes: u64) -> Result<Bytes, SourceError> {
    let length = usize::try_from(bytes.min(PIECE_BYTES_MAX)).unwrap_or_default();
    let file = file.clone();
    let reading = tokio::task::spawn_blocking(move || {
        let mut piece = vec![0; length];
        file.read(at, &mut piece).map(|()| Bytes::from(piece))
    });
    reading.await.unwrap_or_else(|error| Err(SourceError::Session(error.to_string())))
}

/// Pieces of a body, from a queue.
pub(crate) struct Pieces<E>(pub(crate) mpsc::Receiver<Result<Bytes, E>>);

impl<E> Stream for Pieces<E> {
    type Item = Result<Bytes, E>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_includes_headers_and_holds_for_all_callers() {
        let pacer = Pacer::new(Rate::from_kilobits(8_000));
        let now = Instant::now();
        let waits: Vec<_> = (0..100).map(|_| pacer.reserve(14_480, now)).collect();
        // 100 pieces of ten segments of 1514 bytes, at 1 MB/s.
        let expected = Duration::from_micros(1_514_000) - BURST;
        assert_eq!(waits[99], expected);
        assert!(waits.is_sorted() && waits[0] == Duration::ZERO);
        assert_eq!(pacer.reserve(0, now + Duration::from_secs(60)), Duration::ZERO);
    }
}
