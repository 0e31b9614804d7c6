//! `headwater demo`: one sender, three receivers, real multicast over loopback, in one process.

mod cast;
mod clip;
pub mod content;
mod table;
mod video;
mod view;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use headwater::{ReceiveSummary, SendSession, SendSummary, SendUpdate, Session, StopHandle};
use headwater_proto::eventlog::{Event, Role};
use headwater_proto::{Rate, Size};
use tempfile::TempDir;

use crate::args::DemoArgs;
use crate::capture::Capture;
use crate::events::Events;
use crate::exit::{Exit, Failure, OrExit};
use crate::live::Live;
use crate::screen::Screen;
use crate::shutdown::Shutdown;
use crate::{receive, send};
use cast::{LATE, MANY_RATES, ONE_RATE, RECEIVERS, Stage, StageReport};
use table::{Row, Table};
use view::View;

/// Default length of the content, and with a page.
const BYTES: u64 = 20_000_000;
const PAGE_BYTES: u64 = 40_000_000;
/// Highest default rate of a receiver with a page, in kbit/s.
const PAGE_RATE_KBITS: u64 = 16_000;
/// Interval of looking for a browser, and for a signal.
const BROWSER_CHECK: Duration = Duration::from_millis(50);
/// Longest wait for a browser before the start.
const BROWSER_WAIT: Duration = Duration::from_secs(10);
/// Default duration of a pass; the late receiver ends the demo after 1.4 passes.
const PASS: Duration = Duration::from_secs(6);
const RATE_MIN_BITS: u64 = 1_000_000;
/// Maximum default rate in bit/s, above which small machines lose packets.
const RATE_MAX_BITS: u64 = 100_000_000;

/// Runs the demo in a temporary folder, which is deleted at the end.
pub fn run(args: &DemoArgs) -> Result<Exit, Failure> {
    let screen = Screen::new(&args.output);
    if args.video.is_video {
        return video::run(args, &screen);
    }
    let capture = args.output.pcap.as_deref().map(Capture::create).transpose()?;
    let shutdown = Shutdown::install(capture.as_ref())?;
    let folder = tempfile::Builder::new().prefix("headwater-demo-").tempdir();
    let folder = folder.or_exit(Exit::Disk, "cannot make a temporary folder; is there room in $TMPDIR?")?;
    let mut events = Events::open(&args.output, "headwater demo")?;
    let mut live = Live::open(&args.view, &mut events)?;
    if let Some(live) = &mut live {
        live.serve(None, &screen)?;
        await_browser(live, &screen, &shutdown);
    }
    let played = play(args, folder.path(), &screen, &mut events, &shutdown, capture.as_ref());
    screen.clear();
    let result = played
        .and_then(|ended| conclude(args, &ended, &mut events))
        .map_err(|failure| events.failed(failure));
    events.finish()?;
    capture.map_or(Ok(()), Capture::finish)?;
    if live.is_some() && result.is_ok() {
        screen.say("the page stays until ^C");
        while !shutdown.is_asked() {
            std::thread::sleep(BROWSER_CHECK);
        }
    }
    put_away(args, folder, &screen)?;
    result.map(|()| Exit::Ok)
}

/// Waits for a browser, so that nobody misses the beginning.
fn await_browser(live: &Live, screen: &Screen, shutdown: &Shutdown) {
    let wait = BROWSER_WAIT.as_secs();
    screen.say(&format!("open the page in a browser: the demo begins then, or in {wait} s"));
    let began = Instant::now();
    while !live.view().has_viewers() && began.elapsed() < BROWSER_WAIT && !shutdown.is_asked() {
        std::thread::sleep(BROWSER_CHECK);
    }
}

fn put_away(args: &DemoArgs, folder: TempDir, screen: &Screen) -> Result<(), Failure> {
    if args.keep {
        let path = folder.keep();
        screen.say(&format!("the files are in '{}'", path.display()));
        return Ok(());
    }
    let tried = format!("cannot delete the temporary folder '{}'", folder.path().display());
    folder.close().or_exit(Exit::Disk, tried)
}

/// Completed demo.
struct Ended {
    names: [&'static str; RECEIVERS],
    original: PathBuf,
    bytes: u64,
    sent: SendSummary,
    received: Vec<(Duration, PathBuf, ReceiveSummary)>,
}

/// Demo in progress.
struct Play<'a> {
    args: &'a DemoArgs,
    folder: &'a Path,
    stage: Stage,
    tsi: u32,
    facts: send::Facts,
    reports: Sender<StageReport>,
    shutdown: &'a Shutdown,
    events: &'a mut Events,
    view: View<'a>,
    /// Session of the sender before the start.
    waiting: Option<SendSession>,
    listening: usize,
    threads: Vec<JoinHandle<()>>,
    stop: StopHandle,
    started: Option<Instant>,
    joined: [Option<Duration>; RECEIVERS],
    sent: Option<SendSummary>,
    received: [Option<ReceiveSummary>; RECEIVERS],
}

