//! Sessions of Headwater: a sender and receivers as processes on their hosts.

use std::io::Write;
use std::net::SocketAddr;
use std::time::Duration;

use headwater_netsim::plan::flow::{Flow, LeSbcc, Member, Receivers, Session, Transfer};
use headwater_netsim::plan::run::{Criteria, EndResults, FlowOutcome, MemberOutcome, SessionOutcome};
use headwater_proto::controls::{self, Control, Network};
use headwater_proto::le_sbcc::{Epoch, LeSbccConfig, Samples, Stages};
use headwater_proto::pgm::Mode;

use super::content;
use super::events::{Story, within};
use super::{FRAME_HEADER_BYTES, Site, Traffic, UDP_HEADER_BYTES, Window, blank, port};
use crate::Error;
use crate::program::Program;

/// Routers that packets may cross.
const TTL: &str = "32";
/// Size of a message in a session of messages, without the newline.
const MESSAGE_BYTES: u16 = 1_399;
/// PGM's header and that of data, which the chain paces with the content.
const PGM_HEADER_BYTES: u16 = 24;
/// ALC's header and FEC payload ID of a packet of content.
const ALC_HEADER_BYTES: u64 = 16;
/// Content of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    /// A file of this many bytes; a receiver leaves when its file is complete.
    File(u64),
    /// A file that no receiver completes.
    Endless,
    /// Messages, by `headwater pgm`.
    Messages,
}

/// Transport of a session to its receivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Receivers join groups.
    Groups,
    /// Receivers send requests to the source, each separately: no relays run here.
    Asked,
}

/// A receiver, with its program once the receiver has joined.
#[derive(Debug)]
struct Receiver {
    member: Member,
    program: Option<Program>,
    is_asked_to_leave: bool,
}

/// A session at work.
#[derive(Debug)]
pub(super) struct SessionFlow {
    flow: Flow,
    number: usize,
    content: Content,
    way: Way,
    symbol_bytes: u16,
    /// Options of the sender that say how.
    options: Vec<String>,
    sender: Option<Program>,
    receivers: Vec<Receiver>,
    is_stopped: bool,
}

impl SessionFlow {
    /// Creates the flow of a plan's session.
    pub fn of_session(number: usize, flow: &Flow, planned: &Session) -> Result<Self, Error> {
        let control = planned.control.name;
        let parameters = &planned.parameters;
        let cannot =
            |why: String| Error::plan(format!("flow '{}' cannot run on a testbed: {why}", flow.name));
        let Some(entry) = Control::of(control) else {
            return Err(cannot(format!("{control} has no sockets")));
        };
        let unsaid = parameters.ratio.is_some()
            || parameters.slot.is_some()
            || parameters.channels_per_slot.is_some()
            || parameters.quiescent_slots.is_some()
            || parameters.shape.is_some()
            || parameters.constant_rate
            || parameters.sim != Default::default();
        if unsaid {
            return Err(cannot(
                "'headwater send' takes max-rate and base-rate; ratio, slot, channels, shape, constant-rate and SIM's parameters are the \
                 simulator's".into(),
            ));
        }
        if planned.file.is_some_and(|file| file.passes.is_some()) {
            return Err(cannot(
                "passes are the simulator's: its sender goes on until the end of the run".into(),
            ));
        }
        let comes_back = |member: &Member| member.limits.cycle.is_some();
        if matches!(&flow.to, Receivers::Group(members) if members.iter().any(comes_back)) {
            return Err(cannot("receivers that come back (cycle) are the simulator's".into()));
        }
        let content = planned.file.map_or(Content::Endless, |file| Content::File(file.size));
        let mut options = vec!["--congestion-control".into(), control.into()];
        if entry.network == Network::Group {
            options.extend(["--rate".into(), parameters.max_rate.as_bits().to_string()]);
        } else {
            options.extend(["--max-rate".into(), parameters.max_rate.as_bits().to_string()]);
            let base = parameters.base_rate.map(|rate| rate.as_bits().to_string());
            options.extend(base.into_iter().flat_map(|rate| ["--base-rate".into(), rate]));
        }
        if entry.network == Network::Groups && planned.reports != Some(true) {
            // Plans repeat papers, whose senders send all levels.
            options.extend(["--demand".into(), "off".into()]);
        }
        // An endless session needs no code.
        options.extend(["--fec".into(), planned.file.map_or("none", |file| file.code.name()).into()]);
        options.extend(["--symbol-size".into(), planned.symbol_bytes.to_string()]);
        Ok(Self::new(number, flow, content, planned.symbol_bytes, options))
    }

