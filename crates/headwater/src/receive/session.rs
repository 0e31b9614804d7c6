//! A session that receives files: opened, run, summed up.

use headwater_proto::delivery::{Receiver, ReceiverConfig};
use headwater_proto::described;
use headwater_proto::rtt::ProberConfig;
use headwater_proto::{ChannelId, Seed};

use super::error::ReceiveError;
use super::options::ReceiveOptions;
use super::update::{ReceiveStarted, ReceiveSummary, ReceiveUpdate};
use super::watch::Watch;
use crate::chance;
use crate::clock::Clock;
use crate::driver::{Hooks, drive};
use crate::net::{Channels, Interface, OpenError, Poller, ReceiverOptions, ReceiverSocket};
use crate::stop::StopHandle;
use crate::store::DiskStore;

/// A session that receives files.
#[derive(Debug)]
pub struct ReceiveSession {
    options: ReceiveOptions,
    socket: ReceiverSocket,
    poller: Poller,
    stop: StopHandle,
    /// Until the first run takes it.
    store: Option<DiskStore>,
}

impl ReceiveSession {
    /// Opens the socket and the folder. Nothing is joined yet.
    ///
    /// # Errors
    /// When an option is out of range, the folder cannot be written to, or there is no way to receive from the group.
    pub fn open(options: ReceiveOptions) -> Result<Self, ReceiveError> {
        if let Some(loss) = options.loss
            && !(0.0..=1.0).contains(&loss.probability)
        {
            return Err(ReceiveError::Loss(loss.probability));
        }
        // How many there are the session itself tells.
        let channels = Channels::all_from(options.group)?;
        let interface = options.interface.as_deref().map(Interface::find).transpose()?;
        let socket = ReceiverOptions { interface, source: options.source, ..ReceiverOptions::default() };
        let socket = ReceiverSocket::open(&channels, &socket)?;
        let poller = Poller::new()
            .map_err(|source| OpenError::Option { attempt: "open an event descriptor", source })?;
        let stop = StopHandle::new(poller.waker());
        let store = DiskStore::open(&options.out, poller.waker())?;
        Ok(Self { options, socket, poller, stop, store: Some(store) })
    }

    /// Stops it from any thread.
    pub fn stop_handle(&self) -> StopHandle {
        self.stop.clone()
    }

    /// Where it receives.
    pub fn started(&self) -> ReceiveStarted {
        ReceiveStarted {
            group: self.options.group,
            source: self.options.source,
            interface: self.socket.interface().name.clone(),
            receive_buffer: self.socket.receive_buffer(),
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
        // The one place where a receiver's control is made.
        let control = described::ReceiverConfig::new()
            .with_max_rate(self.options.max_rate)
            .with_rtt_hint(self.options.rtt.map(Into::into))
            .with_prober(self.options.rtt.is_none().then(|| ProberConfig::new(Seed(chance::number()))));
        let config = ReceiverConfig::default().with_tsi(self.options.tsi).with_source(self.options.source);
        let clock = Clock::start();
        let mut watch = Watch::new(self.stop.clone(), observer, self.options.timeout, clock.now());
        loop {
            let store = match self.store.take() {
                Some(store) => store,
                None => DiskStore::open(&self.options.out, self.poller.waker())?,
            };
            let control = described::Receiver::new(control);
            let mut machine = Receiver::new(config, control, store, clock.now());
            let loss = self.options.loss.map(|loss| (loss.probability, Seed(loss.seed).stream("loss", 0)));
            let hooks = Hooks { trace: self.options.trace.as_mut(), loss, dscp: 0, ttl: 0 };
            let driven = drive(&mut machine, &mut self.socket, &mut self.poller, clock, hooks, &mut watch);
            if driven.is_ok() && watch.begins_anew(clock.now()) {
                continue;
            }
            let summary = watch.summary(&mut machine, &self.socket, clock.now());
            self.leave();
            driven.map_err(|source| ReceiveError::Network { group: self.options.group.ip(), source })?;
            return Ok(summary);
        }
    }

    /// Gives up what is still joined after a session that did not come to its own end.
    fn leave(&mut self) {
        for channel in (0..self.socket.channels().count()).map(ChannelId) {
            // It is left all the same: the interface is gone.
            let _refused = self.socket.leave(channel);
        }
    }
}
