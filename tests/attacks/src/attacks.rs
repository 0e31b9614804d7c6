//! The attacks: one function for each.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, ensure};
use headwater_wire::bcfs::{Header, Kind, Label, Level, WORDED_BODY_BYTES_MIN};
use headwater_wire::lct;
use headwater_wire::pgm::{Body, Gsi, Packet, PgmReport};
use headwater_wire::roster::{REPORT_BYTES_MAX, ReceiverState, Report, ReportKind, RosterHeader};
use headwater_wire::rtt::{Demand, LossClass, Message};
use headwater_wire::sim::{Data, Group, Holding, SimReport};
use socket2::{Domain, Socket, Type};

use super::raw::Forged;
use super::{Draw, Values, send};

/// Returns the victim, or a random host if there is none.
fn victim_or_any(victim: Ipv4Addr, bits: [u8; 8]) -> Ipv4Addr {
    if victim.is_unspecified() {
        Ipv4Addr::new(11 + bits[0] % 100, bits[1], bits[2], bits[3])
    } else {
        victim
    }
}

/// Requests over BCFS with the address of a victim, or of a random host each.
pub(crate) fn requests(values: &Values) -> Result<()> {
    let (to, source): (SocketAddrV4, SocketAddrV4) = (values.get("to")?, values.get("source")?);
    let victim: Ipv4Addr = values.or("victim", Ipv4Addr::UNSPECIFIED)?;
    let label: u32 = values.or("label", 1)?;
    send(values, |draw| {
        let bits = draw.next().to_be_bytes();
        let from = victim_or_any(victim, bits);
        let label = Label(label.wrapping_add(u32::from(bits[4])));
        let header = Header::new(Kind::Request, SocketAddr::V4(source), label, Level::ONE);
        let mut payload = vec![0; header.buffer_len()];
        header.emit(&mut payload).ok()?;
        // Half of the requests bring a word.
        payload.extend([bits[5] & 1; WORDED_BODY_BYTES_MIN]);
        Some(Forged { from: SocketAddrV4::new(from, 9), to, payload })
    })
}

/// Opens a socket that hears a group.
pub(crate) fn listen(group: SocketAddrV4, interface: Ipv4Addr) -> Result<std::net::UdpSocket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&SocketAddr::V4(group).into())?;
    socket.join_multicast_v4(group.ip(), &interface)?;
    Ok(socket.into())
}

/// Session that a forger of NAKs has heard.
#[derive(Clone, Copy)]
struct HeardSession {
    sender: SocketAddrV4,
    source_port: u16,
    destination_port: u16,
    gsi: Gsi,
}

/// NAKs for packets just sent, from one address or many of a network.
pub(crate) fn naks(values: &Values) -> Result<()> {
    let (group, interface): (SocketAddrV4, Ipv4Addr) = (values.get("group")?, values.get("interface")?);
    let (network, addresses): (String, u64) = (values.get("network")?, values.or("addresses", 1)?);
    ensure!((1..=250).contains(&addresses), "addresses= is 1 to 250");
    let from = |number: u64| -> Result<Ipv4Addr> { Ok(format!("{network}.{}", 2 + number).parse()?) };
    from(0).context("network= has three numbers, such as 10.88.7")?;
    let socket = listen(group, interface)?;
    let (heard, last) = (Arc::new(Mutex::new(None)), Arc::new(AtomicU32::new(0)));
    let (heard_by_reader, last_of_reader) = (Arc::clone(&heard), Arc::clone(&last));
    std::thread::spawn(move || {
        let mut buffer = [0; 9_000];
        while let Ok((bytes, SocketAddr::V4(sender))) = socket.recv_from(&mut buffer) {
            let Ok(packet) = Packet::parse(&buffer[..bytes]) else { continue };
            let Body::Odata { sequence, .. } = packet.body else { continue };
            last_of_reader.store(sequence, Ordering::Relaxed);
            let Packet { source_port, destination_port, gsi, .. } = packet;
            if let Ok(mut heard) = heard_by_reader.lock() {
                *heard = Some(HeardSession { sender, source_port, destination_port, gsi });
            }
        }
    });
    send(values, |draw: &mut Draw| {
        let HeardSession { sender, source_port, destination_port, gsi } = (*heard.lock().ok()?)?;
        let sequence = last.load(Ordering::Relaxed);
        let report = PgmReport { sequence, source: (*sender.ip()).into(), group: (*group.ip()).into() };
        let packet = Packet::new(destination_port, source_port, gsi, Body::Nak(report));
        let mut payload = vec![0; packet.buffer_len()];
        packet.emit(&mut payload).ok()?;
        let from = from(draw.below(addresses)).ok()?;
        Some(Forged { from: SocketAddrV4::new(from, 40_000), to: sender, payload })
    })
}