    /// Creates a file transfer by a control of the sender, with defaults otherwise.
    pub fn of_transfer(number: usize, flow: &Flow, transfer: Transfer) -> Self {
        let network = Control::of(transfer.by).map(|control| control.network);
        let rate = if transfer.by == controls::FIXED.name { "--rate" } else { "--max-rate" };
        let options = ["--congestion-control", transfer.by, rate].map(str::to_owned);
        let options = [&options[..], &[transfer.max_rate.as_bits().to_string()]].concat();
        let way = if network == Some(Network::Requests) { Way::Asked } else { Way::Groups };
        Self { way, ..Self::new(number, flow, Content::File(transfer.size), 1_408, options) }
    }

    /// PGM under LE-SBCC, by `headwater pgm`.
    pub fn of_messages(number: usize, flow: &Flow, planned: &LeSbcc) -> Result<Self, Error> {
        let is_whole_packet = (MESSAGE_BYTES..=MESSAGE_BYTES + 1).contains(&planned.payload_bytes);
        if !is_whole_packet || !flow.routers.is_empty() || *planned != plain(planned) {
            return Err(Error::plan(format!(
                "flow '{}' cannot run on a testbed: of LE-SBCC's parameters 'headwater pgm' takes module and initial-rate, its messages have \
                 {MESSAGE_BYTES} bytes (payload-bytes may be left out), and all else, aggregate among it, is the simulator's",
                flow.name
            )));
        }
        let mut options = vec!["--congestion-control".to_owned(), planned.control().name.to_owned()];
        if let Some(rate) = planned.chain.initial_rate() {
            options.extend(["--start-rate".into(), rate.as_bits().to_string()]);
        }
        Ok(Self::new(number, flow, Content::Messages, MESSAGE_BYTES, options))
    }

    fn new(number: usize, flow: &Flow, content: Content, symbol_bytes: u16, options: Vec<String>) -> Self {
        let members = match &flow.to {
            Receivers::Group(members) => members.clone(),
            Receivers::Node(node) => {
                vec![Member { node: *node, join: flow.start, leave: None, limits: Default::default() }]
            }
        };
        let receiver = |member| Receiver { member, program: None, is_asked_to_leave: false };
        let receivers = members.into_iter().map(receiver).collect();
        Self {
            flow: flow.clone(),
            number,
            content,
            way: Way::Groups,
            symbol_bytes,
            options,
            sender: None,
            receivers,
            is_stopped: false,
        }
    }

    /// Options for the sender's destination, or for the address where the sender listens for requests.
    fn sends_to(&self, site: &Site<'_>) -> [String; 2] {
        match self.way {
            Way::Groups => ["--group".into(), self.group(site).to_string()],
            Way::Asked => {
                let here = SocketAddr::from((site.address(self.flow.from), port(self.number)));
                ["--listen".into(), here.to_string()]
            }
        }
    }

    /// Base group and port.
    fn group(&self, site: &Site<'_>) -> SocketAddr {
        SocketAddr::new(site.group(self.number), port(self.number))
    }

    /// Options for the address from which a receiver gets the session.
    fn hears_from(&self, site: &Site<'_>) -> Vec<String> {
        match self.way {
            Way::Groups => {
                let (group, source) = (self.group(site).to_string(), site.group_source(self.flow.from));
                let source = source.to_string();
                vec!["--interface".into(), "eth0".into(), "--group".into(), group, "--source".into(), source]
            }
            Way::Asked => {
                vec!["--ask".into(), format!("{}:{}", site.address(self.flow.from), port(self.number))]
            }
        }
    }

    fn start_sender(&mut self, site: &Site<'_>) -> Result<(), Error> {
        let program = site.program.display().to_string();
        let is_messages = self.content == Content::Messages;
        let mut words = vec![program];
        words.extend(if is_messages { vec!["pgm".to_owned()] } else { Vec::new() });
        words.extend(["send", "--json", "--quiet"].map(str::to_owned));
        if self.way == Way::Groups {
            words.extend(["--interface", "eth0", "--ttl", TTL].map(str::to_owned));
        }
        words.extend(self.sends_to(site));
        words.extend(self.options.iter().cloned());
        if !is_messages {
            // Plans describe the sizes of unsigned packets.
            words.extend(["--no-sign".into(), "--temp-dir".into(), site.bed.folder.display().to_string()]);
            words.push(content::file(site, self.number).display().to_string());
        }
        let name = format!("{}-send", self.flow.name);
        let mut sender = site.start(self.flow.from, &name, words, is_messages)?;
        if let Some(mut input) = sender.take_input() {
            std::thread::spawn(move || {
                let mut message = vec![b'x'; usize::from(MESSAGE_BYTES)];
                message.push(b'\n');
                // Writes until the reader closes the pipe.
                while input.write_all(&message).is_ok() {}
            });
        }
        self.sender = Some(sender);
        Ok(())
    }

