//! The kernel's TCP: endless or a number of bytes, to a single receiver or to several receivers separately.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use headwater_netsim::plan::flow::{Flow, Receivers, Tcp, Transfer};
use headwater_netsim::plan::run::{Criteria, EndResults, FlowOutcome, SessionOutcome};
use headwater_netsim::tcp::{Data, Growth};
use socket2::{Domain, Protocol, Socket, Type};

use super::{FRAME_HEADER_BYTES, Site, Traffic, Window, blank};
use crate::program::Program;
use crate::results::Samples;
use crate::results::share;
use crate::sys::{self, TcpInfo};
use crate::{Error, Tried};

/// First port of a sink; each flow has two hundred.
const PORTS: u16 = 20_000;
/// Timeout of a read or write, after which the end of the run is checked; also the interval between readings.
const LOOK: Duration = Duration::from_millis(50);
/// TCP header, and the timestamp option where used.
const TCP_HEADER_BYTES: u64 = 20;
const TIMESTAMPS_BYTES: u64 = 12;

/// Properties of all connections of a flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manner {
    pub control: &'static str,
    pub segment_bytes: u32,
}

impl Manner {
    /// Properties of a flow of the plan.
    pub fn of(config: &headwater_netsim::tcp::Config, kernel: Option<&'static str>) -> Self {
        let grown = match config.growth {
            Growth::Reno => "reno",
            Growth::Cubic | Growth::LinuxCubic => "cubic",
        };
        Self { control: kernel.unwrap_or(grown), segment_bytes: config.segment_bytes.into() }
    }

    /// Bytes of a frame beyond its payload.
    pub fn header_bytes(self) -> u64 {
        let timestamps = if self.segment_bytes <= 1_448 { TIMESTAMPS_BYTES } else { 0 };
        FRAME_HEADER_BYTES + TCP_HEADER_BYTES + timestamps
    }

    /// A connection from inside of the calling thread's namespace.
    pub fn connect(self, to: SocketAddr) -> std::io::Result<TcpStream> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
        socket.set_tcp_congestion(self.control.as_bytes()).map_err(|error| {
            let known = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
            let known = known.unwrap_or_default();
            std::io::Error::other(format!(
                "this kernel's TCP has no '{}' ({error}); it has {}",
                self.control,
                known.trim()
            ))
        })?;
        // A refusal may be silent.
        let set = socket.tcp_congestion()?;
        let set = String::from_utf8_lossy(&set).trim_end_matches('\0').to_owned();
        if set != self.control {
            let asked = self.control;
            return Err(std::io::Error::other(format!(
                "asked the kernel's TCP for '{asked}' and got '{set}'"
            )));
        }
        if self.segment_bytes < 1_448 {
            socket.set_tcp_mss(self.segment_bytes + 12)?;
        }
        socket.connect(&to.into())?;
        Ok(socket.into())
    }
}

/// State of a connection, as reported by its two threads.
#[derive(Debug, Default)]
struct ConnectionState {
    /// Payload at the sink.
    bytes: Samples,
    /// Data segments at the sink.
    segments: Samples,
    /// Instant at which the sink had all data.
    whole: Option<Duration>,
    source: TcpInfo,
    failed: Option<String>,
}

#[derive(Debug)]
struct Connection {
    address: SocketAddr,
    start: Duration,
    told: Arc<Mutex<ConnectionState>>,
    is_started: bool,
    threads: Vec<thread::JoinHandle<()>>,
}

/// Connections of a flow, one per receiver.
#[derive(Debug)]
pub(super) struct TcpFlow {
    flow: Flow,
    manner: Manner,
    bytes: Option<u64>,
    stop: Arc<AtomicBool>,
    connections: Vec<Connection>,
}

impl TcpFlow {
    pub fn new(site: &Site<'_>, number: usize, flow: &Flow, tcp: &Tcp) -> Result<Self, Error> {
        let Receivers::Node(to) = flow.to else { return Err(Error::plan("TCP has one receiver")) };
        let bytes = match tcp.data {
            Data::Greedy => None,
            Data::Segments(count) => Some(u64::from(count) * u64::from(tcp.config.segment_bytes)),
            Data::Bytes(bytes) => Some(bytes),
        };
        let manner = Manner::of(&tcp.config, tcp.kernel);
        Self::listening(site, number, flow, manner, bytes, &[(to, flow.start)])
    }

