//! Whole sessions over real multicast on the loopback interface: files in, files out.

#![expect(clippy::unwrap_used, reason = "the helpers of tests panic as tests do")]

mod bed;
mod compression;
mod files;
mod hostile;
mod multi_rate;
mod on_request;
mod repair;
mod single_rate;
