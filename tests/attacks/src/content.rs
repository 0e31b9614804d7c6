//! Attacks of a host on the receivers' network on a session of files: the forger hears the session's groups,
//! and sends what it makes of them in the sender's name.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use headwater_wire::auth::{Authentication, insert_manifest};
use headwater_wire::extensions::FdtExtension;
use headwater_wire::fdt::{File, Instance, OtiAttributes};

use headwater_wire::{Cci, Extensions, Fti, PayloadId, alc, lct};

use super::attacks::listen;
use super::raw::Forged;
use super::{Draw, Values, send};

/// Datagrams heard that are kept: the latest.
const KEPT: usize = 4_096;
/// Object identifier of forged files.
const TOI: u128 = 1;
const FORGED_CONTENT: &[u8] = b"false";

/// Datagram of the attacked session, heard or to be sent.
#[derive(Clone)]
struct SessionDatagram {
    from: SocketAddrV4,
    to: SocketAddrV4,
    payload: Vec<u8>,
}

impl SessionDatagram {
    fn packet(&self) -> Option<lct::Packet<&[u8]>> {
        lct::Packet::new_checked(self.payload.as_slice()).ok()
    }

    /// The sender's datagram with another payload.
    fn with(&self, payload: Vec<u8>) -> Forged {
        Forged { from: self.from, to: self.to, payload }
    }
}

/// Latest datagrams heard on the groups from `group` on, `groups` of them, of those that are wanted.
struct Session(Arc<Mutex<VecDeque<SessionDatagram>>>);

impl Session {
    fn hear(values: &Values, is_wanted: fn(&SessionDatagram) -> bool) -> Result<Self> {
        let (group, interface): (SocketAddrV4, Ipv4Addr) = (values.get("group")?, values.get("interface")?);
        let heard = Arc::new(Mutex::new(VecDeque::with_capacity(KEPT)));
        for number in 0..values.or("groups", 1)? {
            let to = SocketAddrV4::new((u32::from(*group.ip()) + number).into(), group.port());
            let (socket, heard) = (listen(to, interface)?, Arc::clone(&heard));
            std::thread::spawn(move || {
                let mut buffer = [0; 9_000];
                while let Ok((bytes, SocketAddr::V4(from))) = socket.recv_from(&mut buffer) {
                    let datagram = SessionDatagram { from, to, payload: buffer[..bytes].to_vec() };
                    let Ok(mut heard) = heard.lock() else { return };
                    if is_wanted(&datagram) {
                        if heard.len() == KEPT {
                            heard.pop_front();
                        }
                        heard.push_back(datagram);
                    }
                }
            });
        }
        Ok(Self(heard))
    }

    /// Returns one of the latest `among` datagrams, at random.
    fn draw(&self, draw: &mut Draw, among: u64) -> Option<SessionDatagram> {
        let heard = self.0.lock().ok()?;
        let back = draw.below(among.min(heard.len() as u64));
        heard.iter().rev().nth(usize::try_from(back).ok()?).cloned()
    }
}

fn header(heard: &SessionDatagram) -> Option<(alc::Repr, &[u8])> {
    alc::parse(&heard.payload).ok()
}

fn is_session(heard: &SessionDatagram) -> bool {
    heard.packet().is_some_and(|packet| packet.tsi().is_some())
}

fn is_symbol(heard: &SessionDatagram) -> bool {
    header(heard)
        .is_some_and(|(header, _)| header.payload_id.is_some() && header.toi.is_some_and(|toi| toi > 0))
}

fn is_signed(heard: &SessionDatagram) -> bool {
    heard.packet().is_some_and(|packet| matches!(Authentication::find(&packet), Ok(Some(_))))
}

fn random(draw: &mut Draw, bytes: usize) -> Vec<u8> {
    let mut random: Vec<u8> =
        std::iter::repeat_with(|| draw.next().to_be_bytes()).take(bytes.div_ceil(8)).flatten().collect();
    random.truncate(bytes);
    random
}

