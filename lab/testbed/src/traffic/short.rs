//! Short TCP connections of the kernel's, which come at random: Poisson arrivals, sizes exponential or
//! Pareto.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use headwater_netsim::chance::{exponential, pareto};
use headwater_netsim::plan::flow::{Flow, Receivers, ShortTcp};
use headwater_netsim::plan::run::FlowOutcome;
use headwater_proto::rng::Stream;

use super::tcp::{Manner, accept, listen};
use super::{Site, Traffic, Window, blank};
use crate::Error;
use crate::program::Program;
use crate::results::Samples;
use crate::sys;

/// Maximum number of open connections, as in the simulator; further connections wait.
const OPEN_MAX: usize = 256;
const LOOK: Duration = Duration::from_millis(20);
/// A connection that takes longer is given up with the run.
const PATIENCE: Duration = Duration::from_secs(120);

/// A flow of short connections.
#[derive(Debug)]
pub(super) struct ShortFlow {
    flow: Flow,
    planned: ShortTcp,
    address: SocketAddr,
    chance: Option<Stream>,
    stop: Arc<AtomicBool>,
    /// Bytes of connections that ended.
    done: Arc<Mutex<Samples>>,
    failed: Failed,
    threads: Vec<thread::JoinHandle<()>>,
}

/// Reason why a connection failed or broke off; the first failure is kept.
type Failed = Arc<Mutex<Option<String>>>;

impl ShortFlow {
    pub fn new(site: &Site<'_>, number: usize, flow: &Flow, planned: &ShortTcp) -> Result<Self, Error> {
        let Receivers::Node(to) = flow.to else { return Err(Error::plan("TCP has one receiver")) };
        let (address, listener) = listen(site, to, number, 0)?;
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Samples::default())));
        let (is_over, into, began) = (Arc::clone(&stop), Arc::clone(&done), site.began);
        let sink = thread::spawn(move || sinks(&listener, &is_over, &into, began));
        let chance = site.scenario.seed.stream(&format!("{}/arrivals", flow.name), site.scenario.run);
        let threads = vec![sink];
        Ok(Self {
            flow: flow.clone(),
            planned: planned.clone(),
            address,
            chance: Some(chance),
            stop,
            done,
            failed: Failed::default(),
            threads,
        })
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A panicked thread has reported no result.
            thread.join().ok();
        }
    }
}

impl Drop for ShortFlow {
    fn drop(&mut self) {
        // A thread keeps its namespace alive, so no thread may outlive the bed.
        self.end();
    }
}

fn tell(failed: &Failed, error: &std::io::Error) {
    failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error.to_string());
}

/// Reads from each accepted connection, and counts connections that end.
fn sinks(listener: &TcpListener, is_over: &AtomicBool, done: &Mutex<Samples>, began: Instant) {
    let total = Mutex::new(0_u64);
    thread::scope(|scope| {
        while let Some(mut stream) = accept(listener, is_over) {
            let total = &total;
            scope.spawn(move || {
                let (mut buffer, mut bytes, since) = ([0; 4_096], 0_u64, Instant::now());
                while !is_over.load(Ordering::Relaxed) && since.elapsed() < PATIENCE {
                    match stream.read(&mut buffer) {
                        Ok(0) => {
                            let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
                            *total += bytes;
                            done.lock().unwrap_or_else(PoisonError::into_inner).push(began.elapsed(), *total);
                            return;
                        }
                        Ok(more) => bytes += more as u64,
                        // A timeout, or a broken connection, which `PATIENCE` ends.
                        Err(_) => {}
                    }
                }
            });
        }
    });
}

/// Opens connections in the calling thread's namespace until `is_over`.
fn sources(planned: &ShortTcp, to: SocketAddr, mut chance: Stream, is_over: &AtomicBool, failed: &Failed) {
    let manner = Manner::of(&planned.config, planned.kernel);
    let (mean, interval) = (planned.mean_bytes as f64, planned.interval.as_secs_f64());
    let (mut due, open) = (Instant::now(), AtomicUsize::new(0));
    thread::scope(|scope| {
        loop {
            due += Duration::from_secs_f64(exponential(&mut chance, interval).min(86_400.0));
            let bytes = match planned.shape {
                Some(shape) => pareto(&mut chance, mean, shape),
                None => exponential(&mut chance, mean),
            };
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a size in bytes, at least 1"
            )]
            let bytes = bytes.clamp(1.0, 1e9) as usize;
            while Instant::now() < due || open.load(Ordering::Relaxed) >= OPEN_MAX {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                thread::sleep(
                    LOOK.min(due.saturating_duration_since(Instant::now())).max(Duration::from_millis(1)),
                );
            }
            open.fetch_add(1, Ordering::Relaxed);
            let open = &open;
            scope.spawn(move || {
                // Bytes of slow connections are missing from the goodput; a failed connection is not
                // competing traffic.
                if let Err(error) = send(manner, to, bytes, is_over)
                    && !is_over.load(Ordering::Relaxed)
                {
                    tell(failed, &error);
                }
                open.fetch_sub(1, Ordering::Relaxed);
            });
        }
    });
}

