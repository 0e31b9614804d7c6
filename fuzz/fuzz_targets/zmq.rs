//! Packets of ZeroMQ's kind, with losses in between: messages stay within their bound, and what comes of a
//! message packed again is that message.
#![no_main]
use headwater_proto::pgm::zmq::{Packer, Unpacker};
use libfuzzer_sys::fuzz_target;

const MESSAGE_BYTES_MAX: u32 = 300;

fuzz_target!(|packets: Vec<Option<Vec<u8>>>| {
    let mut unpacker = Unpacker::new(MESSAGE_BYTES_MAX);
    let mut messages = Vec::new();
    for packet in &packets {
        match packet {
            Some(packet) => unpacker.packet(packet, |message| messages.push(message.to_vec())),
            None => unpacker.lost(),
        }
    }
    assert!(messages.iter().all(|message| message.len() <= MESSAGE_BYTES_MAX as usize));
    let (mut packer, mut again) = (Packer::new(20), Vec::new());
    let mut unpacker = Unpacker::new(MESSAGE_BYTES_MAX);
    for message in &messages {
        packer.push(message, |packet| unpacker.packet(packet, |message| again.push(message.to_vec())));
    }
    packer.flush(|packet| unpacker.packet(packet, |message| again.push(message.to_vec())));
    assert_eq!(again, messages);
});
