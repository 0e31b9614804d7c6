//! Jobs done ahead by threads, in order, with priority for the job that is waited for.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use headwater_proto::delivery::SourceError;

use crate::threads::yield_to_session;

/// Jobs numbered from 0, kept with their results until dropped.
pub(super) struct Background<T> {
    shared: Arc<Shared<T>>,
    workers: Vec<JoinHandle<()>>,
}

struct Shared<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

struct State<T> {
    jobs: Vec<Job<T>>,
    /// Index before which all jobs have begun.
    next: usize,
    /// Job that is waited for.
    wanted: Option<usize>,
    failed: Option<SourceError>,
    ended: bool,
}

#[derive(Clone)]
enum Job<T> {
    Waiting,
    Working,
    Done(T),
    /// The job's file is lost; other files are not affected.
    Failed(SourceError),
}

impl<T: Clone + Send + 'static> Background<T> {
    /// Starts `threads` threads for `jobs` jobs, which begin after `pause`, or once one is wanted. Each
    /// thread runs jobs with a closure from `worker`.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub(super) fn start<W>(
        jobs: usize,
        threads: usize,
        pause: Duration,
        worker: impl Fn() -> W,
    ) -> Result<Self, SourceError>
    where
        W: FnMut(usize) -> Result<T, SourceError> + Send + 'static,
    {
        let jobs = vec![Job::Waiting; jobs];
        let state = State { jobs, next: 0, wanted: None, failed: None, ended: false };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let mut background = Self { shared, workers: Vec::new() };
        for _ in 0..threads {
            let (shared, work) = (Arc::clone(&background.shared), worker());
            let thread = thread::Builder::new().name("headwater-encode".into());
            let cannot =
                |error| SourceError::Session(format!("cannot start a thread to encode blocks: {error}"));
            background.workers.push(thread.spawn(move || shared.work(pause, work)).map_err(cannot)?);
        }
        Ok(background)
    }

    /// Waits for a job and returns the result.
    ///
    /// # Errors
    /// If the job failed for its file, or any job failed for the session.
    pub(super) fn result(&self, job: usize) -> Result<T, SourceError> {
        let mut state = self.shared.lock();
        loop {
            if let Some(result) = self.shared.want(&mut state, job)? {
                return Ok(result);
            }
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Returns the result of a job if ready within `patience`. The job has priority from now on.
    ///
    /// # Errors
    /// If the job failed for its file, or any job failed for the session.
    pub(super) fn result_within(&self, job: usize, patience: Duration) -> Result<Option<T>, SourceError> {
        let until = Instant::now() + patience;
        let mut state = self.shared.lock();
        loop {
            let result = self.shared.want(&mut state, job)?;
            let left = until.saturating_duration_since(Instant::now());
            if result.is_some() || left.is_zero() {
                return Ok(result);
            }
            let waited = self.shared.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl<T> Drop for Background<T> {
    fn drop(&mut self) {
        self.shared.lock().ended = true;
        self.shared.changed.notify_all();
        for worker in self.workers.drain(..) {
            // A panicking worker has already printed a message.
            let _panicked = worker.join();
        }
    }
}

impl<T> Shared<T> {
    /// Ignores poisoning: a worker's panic leaves the state unchanged by the worker's job.
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the next job; `None` at the end.
    fn begin(&self) -> Option<usize> {
        self.lock().begin()
    }

    /// Waits for so long, or until a job is wanted or the end.
    fn pause(&self, pause: Duration) {
        let is_idle = |state: &mut State<T>| state.wanted.is_none() && !state.ended;
        drop(self.changed.wait_timeout_while(self.lock(), pause, is_idle));
    }

    fn work(&self, pause: Duration, mut work: impl FnMut(usize) -> Result<T, SourceError>) {
        let guard = FailOnPanic(self);
        yield_to_session();
        self.pause(pause);
        while let Some(job) = self.begin() {
            let result = work(job);
            let mut state = self.lock();
            match result {
                Ok(result) => state.jobs[job] = Job::Done(result),
                Err(error @ SourceError::File { .. }) => state.jobs[job] = Job::Failed(error),
                Err(error) => {
                    state.failed.get_or_insert(error);
                }
            }
            drop(state);
            self.changed.notify_all();
        }
        drop(guard);
    }
}

impl<T: Clone> Shared<T> {
    /// Returns the result of a job: [`State::want`]. The first wanted job ends the threads' pause.
    fn want(&self, state: &mut State<T>, job: usize) -> Result<Option<T>, SourceError> {
        let is_first = state.wanted.is_none();
        let result = state.want(job)?;
        if is_first && state.wanted.is_some() {
            self.changed.notify_all();
        }
        Ok(result)
    }
}

impl<T: Clone> State<T> {
    /// Returns the result of a job, and gives the job priority if the job has not begun.
    fn want(&mut self, job: usize) -> Result<Option<T>, SourceError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        match &self.jobs[job] {
            Job::Done(result) => return Ok(Some(result.clone())),
            Job::Failed(error) => return Err(error.clone()),
            Job::Waiting => self.wanted = Some(job),
            Job::Working => {}
        }
        Ok(None)
    }
}

impl<T> State<T> {
    /// Returns the next job; `None` at the end.
    fn begin(&mut self) -> Option<usize> {
        if self.ended || self.failed.is_some() {
            return None;
        }
        let is_waiting = |job: &usize| matches!(self.jobs[*job], Job::Waiting);
        let job = match self.wanted.filter(is_waiting) {
            Some(wanted) => wanted,
            None => {
                let next = (self.next..self.jobs.len()).find(is_waiting);
                self.next = next.map_or(self.jobs.len(), |next| next + 1);
                next?
            }
        };
        self.jobs[job] = Job::Working;
        Some(job)
    }
}

/// Fails all jobs if a worker panics, so that no thread waits forever for the worker's job.
struct FailOnPanic<'a, T>(&'a Shared<T>);

impl<T> Drop for FailOnPanic<'_, T> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0
                .lock()
                .failed
                .get_or_insert(SourceError::Session("encoding a block failed unexpectedly".into()));
            self.0.changed.notify_all();
        }
    }
}

