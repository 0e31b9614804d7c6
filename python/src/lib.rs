//! Native part of the Python package: sessions of `headwater_cli::embed` as objects that wait without the
//! interpreter's lock. Threads of sessions never touch Python.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use headwater::StopHandle;
use headwater::pgm::PgmFeed;
use headwater::stream::StreamFeed;
use headwater_cli::embed::{self, Delivery, EmbeddedSession};
use headwater_cli::exit::{Exit, Failure};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rustix::event::EventfdFlags;

/// Longest wait without a look at the interpreter's signals.
const SLICE: Duration = Duration::from_millis(100);

/// Failure as the arguments of an exception: exit code and message.
fn raise(py: Python<'_>, failure: &Failure) -> PyErr {
    let raised = py
        .import("headwater._errors")
        .and_then(|module| module.getattr("of_exit_code"))
        .and_then(|make| make.call1((failure.exit as u8, failure.chain())));
    match raised {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}

/// File descriptor that becomes readable when a session has something to deliver.
struct Wakeup(OwnedFd);

impl Wake for Wakeup {
    fn wake(self: Arc<Self>) {
        // Fails only if the counter is full, and then the descriptor is readable.
        rustix::io::write(&self.0, &1_u64.to_ne_bytes()).ok();
    }
}

/// Queue into a session.
enum Feed {
    None,
    Buffers(StreamFeed),
    Messages(PgmFeed),
}

/// A running session.
#[pyclass(module = "headwater._native", frozen)]
struct Session {
    session: Mutex<Option<Box<dyn EmbeddedSession>>>,
    stop: StopHandle,
    feed: Feed,
    wakeup: Arc<Wakeup>,
    /// Process that started the session: threads do not survive a fork.
    process: u32,
}

type Embedded = Result<(Box<dyn EmbeddedSession>, Feed), Failure>;

#[pymethods]
impl Session {
    /// Starts a session: its kind, and the words of the command.
    #[new]
    fn new(py: Python<'_>, kind: &str, words: Vec<String>) -> PyResult<Self> {
        let open = move || -> Option<Embedded> {
            let plain = |session| (session, Feed::None);
            Some(match kind {
                "send" => embed::send(&words).map(plain),
                "receive" => embed::receive(&words).map(plain),
                "send-stream" => {
                    embed::send_stream(&words).map(|(session, feed)| (session, Feed::Buffers(feed)))
                }
                "receive-stream" => embed::receive_stream(&words).map(plain),
                "send-messages" => {
                    embed::send_messages(&words).map(|(session, feed)| (session, Feed::Messages(feed)))
                }
                "receive-messages" => embed::receive_messages(&words).map(plain),
                _ => return None,
            })
        };
        // Hashing and resolving take their time.
        let opened = py.detach(open).ok_or_else(|| PyValueError::new_err("no such kind of session"))?;
        let (session, feed) = opened.map_err(|failure| raise(py, &failure))?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let wakeup = rustix::event::eventfd(0, flags)
            .map_err(|errno| raise(py, &Failure::of(Exit::Other, std::io::Error::from(errno))))?;
        let stop = session.stop_handle();
        let session = Mutex::new(Some(session));
        Ok(Self { session, stop, feed, wakeup: Arc::new(Wakeup(wakeup)), process: std::process::id() })
    }

    /// Waits for the next delivery, at most for some seconds; `None` if the time is over, `()` at the end.
    fn next<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.check()?;
        let deadline = timeout.map(seconds).transpose()?.map(|timeout| Instant::now() + timeout);
        loop {
            py.check_signals()?;
            let left = deadline.map_or(SLICE, |deadline| deadline.saturating_duration_since(Instant::now()));
            let next = py.detach(|| self.next_slice(left.min(SLICE)));
            match next {
                Poll::Ready(delivery) => return delivered(py, delivery).map(Some),
                Poll::Pending if deadline.is_some_and(|deadline| Instant::now() >= deadline) => {
                    return Ok(None);
                }
                Poll::Pending => {}
            }
        }
    }

    /// Returns the next delivery without a wait, `()` at the end. After `None`, the descriptor becomes readable.
    fn poll<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.check()?;
        // Fails if the counter is 0.
        rustix::io::read(&self.wakeup.0, &mut [0; 8]).ok();
        let waker = Waker::from(Arc::clone(&self.wakeup));
        let polled = match self.lock().as_mut() {
            Some(session) => session.poll_next(&mut Context::from_waker(&waker)),
            None => Poll::Ready(None),
        };
        match polled {
            Poll::Ready(delivery) => delivered(py, delivery).map(Some),
            Poll::Pending => Ok(None),
        }
    }

    /// Descriptor that becomes readable after `poll` has returned `None`.
    fn fileno(&self) -> PyResult<i32> {
        self.check()?;
        Ok(self.wakeup.0.as_raw_fd())
    }

    /// Asks the session to end.
    fn stop(&self) -> PyResult<()> {
        self.check()?;
        self.stop.stop();
        Ok(())
    }

    /// Waits for the end of the session's thread. Returns the last events; raises the session's error.
    fn end(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.check()?;
        let session = self.lock().take();
        let Some(mut session) = session else { return Ok(None) };
        let (lines, result) = py.detach(move || session.end());
        result.map(|()| lines).map_err(|failure| raise(py, &failure))
    }

    /// Hands over a buffer with its sending time in seconds, or a message.
    fn send(&self, py: Python<'_>, data: &Bound<'_, PyAny>, duration: Option<f64>) -> PyResult<()> {
        self.check()?;
        let bytes = PyBuffer::<u8>::get(data)?.to_vec(py)?;
        let ended = |error: &dyn std::error::Error| PyRuntimeError::new_err(error.to_string());
        let buffer = Arc::<[u8]>::from(bytes);
        loop {
            py.check_signals()?;
            let is_taken = match &self.feed {
                Feed::Buffers(feed) => {
                    let duration =
                        duration.ok_or_else(|| PyValueError::new_err("a buffer has a duration"))?;
                    let duration = seconds(duration)?;
                    py.detach(|| feed.submit_within(&buffer, duration, SLICE))
                        .map_err(|error| ended(&error))?
                }
                Feed::Messages(feed) => {
                    py.detach(|| feed.send_within(&buffer, SLICE)).map_err(|error| ended(&error))?
                }
                Feed::None => return Err(PyRuntimeError::new_err("this session takes no data")),
            };
            if is_taken {
                return Ok(());
            }
        }
    }

    /// Ends the data: the session ends once all of it is sent.
    fn finish(&self) -> PyResult<()> {
        self.check()?;
        match &self.feed {
            Feed::Buffers(feed) => feed.finish(),
            Feed::Messages(feed) => feed.finish(),
            Feed::None => {}
        }
        Ok(())
    }
}

