//! A sender and receivers on loopback, and what is in their folders.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, SystemTime};

use headwater::{
    CongestionControl, LinkOptions, ListenOptions, ReceiveOptions, ReceiveSession, ReceiveSummary,
    ReceiveUpdate, SendError, SendOptions, SendSession, Session, StopHandle, prepare,
};

/// A receiver that hears nothing for so long has failed. Long, because test machines are busy.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A group and port that no other test of this run uses, below those that the system hands out.
pub fn group() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let test = NEXT.fetch_add(1, Ordering::Relaxed);
    let process = u16::try_from(std::process::id() % 120).unwrap();
    format!("239.255.{process}.{}:{}", test % 100, 8_000 + process * 100 + test % 100).parse().unwrap()
}

/// Changes of options in a chain.
pub trait Change: Sized {
    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
}

impl<T> Change for T {}

pub fn loopback(group: SocketAddr) -> LinkOptions {
    LinkOptions { interface: Some("lo".into()), ..LinkOptions::new(group) }
}

pub fn send_options(group: SocketAddr, rate: &str) -> SendOptions {
    SendOptions::new(loopback(group), CongestionControl::Fixed { rate: rate.parse().unwrap() })
}

pub fn receive_options(group: SocketAddr, out: &Path) -> ReceiveOptions {
    let listen = ListenOptions::new(group);
    let listen = ListenOptions { interface: Some("lo".into()), timeout: Some(PATIENCE), ..listen };
    ReceiveOptions::new(listen, out)
}

/// Bytes that are the same on each run and compress badly.
pub fn content(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut content = Vec::with_capacity(bytes + 8);
    while content.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        content.extend(state.to_le_bytes());
    }
    content.truncate(bytes);
    content
}

/// All files below a folder with their permission bits and times of modification, by relative name.
pub fn tree(root: &Path) -> BTreeMap<String, (u32, SystemTime, Vec<u8>)> {
    let mut files = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let metadata = fs::metadata(&path).unwrap();
                let (mode, modified) = (metadata.permissions().mode() & 0o777, metadata.modified().unwrap());
                let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
                files.insert(name, (mode, modified, fs::read(&path).unwrap()));
            }
        }
    }
    files
}

pub fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// A session that is sent on a thread of its own until it is stopped.
pub struct Sending {
    pub stop: StopHandle,
    pub thread: thread::JoinHandle<Result<headwater::SendSummary, SendError>>,
}

impl Sending {
    pub fn start(path: &Path, options: SendOptions) -> Self {
        let mut session = SendSession::open(prepare([path]).unwrap(), options).unwrap();
        let stop = session.stop_handle();
        Self { stop, thread: thread::spawn(move || session.run(&mut |_| {})) }
    }

    pub fn stop(self) -> headwater::SendSummary {
        self.stop.stop();
        self.thread.join().unwrap().unwrap()
    }
}

/// Starts to receive on a thread of its own, and returns once the base channel is joined.
pub fn receive_ahead(options: ReceiveOptions) -> thread::JoinHandle<ReceiveSummary> {
    let mut session = ReceiveSession::open(options).unwrap();
    let (joined, wait) = mpsc::channel();
    let receiving = thread::spawn(move || {
        let mut observer = |update| {
            if matches!(update, ReceiveUpdate::Joined(_)) {
                // A receiver that left while its last block is decoded may come back: nobody waits for that.
                let _later = joined.send(());
            }
        };
        session.run(&mut observer).unwrap()
    });
    wait.recv().unwrap();
    receiving
}

pub fn receive(options: ReceiveOptions) -> ReceiveSummary {
    ReceiveSession::open(options).unwrap().run(&mut |_| {}).unwrap()
}

pub fn write(path: &Path, bytes: &[u8], mode: u32) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}