/// SIM's reports of congestion in answer to each request, or announcements of groups.
pub(crate) fn reports(values: &Values) -> Result<()> {
    let (group, interface): (SocketAddrV4, Ipv4Addr) = (values.get("group")?, values.get("interface")?);
    let (network, addresses): (String, u64) = (values.get("network")?, values.or("addresses", 1)?);
    let groups: u8 = values.or("groups", 0)?;
    let socket = listen(group, interface)?;
    let heard = Arc::new(Mutex::new(None));
    let heard_by_reader = Arc::clone(&heard);
    std::thread::spawn(move || {
        let mut buffer = [0; 9_000];
        while let Ok((bytes, SocketAddr::V4(sender))) = socket.recv_from(&mut buffer) {
            let Ok(packet) = lct::Packet::new_checked(&buffer[..bytes]) else { continue };
            let (Ok(data), Some(tsi)) = (Data::parse(packet.cci()), packet.tsi()) else { continue };
            if let Ok(mut heard) = heard_by_reader.lock() {
                *heard = Some((sender, data, u32::try_from(tsi & 0xFF_FFFF).unwrap_or(0)));
            }
        }
    });
    send(values, |draw: &mut Draw| {
        let (to, data, session): (SocketAddrV4, Data, u32) = (*heard.lock().ok()?)?;
        let from = format!("{network}.{}", 60 + draw.below(addresses.min(190))).parse().ok()?;
        let payload = if groups > 0 {
            Holding { session, groups }.emit().to_vec()
        } else {
            let report = SimReport {
                is_last: true,
                request: data.request,
                source: u32::try_from(draw.below(u64::from(u32::MAX))).unwrap_or(0),
                group: Group { session, rank: 0 },
                reports: 1,
                congested: 1,
                population: 1,
                min_rate: 1,
                max_rate: 1,
                echo: data.timestamp,
                hold: 0,
            };
            report.emit().to_vec()
        };
        Some(Forged { from: SocketAddrV4::new(from, 40_000), to, payload })
    })
}

/// Datagrams of receivers to a sender of files, in turn: a hello and the end of a receiver, reports of
/// levels, and questions for the round-trip time.
pub(crate) fn receivers(values: &Values) -> Result<()> {
    let (group, interface): (SocketAddrV4, Ipv4Addr) = (values.get("group")?, values.get("interface")?);
    let victim: Ipv4Addr = values.or("victim", Ipv4Addr::UNSPECIFIED)?;
    let socket = listen(group, interface)?;
    let mut buffer = [0; 9_000];
    let (_, SocketAddr::V4(to)) = socket.recv_from(&mut buffer)? else { anyhow::bail!("not IPv4") };
    let mut number = 0_u64;
    send(values, |draw: &mut Draw| {
        let bits = draw.next().to_be_bytes();
        number += 1;
        let payload = match number % 4 {
            0 => Message::Question { nonce: draw.next() }.emit().to_vec(),
            1 => {
                let (is_starting, loss) = (bits[4] & 1 == 0, LossClass::from_code(bits[5]));
                Message::Report(Demand { level: u8::MAX, is_starting, loss }).emit().to_vec()
            }
            of_roster => {
                let kind = if of_roster == 2 { ReportKind::Hello } else { ReportKind::Done };
                let (receiver, cookie) = (draw.next(), draw.next());
                let header = RosterHeader { kind, receiver, cookie, sequence: 1 };
                let state = (kind != ReportKind::Hello).then(ReceiverState::default);
                let mut bytes = [0; REPORT_BYTES_MAX];
                let length = Report { header, state, name: None }.emit(&mut bytes);
                bytes[..length].to_vec()
            }
        };
        let port = 1_024 + u16::from_be_bytes([bits[6], bits[7]]) % 60_000;
        Some(Forged { from: SocketAddrV4::new(victim_or_any(victim, bits), port), to, payload })
    })
}

/// Random bytes.
pub(crate) fn garbage(values: &Values) -> Result<()> {
    let (to, from): (SocketAddrV4, SocketAddrV4) = (values.get("to")?, values.get("from")?);
    let bytes: usize = values.or("bytes", 1_400)?;
    send(values, |draw| {
        let payload = std::iter::repeat_with(|| draw.next().to_be_bytes()).flatten().take(bytes).collect();
        Some(Forged { from, to, payload })
    })
}