impl<T> fmt::Debug for Background<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Background").field("workers", &self.workers.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    #[test]
    fn the_job_that_is_waited_for_goes_first() {
        let (gate, gated) = mpsc::channel();
        let (done, order) = mpsc::channel();
        let gated = Mutex::new(Some(gated));
        let background = Background::start(5, 1, Duration::ZERO, || {
            let (gated, done) = (gated.lock().unwrap().take().unwrap(), done.clone());
            move |job| {
                gated.recv_timeout(PATIENCE).unwrap();
                done.send(job).unwrap();
                Ok(job * 10)
            }
        })
        .unwrap();
        assert_eq!(background.result_within(3, Duration::ZERO), Ok(None));
        gate.send(()).unwrap();
        gate.send(()).unwrap();
        // Job 0 may have been begun before anything was wanted.
        let begun: Vec<usize> = order.iter().take(2).collect();
        assert!(begun.contains(&3), "{begun:?}");
        assert_eq!(background.result_within(3, PATIENCE), Ok(Some(30)));
        for _ in 0..3 {
            gate.send(()).unwrap();
        }
        assert_eq!(background.result(4), Ok(40));
    }

    #[test]
    fn a_wanted_job_ends_the_pause() {
        let (done, order) = mpsc::channel();
        let background = Background::start(3, 2, PATIENCE, || {
            let done = done.clone();
            move |job| {
                done.send(job).unwrap();
                Ok(job)
            }
        })
        .unwrap();
        assert!(order.recv_timeout(Duration::from_millis(50)).is_err());
        let began = Instant::now();
        assert_eq!((background.result(2), background.result(0)), (Ok(2), Ok(0)));
        assert!(began.elapsed() < PATIENCE);
        drop(Background::<usize>::start(3, 2, PATIENCE, || Ok).unwrap());
        assert!(began.elapsed() < PATIENCE);
    }

    #[test]
    fn a_failure_or_a_panic_ends_the_wait_for_any_job() {
        let no = SourceError::Session("no".into());
        let failing = Background::start(3, 1, Duration::ZERO, || {
            let no = no.clone();
            move |job| if job == 0 { Err(no.clone()) } else { Ok(()) }
        })
        .unwrap();
        // Asked for first: what is waited for goes first.
        assert_eq!(failing.result(0), Err(no.clone()));
        assert_eq!(failing.result(2), Err(no.clone()));
        let panicking =
            Background::<()>::start(3, 1, Duration::ZERO, || |_| panic!("a test's own panic")).unwrap();
        assert!(panicking.result(2).is_err());
    }

    #[test]
    fn a_file_that_is_lost_fails_its_own_jobs_alone() {
        let why = headwater_proto::delivery::Withdrawal::Changed;
        let lost = SourceError::File { file: 0, why, message: "changed".into() };
        let background = Background::start(3, 1, Duration::ZERO, || {
            let lost = lost.clone();
            move |job| if job == 1 { Err(lost.clone()) } else { Ok(job) }
        })
        .unwrap();
        assert_eq!(background.result(1), Err(lost.clone()));
        assert_eq!((background.result(0), background.result(2)), (Ok(0), Ok(2)));
    }

    #[test]
    fn what_is_not_begun_is_dropped_with_it() {
        let (begun, jobs) = mpsc::channel();
        let background = Background::start(1_000_000, 2, Duration::ZERO, || {
            let begun = begun.clone();
            move |job| begun.send(job).map_err(|_| SourceError::Session("nobody listens".into()))
        })
        .unwrap();
        jobs.recv_timeout(PATIENCE).unwrap();
        drop((background, begun));
        assert!(jobs.iter().count() < 1_000_000);
    }
}