    fn start_receiver(&mut self, site: &Site<'_>, place: usize) -> Result<(), Error> {
        let member = self.receivers[place].member;
        let mut words = vec![site.program.display().to_string()];
        let is_messages = self.content == Content::Messages;
        words.extend(if is_messages { vec!["pgm".to_owned()] } else { Vec::new() });
        words.extend(["receive", "--json", "--quiet"].map(str::to_owned));
        words.extend(self.hears_from(site));
        if !is_messages {
            words.push("--unsigned".into());
        }
        words.push("--out".into());
        if is_messages {
            words.push("/dev/null".into());
        } else {
            words.push(site.folder(&format!("out-{}-{place}", self.number))?.display().to_string());
            let limit = |name: &str, value: Option<String>| value.map(|value| [name.to_owned(), value]);
            let rate = limit("--max-rate", member.limits.max_rate.map(|rate| rate.as_bits().to_string()));
            let rtt =
                limit("--rtt", member.limits.rtt_hint.map(|rtt| format!("{}us", rtt.as_nanos() / 1_000)));
            let rules = limit("--rules", member.limits.rules.map(|rules| rules.name().to_owned()));
            words.extend(rate.into_iter().chain(rtt).chain(rules).flatten());
        }
        let name = format!("{}-receive-{place}", self.flow.name);
        self.receivers[place].program = Some(site.start(member.node, &name, words, false)?);
        Ok(())
    }

    /// A receiver that ended by itself must have completed the content.
    fn check(&mut self, site: &Site<'_>) -> Result<(), Error> {
        let is_stopped = self.is_stopped;
        let programs = self.receivers.iter_mut().filter(|one| !one.is_asked_to_leave);
        let ends = programs.filter_map(|one| one.program.as_mut()).chain(self.sender.as_mut());
        for program in ends {
            if program.has_ended() && program.code() != Some(0) && !is_stopped {
                return Err(Error::failed(format!(
                    "{} ended {:.1} s after the start of the run: {}",
                    program.name,
                    site.now().as_secs_f64(),
                    program.complaint()
                )));
            }
        }
        let is_over = |one: &mut Receiver| one.program.as_mut().is_some_and(Program::has_ended);
        if self.content == Content::Endless && !is_stopped && self.receivers.iter_mut().any(is_over) {
            return Err(Error::failed(format!(
                "flow '{}' has no end in the plan, and a receiver came to it: the run lasts too long for its links",
                self.flow.name
            )));
        }
        Ok(())
    }

    fn stories(&self, site: &Site<'_>) -> Vec<(Member, Option<Story>)> {
        let story = |program: &Program| Story::read(&program.output(), program.began - site.began);
        self.receivers.iter().map(|one| (one.member, one.program.as_ref().map(story))).collect()
    }

    /// Bytes on the wire of a packet's headers below UDP's payload.
    fn header_bytes(&self, site: &Site<'_>) -> u64 {
        match self.way {
            Way::Groups => site.group_header_bytes(),
            Way::Asked => FRAME_HEADER_BYTES + UDP_HEADER_BYTES,
        }
    }

    fn criteria(&self, site: &Site<'_>, story: &Story) -> Option<Criteria> {
        let Content::File(bytes) = self.content else { return None };
        let (began, whole) = (story.began?, story.whole?);
        let (last, symbol) = (story.last, f64::from(self.symbol_bytes));
        let time = (whole - began).as_secs_f64();
        let link_bytes = last.bytes + last.packets * self.header_bytes(site);
        let fresh = (last.useful + last.surplus) as f64;
        let network = story.left.map(|left| (left - began).as_secs_f64());
        Some(Criteria {
            dup: (fresh > 0.0).then(|| last.duplicates as f64 / fresh),
            sym: (last.symbols_total > 0).then(|| fresh / last.symbols_total as f64 - 1.0),
            head: Some((ALC_HEADER_BYTES + self.header_bytes(site)) as f64 / symbol),
            comp: network.filter(|network| *network > 0.0).map(|network| (time / network - 1.0).max(0.0)),
            ..Criteria::of_transfer(time, bytes, link_bytes, (last.lost, last.packets))
        })
    }