    /// Creates a transfer of a file to each receiver over a separate connection.
    pub fn to_each(site: &Site<'_>, number: usize, flow: &Flow, transfer: Transfer) -> Result<Self, Error> {
        let Receivers::Group(members) = &flow.to else { return Err(Error::plan("a transfer has receivers")) };
        let to: Vec<_> = members.iter().map(|member| (member.node, flow.start.max(member.join))).collect();
        let manner = Manner { control: "reno", segment_bytes: 1_448 };
        Self::listening(site, number, flow, manner, Some(transfer.size), &to)
    }

    fn listening(
        site: &Site<'_>,
        number: usize,
        flow: &Flow,
        manner: Manner,
        bytes: Option<u64>,
        to: &[(usize, headwater_proto::Duration)],
    ) -> Result<Self, Error> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut all = Self { flow: flow.clone(), manner, bytes, stop, connections: Vec::new() };
        for (place, (node, start)) in to.iter().enumerate() {
            let (address, listener) = listen(site, *node, number, place)?;
            all.take(listener, address, (*start).into(), site.began);
        }
        Ok(all)
    }

    /// Adds a connection, whose sink listens from now on.
    fn take(&mut self, listener: TcpListener, address: SocketAddr, start: Duration, began: Instant) {
        let told = Arc::new(Mutex::new(ConnectionState::default()));
        let (into, is_over, bytes) = (Arc::clone(&told), Arc::clone(&self.stop), self.bytes);
        let sink = thread::spawn(move || sink(&listener, &into, &is_over, began, bytes));
        self.connections.push(Connection { address, start, told, is_started: false, threads: vec![sink] });
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.connections.iter_mut().flat_map(|connection| connection.threads.drain(..)) {
            // A panicked thread has reported no result.
            thread.join().ok();
        }
    }
}

impl Drop for TcpFlow {
    fn drop(&mut self) {
        // A thread keeps its namespace alive, so no thread may outlive the bed.
        self.end();
    }
}

/// A listener in a host's namespace.
pub(super) fn listen(
    site: &Site<'_>,
    host: usize,
    number: usize,
    place: usize,
) -> Result<(SocketAddr, TcpListener), Error> {
    let port = PORTS + u16::try_from((number * 200 + place) % 20_000).unwrap_or(0);
    let address = SocketAddr::from((site.address(host), port));
    let file = site.bed.network.file(host);
    let listener =
        sys::inside(&file, || TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))).and_then(|bound| bound);
    let listener = listener.tried(|| format!("listen on '{}'", site.node_name(host)))?;
    listener.set_nonblocking(true).tried(|| "listen without waiting".into())?;
    Ok((address, listener))
}

/// Accepts a connection; `None` once `is_over`.
pub(super) fn accept(listener: &TcpListener, is_over: &AtomicBool) -> Option<TcpStream> {
    while !is_over.load(Ordering::Relaxed) {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).ok()?;
                stream.set_read_timeout(Some(LOOK)).ok()?;
                return Some(stream);
            }
            Err(_) => thread::sleep(Duration::from_millis(2)),
        }
    }
    None
}

fn locked(told: &Mutex<ConnectionState>) -> std::sync::MutexGuard<'_, ConnectionState> {
    told.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Records a broken connection. At the end of the run this is expected and ignored.
fn broke(told: &Mutex<ConnectionState>, is_over: &AtomicBool, error: &std::io::Error) {
    if !is_over.load(Ordering::Relaxed) {
        locked(told).failed.get_or_insert(format!("TCP broke off: {error}"));
    }
}

/// Reads all data, and reports the progress.
fn sink(
    listener: &TcpListener,
    told: &Mutex<ConnectionState>,
    is_over: &AtomicBool,
    began: Instant,
    wanted: Option<u64>,
) {
    let Some(mut stream) = accept(listener, is_over) else { return };
    let mut buffer = vec![0; 1 << 16];
    let (mut total, mut last) = (0_u64, Instant::now());
    let tell = |total: u64, stream: &TcpStream| {
        let segments = sys::tcp_info(stream).map_or(0, |info| info.data_segments_in);
        let mut told = locked(told);
        told.bytes.push(began.elapsed(), total);
        told.segments.push(began.elapsed(), segments.into());
    };
    tell(0, &stream);
    while !is_over.load(Ordering::Relaxed) {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(bytes) => total += bytes as u64,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => {
                broke(told, is_over, &error);
                break;
            }
        }
        let is_whole = wanted == Some(total);
        if is_whole || last.elapsed() >= LOOK {
            last = Instant::now();
            tell(total, &stream);
        }
        if is_whole {
            locked(told).whole.get_or_insert(began.elapsed());
        }
    }
    tell(total, &stream);
}