fn play(
    args: &DemoArgs,
    folder: &Path,
    screen: &Screen,
    events: &mut Events,
    shutdown: &Shutdown,
    capture: Option<&Capture>,
) -> Result<Ended, Failure> {
    let original = original(args, folder)?;
    let metadata =
        std::fs::metadata(&original).or_exit(Exit::Usage, format!("cannot read '{}'", original.display()))?;
    let bytes = metadata.len();
    if bytes == 0 {
        return Err(Failure::new(
            Exit::Usage,
            "the demo needs content; give a file or --size of at least 1 byte",
        ));
    }
    let (cast, rate) = match args.view.http {
        None => (ONE_RATE, args.rate.unwrap_or_else(|| rate_for(bytes))),
        Some(_) => (MANY_RATES, args.rate.unwrap_or_else(page_rate)),
    };
    let at = if args.view.http.is_some() { "at three rates up to" } else { "at" };
    screen.say(&format!("{} to three receivers over loopback multicast, {at} {rate}", Size(bytes)));
    let stage = Stage::set(cast, rate, args.view.http.is_some())?;
    let session = stage.sender(&original, capture)?;
    let (reports, inbox) = mpsc::channel();
    let mut play = Play {
        args,
        folder,
        tsi: session.started().tsi,
        facts: send::Facts { symbols: session.plan().symbols() },
        stage,
        reports,
        shutdown,
        events,
        view: View::new(screen, &cast),
        stop: session.stop_handle(),
        waiting: Some(session),
        listening: 0,
        threads: Vec::new(),
        started: None,
        joined: [None; RECEIVERS],
        sent: None,
        received: [const { None }; RECEIVERS],
    };
    let outcome = play.begin().and_then(|()| play.watch(&inbox));
    play.end_threads();
    outcome?;
    play.ended(original, bytes)
}

impl Play<'_> {
    fn begin(&mut self) -> Result<(), Failure> {
        (0..RECEIVERS).filter(|receiver| *receiver != LATE).try_for_each(|receiver| self.receive(receiver))
    }

    /// Runs until the end of the sender.
    fn watch(&mut self, inbox: &Receiver<StageReport>) -> Result<(), Failure> {
        while self.sent.is_none() {
            // The main thread holds a sending end, so that the channel never closes.
            let report = inbox.recv().or_exit(Exit::Other, "the threads of the demo have ended")?;
            self.report(report)?;
            if self.shutdown.is_asked() {
                return Err(Failure::new(
                    Exit::Interrupted,
                    "interrupted; the demo's files have been removed",
                ));
            }
        }
        Ok(())
    }

    fn report(&mut self, report: StageReport) -> Result<(), Failure> {
        match report {
            StageReport::Sender(update) => self.sender(&update),
            StageReport::SenderEnded(result) => {
                let summary = result.map_err(|error| send::failure("cannot send over loopback", error))?;
                let progress = send::progress(&summary.progress, self.facts.symbols);
                let event = Event::SessionEnded { role: Role::Sender, outcome: "completed", progress };
                self.events.emit(Some("sender"), &event);
                self.sent = Some(*summary);
                Ok(())
            }
            StageReport::Receiver(receiver, update) => {
                receive::log(&update, self.stage.group, Some(self.stage.cast.names[receiver]), self.events);
                self.view.receiver(receiver, &update);
                if matches!(update, headwater::ReceiveUpdate::Joined(_)) {
                    self.joined(receiver)?;
                }
                Ok(())
            }
            StageReport::ReceiverEnded(receiver, result) => {
                let summary =
                    result.map_err(|error| receive::error_failure("cannot receive over loopback", error))?;
                self.received(receiver, *summary)
            }
        }
    }

    fn sender(&mut self, update: &SendUpdate) -> Result<(), Failure> {
        send::log(update, self.facts, Some("sender"), self.events);
        self.view.sender(update);
        match update {
            SendUpdate::Started(_) => self.started = Some(Instant::now()),
            SendUpdate::Progress(progress)
                if self.joined[LATE].is_none()
                    && self.stage.cast.late_at.has_come(progress.passes, self.started) =>
            {
                self.view.joins(LATE);
                self.receive(LATE)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn receive(&mut self, receiver: usize) -> Result<(), Failure> {
        self.joined[receiver] = Some(self.started.map_or(Duration::ZERO, |started| started.elapsed()));
        let out = self.folder.join(self.stage.cast.names[receiver]);
        let reports = self.reports.clone();
        let seed = self.args.seed;
        let thread = self.stage.receive(receiver, out, self.tsi, seed, reports, self.shutdown)?;
        self.threads.push(thread);
        Ok(())
    }

    /// Waits for all threads, so that no thread writes while the folder is deleted.
    fn end_threads(&mut self) {
        self.shutdown.stop_sessions();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the demo panicked");
            }
        }
    }

    /// Starts the sender once the first two receivers have joined.
    fn joined(&mut self, receiver: usize) -> Result<(), Failure> {
        self.listening += usize::from(receiver != LATE);
        if self.listening == RECEIVERS - 1
            && let Some(session) = self.waiting.take()
        {
            self.threads.push(cast::send(session, self.reports.clone(), self.shutdown)?);
        }
        Ok(())
    }

    fn received(&mut self, receiver: usize, summary: ReceiveSummary) -> Result<(), Failure> {
        let progress = receive::progress(&summary.progress);
        let outcome = receive::outcome_name(&summary.outcome);
        let event = Event::SessionEnded { role: Role::Receiver, outcome, progress };
        receive::show_progress(&summary.progress, Some(self.stage.cast.names[receiver]), self.events);
        self.events.emit(Some(self.stage.cast.names[receiver]), &event);
        let (outcome, refused) = (&summary.outcome, summary.files_refused);
        if let Some(failure) = receive::failure(outcome, refused, self.stage.group, self.folder) {
            return Err(failure);
        }
        self.view.ended(receiver, &summary.progress);
        self.received[receiver] = Some(summary);
        if self.received.iter().all(Option::is_some) {
            self.stop.stop();
        }
        Ok(())
    }

    fn ended(self, original: PathBuf, bytes: u64) -> Result<Ended, Failure> {
        let sent = self.sent.ok_or_else(|| Failure::new(Exit::Other, "the sender did not end"))?;
        let name = original.file_name().unwrap_or_default().to_owned();
        let copies = self.joined.into_iter().zip(self.received).zip(self.stage.cast.names);
        let received = copies.map(|((joined, summary), receiver)| {
            let copy = self.folder.join(receiver).join(&name);
            Some((joined?, copy, summary?))
        });
        let received = received.collect::<Option<Vec<_>>>();
        let received =
            received.ok_or_else(|| Failure::new(Exit::Incomplete, "the sender ended too early"))?;
        Ok(Ended { names: self.stage.cast.names, original, bytes, sent, received })
    }
}