    fn member(&self, site: &Site<'_>, member: Member, story: &Story, window: Window) -> MemberOutcome {
        let Window { from, to } = window;
        let payload = story.bytes.bits_per_second(from, to);
        let headers = story.packets.bits_per_second(from, to) * self.header_bytes(site) as f64;
        let new = match self.content {
            // A message is a single packet of so many bytes.
            Content::Messages => story.packets.bits_per_second(from, to),
            _ => story.useful.bits_per_second(from, to),
        };
        let (lost, came) = (story.last.lost, story.last.packets);
        MemberOutcome {
            node: site.node_name(member.node).to_owned(),
            throughput: payload + headers,
            goodput: new * f64::from(self.symbol_bytes),
            loss: (lost + came > 0).then(|| lost as f64 / (lost + came) as f64),
            joins: within(&story.joins, from, to),
            leaves: within(&story.leaves, from, to),
            join_latency: story.last.join_latency_ms.map(|ms| ms / 1e3),
            completion: story.began.zip(story.whole).map(|(began, whole)| (whole - began).as_secs_f64()),
            duplicates: story.last.duplicates,
            rainbow: None,
        }
    }
}

/// The configuration that a testbed can realise, for comparison with a plan's.
fn plain(planned: &LeSbcc) -> LeSbcc {
    let chain = LeSbccConfig::new(planned.payload_bytes + PGM_HEADER_BYTES)
        .with_stages(Stages::ALL)
        .with_module(planned.chain.module())
        .with_epoch(Epoch::Code)
        .with_samples(Samples::Noticed)
        .with_rtt_max(headwater_proto::Duration::from_secs(2))
        .with_srtt_gain(0.125)
        .with_rtt(headwater_proto::Duration::from_millis(200))
        .with_doubling_at_start(false);
    let chain = planned.chain.initial_rate().map_or(chain, |rate| chain.with_initial_rate(rate));
    LeSbcc {
        chain,
        mode: Mode::Pgm,
        window_packets: 4_096,
        back_off: headwater_proto::Duration::from_millis(50),
        repairs: true,
        packets: None,
        ..planned.clone()
    }
}

impl Traffic for SessionFlow {
    fn tick(&mut self, site: &Site<'_>) -> Result<(), Error> {
        let now = site.now();
        let is_due = |at: headwater_proto::Duration| Duration::from(at) <= now;
        for place in 0..self.receivers.len() {
            let one = &mut self.receivers[place];
            if one.program.is_none() && is_due(one.member.join) {
                self.start_receiver(site, place)?;
            } else if one.member.leave.is_some_and(is_due) && !one.is_asked_to_leave {
                one.is_asked_to_leave = true;
                one.program.iter_mut().for_each(|program| program.signal(libc::SIGINT));
            }
        }
        if self.sender.is_none() && is_due(self.flow.start) {
            self.start_sender(site)?;
        } else if self.flow.stop.is_some_and(is_due) && !self.is_stopped {
            self.is_stopped = true;
            self.sender.iter_mut().for_each(|sender| sender.signal(libc::SIGINT));
        }
        self.check(site)
    }

    fn is_complete(&self) -> bool {
        let is_whole = |one: &Receiver| one.program.as_ref().is_some_and(|program| program.code() == Some(0));
        matches!(self.content, Content::File(_)) && self.receivers.iter().all(is_whole)
    }

    fn stop(&mut self, _: &Site<'_>) {
        self.is_stopped = true;
        let receivers = self.receivers.iter_mut().filter_map(|one| one.program.as_mut());
        for program in receivers.chain(self.sender.as_mut()) {
            program.end(libc::SIGINT);
        }
    }

