//! Stream of server-sent events. A client takes samples at its own pace: none waits for a client, and a
//! client that is far behind gets the state anew.

use std::convert::Infallible;
use std::iter::Peekable;
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use tokio::sync::{mpsc, watch};

use super::board::Messages;
use super::{LiveView, lock};

/// Time without a sample after which a comment shows whether the client is there.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Messages that wait for a slow client. Samples beyond stay with the board.
const WAITING_MAX: usize = 1;
/// Maximum bytes that are handed over at a time, if a single message is not longer.
const PIECE_BYTES: usize = 64 << 10;

/// Returns the messages for a new client.
pub(super) fn events(view: LiveView) -> impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static {
    let (sender, receiver) = mpsc::channel(WAITING_MAX);
    tokio::spawn(feed(view, sender));
    super::super::body::Pieces(receiver)
}

/// Feeds a client until the client is gone.
async fn feed(view: LiveView, client: mpsc::Sender<Result<Bytes, Infallible>>) {
    let mut samples: watch::Receiver<u64> = view.0.samples.subscribe();
    let mut next = None;
    loop {
        samples.borrow_and_update();
        let messages = lock(&view.0.board).messages(next);
        if let Messages::New(messages, count) = messages {
            let mut messages = messages.into_iter().peekable();
            let Some(piece) = next_piece(&mut messages) else { continue };
            // The rest stays with the board: no client that stalls holds samples that the board has dropped.
            next = Some(count - messages.count() as u64);
            if client.send(Ok(piece)).await.is_err() {
                return;
            }
            continue;
        }
        match tokio::time::timeout(KEEP_ALIVE, samples.changed()).await {
            Ok(Ok(())) => {}
            Ok(Err(_ended)) => return,
            Err(_quiet) => {
                if client.send(Ok(Bytes::from_static(b":\n\n"))).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// Joins the next messages to a piece. A single message is not copied.
fn next_piece(messages: &mut Peekable<impl Iterator<Item = Bytes>>) -> Option<Bytes> {
    let first = messages.next()?;
    let mut bytes = first.len();
    let mut fits = |next: &Bytes| {
        bytes += next.len();
        bytes <= PIECE_BYTES
    };
    let Some(second) = messages.next_if(&mut fits) else { return Some(first) };
    let mut piece = [first, second].concat();
    while let Some(message) = messages.next_if(&mut fits) {
        piece.extend_from_slice(&message);
    }
    Some(piece.into())
}

#[cfg(test)]
mod tests {
    use std::iter;

    use super::*;

    #[test]
    fn messages_are_joined_in_order_up_to_a_bound() {
        let messages: Vec<_> = (0..100_u8).map(|number| Bytes::from(vec![number; 3_000])).collect();
        let mut messages = messages.into_iter().peekable();
        let pieces: Vec<_> = iter::from_fn(|| next_piece(&mut messages)).collect();
        assert!(pieces.iter().all(|piece| piece.len() <= PIECE_BYTES) && pieces.len() <= 5);
        let all: Vec<u8> = pieces.iter().flatten().copied().collect();
        assert!(all.is_sorted() && all.len() == 300_000);
        let mut large = [Bytes::from(vec![0; 200_000]), Bytes::from_static(b"x")].into_iter().peekable();
        let lengths: Vec<_> = iter::from_fn(|| next_piece(&mut large)).map(|piece| piece.len()).collect();
        assert_eq!(lengths, [200_000, 1]);
    }
}