impl Session {
    fn lock(&self) -> MutexGuard<'_, Option<Box<dyn EmbeddedSession>>> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses calls in a process that was forked off.
    fn check(&self) -> PyResult<()> {
        if self.process == std::process::id() {
            return Ok(());
        }
        Err(PyRuntimeError::new_err(
            "this session belongs to the process that was forked: start a session of its own in this process",
        ))
    }

    fn next_slice(&self, timeout: Duration) -> Poll<Option<Delivery>> {
        let mut session = self.lock();
        let Some(session) = session.as_mut() else { return Poll::Ready(None) };
        match session.next_within(timeout) {
            Some(delivery) => Poll::Ready(Some(delivery)),
            // Whether the time is over or the session has ended.
            None => session.poll_next(&mut Context::from_waker(Waker::noop())),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let session = self.session.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if self.process == std::process::id() {
            // Stops the session and waits for its thread, which never waits for the interpreter.
            drop(session);
        } else {
            // The thread is in the other process.
            std::mem::forget(session);
        }
    }
}

fn seconds(seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|error| PyValueError::new_err(format!("{seconds} s: {error}")))
}

/// Converts a delivery: `("events", lines)`, `("buffer", bytes, length)`, `("message", bytes)`,
/// `("gap", packets)`, or `()` for the end.
fn delivered(py: Python<'_>, delivery: Option<Delivery>) -> PyResult<Bound<'_, PyAny>> {
    let tuple = match delivery {
        None => ().into_pyobject(py)?,
        Some(Delivery::Events(lines)) => ("events", lines).into_pyobject(py)?,
        Some(Delivery::Buffer { prefix, length }) => {
            ("buffer", PyBytes::new(py, &prefix), length).into_pyobject(py)?
        }
        Some(Delivery::Message(message)) => ("message", PyBytes::new(py, &message)).into_pyobject(py)?,
        Some(Delivery::Gap(packets)) => ("gap", packets).into_pyobject(py)?,
    };
    Ok(tuple.into_any())
}

/// Native part of the package `headwater`.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<Session>()
}