/// Returns an unsigned packet.
fn emit(header: &alc::Repr, payload: &[u8]) -> Option<Vec<u8>> {
    let header = alc::Repr { extensions: Extensions { auth: false, ..header.extensions }, ..*header };
    let mut datagram = vec![0; header.buffer_len()];
    header.emit(&mut datagram).ok()?;
    datagram.extend_from_slice(payload);
    Some(datagram)
}

/// Symbols of the session's files with random content.
pub(crate) fn symbols(values: &Values) -> Result<()> {
    let session = Session::hear(values, is_symbol)?;
    send(values, |draw| {
        let heard = session.draw(draw, 64)?;
        let (mut header, symbol) = header(&heard)?;
        let esi = u32::try_from(draw.below(1 << 16)).ok()?;
        header.payload_id = header.payload_id.map(|id| PayloadId { esi, ..id });
        Some(heard.with(emit(&header, &random(draw, symbol.len()))?))
    })
}

/// Symbols as the session's, with random numbers for the congestion control.
pub(crate) fn numbers(values: &Values) -> Result<()> {
    let session = Session::hear(values, is_symbol)?;
    send(values, |draw| {
        let heard = session.draw(draw, 64)?;
        let (mut header, symbol) = header(&heard)?;
        let mut cci = header.cci.as_bytes().to_vec();
        let start = cci.len().checked_sub(2)?;
        cci[start..].copy_from_slice(&random(draw, 2));
        header.cci = Cci::new(&cci).ok()?;
        Some(heard.with(emit(&header, symbol)?))
    })
}

/// A description of the session by which the file `name` is five bytes long, and the five bytes in turn; with
/// `session=1` under another TSI.
pub(crate) fn descriptions(values: &Values) -> Result<()> {
    let (name, shift): (String, u64) = (values.get("name")?, values.or("session", 0)?);
    let session = Session::hear(values, is_session)?;
    let fti =
        |bytes: usize| Fti::NoCode { transfer_length: bytes as u64, symbol_size: u16::MAX, max_block: 1 };
    let file = File {
        toi: TOI,
        content_location: name,
        transfer_length: Some(FORGED_CONTENT.len() as u64),
        oti: OtiAttributes::from(&fti(FORGED_CONTENT.len())),
        ..File::default()
    };
    let xml =
        Instance { expires: u32::MAX, complete: true, files: vec![file], ..Instance::default() }.to_xml();
    let mut is_description = false;
    send(values, |draw| {
        is_description = !is_description;
        let heard = session.draw(draw, 64)?;
        let (heard_header, _) = header(&heard)?;
        let instance_id = u32::try_from(draw.below(1 << 20)).ok()?;
        let extensions = if is_description {
            let fdt = Some(FdtExtension { version: 2, instance_id });
            Extensions { fdt, fti: Some(fti(xml.len())), ..Extensions::default() }
        } else {
            Extensions::default()
        };
        let header = alc::Repr {
            tsi: heard_header.tsi + shift,
            toi: Some(if is_description { 0 } else { TOI }),
            codepoint: 0,
            extensions,
            payload_id: Some(PayloadId { sbn: 0, esi: 0 }),
            ..heard_header
        };
        let payload = if is_description { xml.as_bytes() } else { FORGED_CONTENT };
        Some(heard.with(emit(&header, payload)?))
    })
}

/// Packets that close the session.
pub(crate) fn closes(values: &Values) -> Result<()> {
    let session = Session::hear(values, is_session)?;
    send(values, |draw| {
        let heard = session.draw(draw, 64)?;
        let (header, _) = header(&heard)?;
        let (toi, payload_id, extensions) = (None, None, Extensions::default());
        let header = alc::Repr { close_session: true, toi, payload_id, extensions, ..header };
        Some(heard.with(emit(&header, &[])?))
    })
}

