//! Output of events: lines of JSON on standard output, records of the event log.

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use headwater_proto::eventlog::{self, Event, Progress, Role};
use headwater_web::{Details, LiveView, ViewFeed};

use crate::args::OutputArgs;
use crate::exit::{Exit, Failure, OrExit};
use crate::serve::SAMPLES;
use crate::system::wait_for_output;

/// Maximum bytes of lines that wait for the reader of standard output.
const UNREAD_MAX: usize = 1 << 20;
/// Bytes that a pipe takes at once if the pipe takes any: `PIPE_BUF`, at least 512 by POSIX.
const PIPE_BYTES: usize = if cfg!(target_os = "linux") { 4096 } else { 512 };

/// Outputs of events. Times of events count from [`Events::open`].
pub struct Events {
    start: Instant,
    json: bool,
    printed: PrintedLines,
    log: Option<Log>,
    /// Lines for the caller, if the caller takes lines.
    lines: Option<String>,
    /// Feeds of live pages.
    views: Vec<ViewFeed>,
    buffer: Vec<u8>,
}

/// Lines on standard output. A session never waits for the reader: lines wait, and progress is left out as
/// long as lines wait.
#[derive(Default)]
struct PrintedLines {
    unread: Vec<u8>,
    /// Number of events that were left out.
    left_out: u64,
    /// First failed write, which ends the output.
    failed: Option<io::Error>,
}

struct Log {
    path: PathBuf,
    file: BufWriter<File>,
    /// First failed write, which ends the log.
    failed: Option<io::Error>,
}

impl Events {
    /// Opens the requested outputs. `title` names the log, such as `headwater send`.
    pub fn open(args: &OutputArgs, title: &str) -> Result<Self, Failure> {
        let mut events = Self {
            start: Instant::now(),
            json: args.json,
            printed: PrintedLines::default(),
            log: None,
            lines: None,
            views: Vec::new(),
            buffer: Vec::new(),
        };
        if std::env::var_os(SAMPLES).is_some() && !args.json {
            // For the page of `headwater serve`, which reads standard output.
            let view = LiveView::new();
            let written = view.write_samples(io::stdout());
            written.or_exit(Exit::Other, "cannot start a thread")?;
            events.views.push(view.feed());
        }
        if let Some(path) = &args.events {
            let file = File::create(path)
                .or_exit(Exit::Disk, format!("cannot write the event log '{}'", path.display()))?;
            let wall_clock = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
            eventlog::write_header(&mut events.buffer, title, Some(&wall_clock));
            events.log = Some(Log { path: path.clone(), file: BufWriter::new(file), failed: None });
            events.flush_to_log();
        }
        Ok(events)
    }

    /// Keeps the lines of events for [`Events::take_lines`].
    pub fn collecting(self) -> Self {
        Self { lines: Some(String::new()), ..self }
    }

    /// Returns the lines of JSON since the last call, each with a newline.
    pub fn take_lines(&mut self) -> Option<String> {
        self.lines.as_mut().map(std::mem::take).filter(|lines| !lines.is_empty())
    }

    /// Shows the events on a page, too.
    pub fn show(&mut self, view: ViewFeed) {
        self.views.push(view);
    }

    /// Adds details to the next progress of an end on the page.
    pub fn details(&mut self, end: Option<&str>, details: &Details<'_>) {
        self.views.iter_mut().for_each(|view| view.on_details(end, details));
    }

    /// Names a file of an end on the page, by number.
    pub fn name_file(&mut self, end: Option<&str>, file: usize, name: &str) {
        self.views.iter_mut().for_each(|view| view.on_file(end, file, name));
    }

    /// Writes an event. `end` distinguishes several ends in one process.
    pub fn emit(&mut self, end: Option<&str>, event: &Event<'_>) {
        self.views.iter_mut().for_each(|view| view.on_event(end, event));
        let at = headwater_proto::Instant::ZERO + self.start.elapsed().into();
        if self.json || self.lines.is_some() {
            self.buffer.clear();
            eventlog::write_line(&mut self.buffer, at, end, event);
            if let Some(lines) = &mut self.lines {
                lines.push_str(&String::from_utf8_lossy(&self.buffer));
            }
            if self.json {
                self.printed.add(&self.buffer, event);
            }
        }
        if self.log.is_some() {
            self.buffer.clear();
            eventlog::write_record(&mut self.buffer, at, end, event);
            self.flush_to_log();
        }
    }

    /// Writes the event of a failure, and returns the failure.
    pub fn failed(&mut self, failure: Failure) -> Failure {
        self.emit(None, &Event::SessionFailed { reason: &failure.chain() });
        failure
    }

    /// Writes the event of a failed session with the progress, and returns the failure.
    pub fn session_failed(&mut self, role: Role, progress: Progress, failure: Failure) -> Failure {
        let failure = self.failed(failure);
        self.emit(None, &Event::SessionEnded { role, outcome: "failed", progress });
        failure
    }

    /// Closes the log.
    ///
    /// # Errors
    /// If the log or standard output could not accept all events.
    pub fn finish(mut self) -> Result<(), Failure> {
        if let Some(mut log) = self.log.take() {
            let result = match log.failed {
                Some(error) => Err(error),
                None => log.file.flush(),
            };
            result.or_exit(Exit::Disk, format!("cannot write the event log '{}'", log.path.display()))?;
        }
        self.printed.finish();
        match self.printed.failed.take().filter(|error| error.kind() != ErrorKind::BrokenPipe) {
            Some(error) => Err(error).or_exit(Exit::Disk, "cannot write the events to standard output"),
            None => Ok(()),
        }
    }

    fn flush_to_log(&mut self) {
        if let Some(log) = &mut self.log
            && log.failed.is_none()
        {
            // Each record is flushed, so that the log holds complete records even after a crash.
            log.failed = log.file.write_all(&self.buffer).and_then(|()| log.file.flush()).err();
        }
    }
}

impl PrintedLines {
    /// Writes a line as soon as the output takes the line.
    fn add(&mut self, line: &[u8], event: &Event<'_>) {
        if self.failed.is_some() {
            return;
        }
        let is_kept = match event {
            Event::SessionEnded { .. } | Event::SessionFailed { .. } => true,
            Event::SessionProgress(_) => self.unread.is_empty(),
            _ => self.unread.len() + line.len() <= UNREAD_MAX,
        };
        if is_kept {
            self.unread.extend_from_slice(line);
        } else {
            self.left_out += 1;
        }
        while !self.unread.is_empty() && wait_for_output(Some(Duration::ZERO)) {
            self.write();
        }
    }

    /// Writes the lines that wait, however long the reader takes: the session has ended.
    fn finish(&mut self) {
        while !self.unread.is_empty() && wait_for_output(None) {
            self.write();
        }
        if core::mem::take(&mut self.left_out) > 0 {
            tracing::warn!("standard output was not read in time: events are missing there");
        }
    }

    /// Writes as much as a pipe takes at once. The transfer continues if the reader has closed the output.
    fn write(&mut self) {
        let part = self.unread.len().min(PIPE_BYTES);
        let mut out = io::stdout().lock();
        let written = out.write_all(&self.unread[..part]).and_then(|()| out.flush());
        self.unread.drain(..part);
        if let Err(error) = written {
            self.unread.clear();
            if error.kind() != ErrorKind::BrokenPipe {
                tracing::warn!("standard output takes no more events: {error}");
            }
            self.failed = Some(error);
        }
    }
}

impl Drop for PrintedLines {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.finish();
        }
    }
}