/// Sends `bytes`, or endlessly, until `is_over`.
fn source(
    manner: Manner,
    to: SocketAddr,
    bytes: Option<u64>,
    told: &Mutex<ConnectionState>,
    is_over: &AtomicBool,
) {
    let mut stream = match manner.connect(to) {
        Ok(stream) => stream,
        Err(error) => {
            locked(told).failed = Some(error.to_string());
            return;
        }
    };
    let chunk = vec![0; 1 << 15];
    let mut left = bytes.unwrap_or(u64::MAX);
    // Only a timeout of 0 is refused, and `LOOK` is not 0.
    stream.set_write_timeout(Some(LOOK)).ok();
    stream.set_read_timeout(Some(LOOK)).ok();
    while left > 0 && !is_over.load(Ordering::Relaxed) {
        let part = usize::try_from(left).unwrap_or(usize::MAX).min(chunk.len());
        match stream.write(&chunk[..part]) {
            Ok(sent) => left -= sent as u64,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => {
                broke(told, is_over, &error);
                break;
            }
        }
    }
    if left == 0 {
        stream.shutdown(Shutdown::Write).ok();
        // The far end closes once the transfer is complete.
        let mut nothing = [0];
        while !is_over.load(Ordering::Relaxed)
            && stream
                .read(&mut nothing)
                .is_err_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
        {
        }
    }
    if let Ok(info) = sys::tcp_info(&stream) {
        locked(told).source = info;
    }
}

impl Traffic for TcpFlow {
    fn tick(&mut self, site: &Site<'_>) -> Result<(), Error> {
        let (now, file) = (site.now(), site.bed.network.file(self.flow.from));
        for connection in &mut self.connections {
            if !connection.is_started && connection.start <= now {
                connection.is_started = true;
                let (told, is_over) = (Arc::clone(&connection.told), Arc::clone(&self.stop));
                let (manner, to, bytes, file) = (self.manner, connection.address, self.bytes, file.clone());
                connection.threads.push(thread::spawn(move || {
                    if let Err(error) = sys::inside(&file, || source(manner, to, bytes, &told, &is_over)) {
                        locked(&told).failed = Some(error.to_string());
                    }
                }));
            }
            if let Some(failed) = &locked(&connection.told).failed {
                return Err(Error::failed(format!("flow '{}': {failed}", self.flow.name)));
            }
        }
        if self.flow.stop.is_some_and(|stop| Duration::from(stop) <= now) {
            self.stop.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    fn is_complete(&self) -> bool {
        self.connections.iter().all(|connection| locked(&connection.told).whole.is_some())
    }

    fn stop(&mut self, _: &Site<'_>) {
        self.end();
    }

    fn outcome(&mut self, _: &Site<'_>, window: Window) -> Result<FlowOutcome, Error> {
        let header = self.manner.header_bytes() as f64;
        let mut outcome = blank(&self.flow);
        let (mut each, mut segments, mut retransmissions) = (Vec::new(), 0, 0);
        let (mut completions, mut rtts) = (Vec::new(), Vec::new());
        for connection in &self.connections {
            let told = locked(&connection.told);
            let goodput = told.bytes.bits_per_second(window.from, window.to);
            let throughput = goodput + header * told.segments.bits_per_second(window.from, window.to);
            outcome.goodput += goodput;
            outcome.throughput += throughput;
            segments += u64::from(told.source.data_segments_out);
            retransmissions += u64::from(told.source.retransmitted);
            rtts.push(f64::from(told.source.rtt_micros) / 1e6);
            if let (Some(whole), Some(bytes)) = (told.whole, self.bytes) {
                let time = whole.saturating_sub(connection.start).as_secs_f64();
                completions.push(time);
                let segments = told.segments.at(Duration::MAX);
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "a count of bytes"
                )]
                let link_bytes = bytes + (segments * header) as u64;
                let (lost, sent) = (told.source.retransmitted, told.source.data_segments_out);
                let losses = (u64::from(lost), u64::from(sent.saturating_sub(lost)));
                each.push(Criteria::of_transfer(time, bytes, link_bytes, losses));
            }
        }
        let count = self.connections.len();
        outcome.loss = share(retransmissions, segments);
        outcome.send_rate = outcome.throughput / (1.0 - outcome.loss.unwrap_or(0.0)).max(0.01);
        outcome.ends = tcp_results(segments, retransmissions, rtts.iter().sum::<f64>() / count.max(1) as f64);
        outcome.criteria = Criteria::mean(&each);
        if matches!(self.flow.to, Receivers::Group(_)) {
            // As of a group: means over the receivers.
            outcome.goodput /= count as f64;
            outcome.throughput /= count as f64;
            outcome.session = Some(SessionOutcome::of_completions(count, &completions));
        }
        Ok(outcome)
    }