    fn outcome(&mut self, site: &Site<'_>, window: Window) -> Result<FlowOutcome, Error> {
        let sent =
            self.sender.as_ref().map(|sender| Story::read(&sender.output(), sender.began - site.began));
        let stories = self.stories(site);
        let came: Vec<(Member, &Story)> =
            stories.iter().filter_map(|(member, story)| Some((*member, story.as_ref()?))).collect();
        let members: Vec<MemberOutcome> =
            came.iter().map(|(member, story)| self.member(site, *member, story, window)).collect();
        let each: Vec<Criteria> = came.iter().filter_map(|(_, story)| self.criteria(site, story)).collect();
        let mean =
            |of: fn(&MemberOutcome) -> f64| members.iter().map(of).sum::<f64>() / members.len().max(1) as f64;
        let losses: Vec<f64> = members.iter().filter_map(|member| member.loss).collect();
        let completions: Vec<f64> = members.iter().filter_map(|member| member.completion).collect();
        let mut session = SessionOutcome::of_completions(self.receivers.len(), &completions);
        session.joins = members.iter().map(|member| member.joins).sum();
        session.leaves = members.iter().map(|member| member.leaves).sum();
        session.duplicates = Some(members.iter().map(|member| member.duplicates).sum());
        if !matches!(self.content, Content::File(_)) {
            session.complete = None;
        }
        let sending = |story: &Story| {
            let packets = story.packets.bits_per_second(window.from, window.to);
            story.bytes.bits_per_second(window.from, window.to) + packets * self.header_bytes(site) as f64
        };
        let mut ends = EndResults::default();
        if let Some(story) = sent.as_ref().filter(|_| self.content == Content::Messages) {
            ends.push("packets", story.last.packets);
            ends.push("repairs", story.last.repairs);
            ends.push("naks", came.iter().map(|(_, story)| story.last.naks).sum::<u64>());
        }
        Ok(FlowOutcome {
            send_rate: sent.as_ref().map_or(0.0, sending),
            throughput: mean(|member| member.throughput),
            goodput: mean(|member| member.goodput),
            loss: (!losses.is_empty()).then(|| losses.iter().sum::<f64>() / losses.len() as f64),
            session: matches!(self.flow.to, Receivers::Group(_)).then_some(session),
            criteria: Criteria::mean(&each),
            ends,
            members,
            ..blank(&self.flow)
        })
    }

    fn programs(&mut self) -> Vec<&mut Program> {
        self.receivers.iter_mut().filter_map(|one| one.program.as_mut()).chain(self.sender.as_mut()).collect()
    }
}

#[cfg(test)]
mod tests {
    use headwater_netsim::plan::Plan;
    use headwater_netsim::plan::flow::FlowKind;

    use super::*;

    fn flow(words: &str) -> Result<SessionFlow, Error> {
        let text = format!(
            "name = \"x\"\nduration = \"1s\"\ntopology = {{ kind = \"dumbbell\", bottleneck = {{ rate = \"1M\", delay = \"0ms\" }}, access = \
             {{ rate = \"1G\", delay = \"0ms\" }} }}\n[flow.main]\nfrom = \"source-1\"\nreceivers = [\"sink-1\"]\n{words}\n"
        );
        let plan = Plan::parse("x.toml", &text).unwrap();
        let flow = plan.scenario(&plan.cell(0), 1).unwrap().flows.remove(0);
        match &flow.kind {
            FlowKind::LeSbcc(planned) => SessionFlow::of_messages(0, &flow, planned),
            FlowKind::Session(planned) => SessionFlow::of_session(0, &flow, planned),
            kind => panic!("{kind:?}"),
        }
    }

    #[test]
    fn a_plan_of_le_sbcc_is_taken_as_it_is_or_refused() {
        for words in
            ["", "module = \"tfrc\"\ninitial-rate = \"200k\"", "payload-bytes = 1399\nback-off = \"50ms\""]
        {
            let flow = flow(&format!("kind = \"le-sbcc\"\n{words}")).unwrap();
            // What goodput is counted by is what messages have.
            assert_eq!(flow.symbol_bytes, MESSAGE_BYTES, "{words}");
        }
        for words in [
            "payload-bytes = 536",
            "li2le = false",
            "repairs = false",
            "mode = \"lean\"",
            "packets = 100",
            "window = 64",
            "back-off = \"100ms\"",
            "initial-rtt = \"500ms\"",
            "epoch = \"text\"",
        ] {
            let error = flow(&format!("kind = \"le-sbcc\"\n{words}")).unwrap_err();
            assert!(error.kind == crate::Kind::Plan && error.message.contains("'main'"), "{words}: {error}");
        }
    }

    #[test]
    fn what_a_session_cannot_do_is_refused() {
        let session = "kind = \"session\"\ncontrol = \"m2c\"\nmax-rate = \"4M\"\nsize = \"1MB\"";
        assert!(flow(session).is_ok());
        assert!(flow(&format!("{session}\npasses = 2")).is_err());
        assert!(flow(&format!("{session}\nratio = 0.7")).is_err());
    }
}
