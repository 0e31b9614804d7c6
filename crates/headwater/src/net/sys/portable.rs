//! The portable layer: a datagram per call, by `quinn-udp` and `socket2`. The time of arrival is the time of
//! reading.

use std::io::{self, IoSliceMut};
use std::net::IpAddr;

use quinn_udp::{EcnCodepoint, RecvMeta, Transmit, UdpSocketState};
use socket2::Socket;

use super::{
    Incoming, MESSAGES_MAX, MembershipChange, MessageMetadata, Outgoing, is_report, set_traffic_class,
};
use crate::net::interface::Interface;

/// Most reports on earlier datagrams that one call passes over.
const REPORTS_MAX: usize = 16;

/// Sends the messages before the first `None`, each by a call. Returns the number of messages sent.
///
/// # Errors
/// The kernel's error for the first message.
pub(super) fn send_messages(
    socket: &Socket,
    state: &UdpSocketState,
    messages: &[Option<Outgoing<'_>>; MESSAGES_MAX],
) -> io::Result<usize> {
    let mut sent = 0;
    for message in messages.iter().map_while(Option::as_ref) {
        match send_message(socket, state, message) {
            Ok(()) => sent += 1,
            Err(error) if sent == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(sent)
}

fn send_message(socket: &Socket, state: &UdpSocketState, message: &Outgoing<'_>) -> io::Result<()> {
    let plainly = || socket.send_to(&message.contents, &message.destination).map(|_| ());
    let Some(octet) = message.control.octet else { return plainly() };
    let destination = message.destination.as_socket().ok_or(io::ErrorKind::InvalidInput)?;
    if octet > 3 {
        // `quinn-udp` clears the code point of differentiated services.
        let set = |octet| set_traffic_class(socket, destination.is_ipv4(), octet);
        set(octet)?;
        let sent = plainly();
        return set(octet & !3).and(sent);
    }
    let ecn = EcnCodepoint::from_bits(octet);
    let contents = &*message.contents;
    state.try_send(socket.into(), &Transmit { destination, ecn, contents, segment_size: None, src_ip: None })
}

/// Receives waiting messages, at most one per buffer. Returns the number of messages.
///
/// # Errors
/// The kernel's error for the first message.
pub(super) fn receive_messages(
    socket: &Socket,
    state: &UdpSocketState,
    buffers: &mut [IoSliceMut<'_>],
    incoming: &mut [Incoming],
) -> io::Result<usize> {
    read_past_reports(buffers.len(), |index| {
        let mut meta = [RecvMeta::default()];
        state.recv(socket.into(), std::slice::from_mut(&mut buffers[index]), &mut meta)?;
        let [meta] = meta;
        let metadata = MessageMetadata {
            destination: meta.dst_ip,
            traffic_class: meta.ecn.map_or(0, |ecn| ecn as u8),
            segment_bytes: (meta.stride < meta.len).then_some(meta.stride),
            arrived: None,
        };
        incoming[index].bytes = meta.len;
        incoming[index].portable = Some((meta.addr, metadata));
        Ok(())
    })
}

/// Reads at most so many messages, each by its index. Reports on earlier datagrams are passed over; further
/// reports than [`REPORTS_MAX`] are left to the next call. Returns the number of messages.
fn read_past_reports(most: usize, mut read: impl FnMut(usize) -> io::Result<()>) -> io::Result<usize> {
    let (mut received, mut reports) = (0, 0);
    while received < most && reports < REPORTS_MAX {
        match read(received) {
            Ok(()) => received += 1,
            Err(error) if is_report(&error) => reports += 1,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                break;
            }
            Err(error) if received == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(received)
}

/// Joins or leaves a source-specific channel. IPv6: the group from any source, as `socket2` has no other
/// call; the caller drops packets from other sources.
///
/// # Errors
/// The error of `setsockopt`.
pub(super) fn change_source(
    socket: &Socket,
    interface: &Interface,
    (group, source): (IpAddr, IpAddr),
    change: MembershipChange,
) -> io::Result<()> {
    let joins = change == MembershipChange::Join;
    match (group, source, interface.ipv4) {
        (IpAddr::V4(group), IpAddr::V4(source), Some(address)) if joins => {
            socket.join_ssm_v4(&source, &group, &address)
        }
        (IpAddr::V4(group), IpAddr::V4(source), Some(address)) => {
            socket.leave_ssm_v4(&source, &group, &address)
        }
        (IpAddr::V6(group), ..) if joins => socket.join_multicast_v6(&group, interface.index),
        (IpAddr::V6(group), ..) => socket.leave_multicast_v6(&group, interface.index),
        _ => Err(io::ErrorKind::AddrNotAvailable.into()),
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn no_number_of_reports_ends_a_session() {
        let mut reports =
            [Errno::CONNRESET, Errno::NETRESET, Errno::CONNREFUSED].into_iter().cycle().take(40);
        let mut read = |_| reports.next().map_or(Ok(()), |errno| Err(errno.into()));
        let counts: Vec<_> = (0..4).map(|_| read_past_reports(2, &mut read).unwrap()).collect();
        assert_eq!(counts, [0, 0, 2, 2]);
        assert!(read_past_reports(2, |_| Err(Errno::BADF.into())).is_err());
    }

    #[test]
    fn messages_before_an_error_are_not_lost() {
        let read = |index| if index < 2 { Ok(()) } else { Err(Errno::BADF.into()) };
        assert_eq!(read_past_reports(8, read).unwrap(), 2);
        let empty = |_| Err(Errno::AGAIN.into());
        assert_eq!(read_past_reports(8, empty).unwrap(), 0);
    }
}