/// Manifests with the passes of the latest signatures, numbers that may come, and random signatures; each
/// fourth is a genuine packet with a random signature.
pub(crate) fn signatures(values: &Values) -> Result<()> {
    let session = Session::hear(values, is_signed)?;
    send(values, |draw| {
        let heard = session.draw(draw, 2)?;
        let (auth, range) = Authentication::find(&heard.packet()?).ok()??;
        let signature: [u8; 64] = random(draw, 64).try_into().ok()?;
        if draw.below(4) == 0 {
            let mut payload = heard.payload.clone();
            Authentication::complete(&mut payload[range], &signature, &auth.path[..auth.depth.into()]);
            return Some(heard.with(payload));
        }
        let (header, _) = header(&heard)?;
        let header = alc::Repr { toi: None, payload_id: None, extensions: Extensions::default(), ..header };
        let mut payload = vec![0; 256];
        let bytes = header.emit(&mut payload).ok()?;
        let tag = random(draw, 12).try_into().ok()?;
        let bytes = insert_manifest(&mut payload, bytes, [tag].into_iter()).ok()?;
        let number = auth.number.saturating_add(u32::try_from(draw.below(17)).ok()?);
        let auth = Authentication { depth: 0, leaf: 0, number, signature, ..auth };
        let end = auth.insert(&mut payload, bytes).ok()?.end;
        payload.truncate(end);
        Some(heard.with(payload))
    })
}

/// Packets of the session again, unchanged: up to 4096 datagrams back.
pub(crate) fn replays(values: &Values) -> Result<()> {
    let session = Session::hear(values, is_session)?;
    send(values, |draw| {
        let heard = session.draw(draw, KEPT as u64)?;
        Some(heard.with(heard.payload.clone()))
    })
}

/// Records what is heard for `seconds` in `file`.
pub(crate) fn record(values: &Values) -> Result<()> {
    let (path, seconds): (String, f64) = (values.get("file")?, values.get("seconds")?);
    let session = Session::hear(values, is_session)?;
    std::thread::sleep(Duration::from_secs_f64(seconds));
    let heard = session.0.lock().ok().context("a thread that listens has panicked")?;
    let mut file = std::io::BufWriter::new(std::fs::File::create(&path).context(path)?);
    for SessionDatagram { from, to, payload } in heard.iter() {
        for end in [from, to] {
            file.write_all(&end.ip().octets())?;
            file.write_all(&end.port().to_be_bytes())?;
        }
        file.write_all(&u16::try_from(payload.len())?.to_be_bytes())?;
        file.write_all(payload)?;
    }
    file.flush()?;
    println!("{{\"recorded\": {}}}", heard.len());
    Ok(())
}

/// Sends the datagrams of `file` in a loop.
pub(crate) fn recording(values: &Values) -> Result<()> {
    let path: String = values.get("file")?;
    let mut bytes = Vec::new();
    std::fs::File::open(&path).context(path)?.read_to_end(&mut bytes)?;
    let (mut heard, mut rest) = (Vec::new(), bytes.as_slice());
    while let Some((head, tail)) = rest.split_first_chunk::<14>() {
        let address = |at: usize| {
            let ip = Ipv4Addr::new(head[at], head[at + 1], head[at + 2], head[at + 3]);
            SocketAddrV4::new(ip, u16::from_be_bytes([head[at + 4], head[at + 5]]))
        };
        let length = usize::from(u16::from_be_bytes([head[12], head[13]]));
        let (payload, tail) = tail.split_at_checked(length).context("the recording is cut off")?;
        heard.push(SessionDatagram { from: address(0), to: address(6), payload: payload.to_vec() });
        rest = tail;
    }
    ensure!(!heard.is_empty(), "the recording is empty");
    let mut next = heard.iter().cycle();
    send(values, |_| next.next().map(|datagram| datagram.with(datagram.payload.clone())))
}