/// Returns the given file, or creates a file.
fn original(args: &DemoArgs, folder: &Path) -> Result<PathBuf, Failure> {
    if let Some(file) = &args.file {
        let metadata =
            std::fs::metadata(file).or_exit(Exit::Usage, format!("cannot read '{}'", file.display()))?;
        if !metadata.is_file() {
            return Err(Failure::new(Exit::Usage, format!("'{}' is not a file", file.display())));
        }
        return Ok(file.clone());
    }
    let path = folder.join("demo.bin");
    let bytes = if args.view.http.is_some() { PAGE_BYTES } else { BYTES };
    let size = args.size.unwrap_or(Size(bytes));
    content::make(&path, size.0, args.seed)
        .or_exit(Exit::Disk, format!("cannot write {size} to '{}'", path.display()))?;
    Ok(path)
}

/// Returns the default rate with a page.
fn page_rate() -> Rate {
    Rate::from_kilobits(PAGE_RATE_KBITS)
}

/// Returns the rate at which a pass takes [`PASS`], within bounds.
fn rate_for(bytes: u64) -> Rate {
    let bits = bytes.saturating_mul(8) / PASS.as_secs();
    Rate::from_bits(bits.clamp(RATE_MIN_BITS, RATE_MAX_BITS)).expect("the bounds are above 0")
}

/// Compares the copies with the original, and prints the summary.
fn conclude(args: &DemoArgs, ended: &Ended, events: &mut Events) -> Result<(), Failure> {
    let digest = digest(&ended.original)?;
    let mut rows = Vec::new();
    for ((joined, copy, summary), receiver) in ended.received.iter().zip(ended.names) {
        let blake3 = self::digest(copy)?;
        let identical = blake3 == digest;
        let file = copy.file_name().unwrap_or_default().to_string_lossy();
        let event = Event::CopyCompared { file: &file, identical, blake3: blake3.to_hex().to_string() };
        events.emit(Some(receiver), &event);
        rows.push(Row { joined: *joined, summary: summary.clone(), identical });
    }
    if !args.output.json && !args.output.quiet {
        let table = Table { names: &ended.names, rows: &rows, sent: &ended.sent, bytes: ended.bytes, digest };
        match writeln!(io::stdout(), "{table}") {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                return Err(error).or_exit(Exit::Other, "cannot write to standard output");
            }
            _ => {}
        }
    }
    if rows.iter().any(|row| !row.identical) {
        return Err(Failure::new(Exit::VerificationFailed, "a copy differs from the original"));
    }
    Ok(())
}

fn digest(path: &Path) -> Result<blake3::Hash, Failure> {
    content::digest(path).or_exit(Exit::Disk, format!("cannot read '{}'", path.display()))
}
