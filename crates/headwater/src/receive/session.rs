//! A session that receives files: opened, run, summed up.

use std::path::PathBuf;

use headwater_proto::delivery::{Receiver, ReceiverConfig};

use super::error::ReceiveError;
use super::listener::Listener;
use super::options::ReceiveOptions;
use super::update::{ReceiveStarted, ReceiveSummary, ReceiveUpdate};
use super::watch::Watch;
use crate::clock::Clock;
use crate::stop::StopHandle;
use crate::store::DiskStore;

/// A session that receives files.
#[derive(Debug)]
pub struct ReceiveSession {
    listener: Listener,
    out: PathBuf,
    /// Until the first run takes it.
    store: Option<DiskStore>,
}

impl ReceiveSession {
    /// Opens the socket and the folder. Nothing is joined yet.
    ///
    /// # Errors
    /// When an option is out of range, the folder cannot be written to, or there is no way to receive from the group.
    pub fn open(options: ReceiveOptions) -> Result<Self, ReceiveError> {
        let ReceiveOptions { listen, out } = options;
        let listener = Listener::open(listen)?;
        let store = DiskStore::open(&out, listener.poller.waker())?;
        Ok(Self { listener, out, store: Some(store) })
    }

    /// Stops it from any thread.
    pub fn stop_handle(&self) -> StopHandle {
        self.listener.stop.clone()
    }

    /// Where it receives.
    pub fn started(&self) -> ReceiveStarted {
        let Listener { options, socket, .. } = &self.listener;
        ReceiveStarted {
            group: options.group,
            source: options.source,
            interface: socket.interface().name.clone(),
            receive_buffer: socket.receive_buffer(),
        }
    }

    /// Receives until every file is in place, the sender closes the session, the timeout is over, or it is stopped. A
    /// session that falls silent makes way for another one on the group, if that is one that would have been taken.
    ///
    /// Whatever the end, nothing partial has its final name. What came of files that are not whole stays in a working
    /// folder, and the next session that receives the same files into the same folder goes on from there.
    ///
    /// # Errors
    /// When the network fails.
    pub fn run(&mut self, observer: &mut dyn FnMut(ReceiveUpdate)) -> Result<ReceiveSummary, ReceiveError> {
        observer(ReceiveUpdate::Started(self.started()));
        let options = &self.listener.options;
        let config = ReceiverConfig::default().with_tsi(options.tsi).with_source(options.source);
        let clock = Clock::start();
        let mut watch = Watch::new(self.stop_handle(), observer, options.timeout, clock.now());
        loop {
            let store = match self.store.take() {
                Some(store) => store,
                None => DiskStore::open(&self.out, self.listener.poller.waker())?,
            };
            let mut machine = Receiver::new(config, self.listener.control(), store, clock.now());
            let driven = self.listener.drive(&mut machine, clock, &mut watch);
            if driven.is_ok() && watch.begins_anew(clock.now()) {
                continue;
            }
            let summary = watch.summary(&mut machine, &self.listener.socket, clock.now());
            self.listener.leave();
            driven?;
            return Ok(summary);
        }
    }
}
