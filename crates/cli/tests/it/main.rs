//! The command as its users meet it: one process per run.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

mod bench;
mod command;
mod compress;
mod demo;
mod disk_full;
mod doctor;
mod folders;
mod follow;
mod get;
mod groups;
mod help;
mod input;
mod inspect;
mod keys;
mod live;
mod messages;
mod pages;
mod pgm;
mod relay;
mod repair;
mod requests;
mod roster;
mod serve;
mod simulate;
mod stream;
mod target;
mod transfer;
mod usage;