    fn programs(&mut self) -> Vec<&mut Program> {
        Vec::new()
    }
}

/// Results of the ends of connections, in the simulator's order. The kernel does not report the others.
fn tcp_results(segments: u64, retransmissions: u64, mean_rtt: f64) -> EndResults {
    let mut results = EndResults::default();
    results.push("segments", segments);
    results.push("retransmissions", retransmissions);
    for name in ["fast_retransmits", "timeouts", "ecn_cuts"] {
        results.push(name, 0);
    }
    results.push("mean_rtt", mean_rtt);
    results.push("mean_first_timeout", None::<f64>);
    results
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;

    use headwater_netsim::plan::Plan;

    use super::*;

    const TEXT: &str = "name = \"x\"\nduration = \"1s\"\ntopology = { kind = \"dumbbell\", bottleneck = { rate = \"1M\", delay = \"0ms\" }, \
                        access = { rate = \"1G\", delay = \"0ms\" } }\n[flow.tcp]\nkind = \"tcp\"\nfrom = \"source-1\"\nto = \"sink-1\"\n";
    const MANNER: Manner = Manner { control: "reno", segment_bytes: 1_448 };

    /// A flow whose sink listens on this host.
    fn flow() -> TcpFlow {
        let plan = Plan::parse("x.toml", TEXT).unwrap();
        let flow = plan.scenario(&plan.cell(0), 1).unwrap().flows.remove(0);
        let stop = Arc::new(AtomicBool::new(false));
        let mut flow = TcpFlow { flow, manner: MANNER, bytes: None, stop, connections: Vec::new() };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        listener.set_nonblocking(true).unwrap();
        flow.take(listener, address, Duration::ZERO, Instant::now());
        flow
    }

    #[test]
    fn no_thread_outlives_a_flow_that_is_dropped() {
        let mut flow = flow();
        let (told, over) = (Arc::clone(&flow.connections[0].told), Arc::clone(&flow.stop));
        let to = flow.connections[0].address;
        flow.connections[0].threads.push(thread::spawn(move || source(MANNER, to, None, &told, &over)));
        let threads = Arc::downgrade(&flow.connections[0].told);
        drop(flow);
        assert_eq!(Weak::strong_count(&threads), 0);
    }

    #[test]
    fn a_connection_that_breaks_off_is_told_by_both_ends() {
        let flow = flow();
        let sink = &flow.connections[0];
        let broken = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        broken.connect(&sink.address.into()).unwrap();
        // A reset.
        broken.set_linger(Some(Duration::ZERO)).unwrap();
        drop(broken);
        let until = Instant::now() + Duration::from_secs(20);
        while locked(&sink.told).failed.is_none() && Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
        }
        assert!(locked(&sink.told).failed.as_ref().is_some_and(|failed| failed.contains("broke off")));

        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let to = listener.local_addr().unwrap();
        let closing = thread::spawn(move || {
            let socket = Socket::from(listener.accept().unwrap().0);
            socket.set_linger(Some(Duration::ZERO)).unwrap();
        });
        let told = Mutex::new(ConnectionState::default());
        source(MANNER, to, None, &told, &AtomicBool::new(false));
        closing.join().unwrap();
        assert!(locked(&told).failed.as_ref().is_some_and(|failed| failed.contains("broke off")));
    }
}