fn send(manner: Manner, to: SocketAddr, bytes: usize, is_over: &AtomicBool) -> std::io::Result<()> {
    let mut stream = manner.connect(to)?;
    stream.set_write_timeout(Some(Duration::from_millis(200)))?;
    let (content, mut sent, since) = (vec![0; bytes.min(1 << 16)], 0, Instant::now());
    while sent < bytes && !is_over.load(Ordering::Relaxed) && since.elapsed() < PATIENCE {
        match stream.write(&content[..content.len().min(bytes - sent)]) {
            Ok(more) => sent += more,
            Err(error)
                if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {}
            Err(error) => return Err(error),
        }
    }
    stream.shutdown(Shutdown::Write)
}

impl Traffic for ShortFlow {
    fn tick(&mut self, site: &Site<'_>) -> Result<(), Error> {
        let now = site.now();
        if Duration::from(self.flow.start) <= now
            && let Some(chance) = self.chance.take()
        {
            let (planned, to, is_over) = (self.planned.clone(), self.address, Arc::clone(&self.stop));
            let failed = Arc::clone(&self.failed);
            let file = site.bed.network.file(self.flow.from);
            self.threads.push(thread::spawn(move || {
                if let Err(error) = sys::inside(&file, || sources(&planned, to, chance, &is_over, &failed)) {
                    tell(&failed, &error);
                }
            }));
        }
        if let Some(failed) = &*self.failed.lock().unwrap_or_else(PoisonError::into_inner) {
            return Err(Error::failed(format!("flow '{}': {failed}", self.flow.name)));
        }
        if self.flow.stop.is_some_and(|stop| Duration::from(stop) <= now) {
            self.stop.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    fn is_complete(&self) -> bool {
        false
    }

    fn stop(&mut self, _: &Site<'_>) {
        self.end();
    }

    fn outcome(&mut self, _: &Site<'_>, window: Window) -> Result<FlowOutcome, Error> {
        let goodput =
            self.done.lock().unwrap_or_else(PoisonError::into_inner).bits_per_second(window.from, window.to);
        let manner = Manner::of(&self.planned.config, self.planned.kernel);
        // Payload of full segments and their headers; segments that open or close connections are left out.
        let wire = 1.0 + manner.header_bytes() as f64 / f64::from(manner.segment_bytes);
        Ok(FlowOutcome {
            goodput,
            throughput: goodput * wire,
            send_rate: goodput * wire,
            ..blank(&self.flow)
        })
    }

    fn programs(&mut self) -> Vec<&mut Program> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use headwater_netsim::plan::Plan;
    use headwater_netsim::plan::flow::FlowKind;
    use headwater_proto::Seed;

    use super::*;

    const TEXT: &str = "name = \"x\"\nduration = \"1s\"\ntopology = { kind = \"dumbbell\", bottleneck = { rate = \"1M\", delay = \"0ms\" }, \
                        access = { rate = \"1G\", delay = \"0ms\" } }\n[flow.many]\nkind = \"short-tcp\"\nfrom = \"source-1\"\nto = \"sink-1\"\n\
                        interval = \"1ms\"\nmean-bytes = \"1000B\"\n";

    #[test]
    fn connections_that_cannot_be_made_are_told() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let to = listener.local_addr().unwrap();
        let plan = Plan::parse("x.toml", TEXT).unwrap();
        let flow = plan.scenario(&plan.cell(0), 1).unwrap().flows.remove(0);
        let FlowKind::ShortTcp(planned) = flow.kind else { panic!("{:?}", flow.kind) };
        let planned = ShortTcp { kernel: Some("no-such"), ..planned };
        let (over, failed) = (Arc::new(AtomicBool::new(false)), Failed::default());
        let (is_over, told) = (Arc::clone(&over), Arc::clone(&failed));
        let chance = Seed(1).stream("arrivals", 1);
        let opening = thread::spawn(move || sources(&planned, to, chance, &is_over, &told));
        let until = Instant::now() + Duration::from_secs(20);
        while failed.lock().unwrap().is_none() && Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
        }
        over.store(true, Ordering::Relaxed);
        opening.join().unwrap();
        let failed = failed.lock().unwrap().clone().unwrap();
        assert!(failed.contains("no 'no-such'"), "{failed}");
    }
}
