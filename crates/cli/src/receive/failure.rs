//! Failures of receivers: the message with advice, and the exit code.

use std::net::SocketAddr;
use std::path::Path;

use headwater::keys::Unopened;
use headwater::net::OpenError;
use headwater::{FetchedDescription, IncompleteReason, ReceiveError, ReceiveOutcome, ReceiveSummary};
use headwater_proto::Size;

use super::view::wanted;
use crate::args::ReceiveArgs;
use crate::exit::{Exit, Failure};
use crate::keys;

/// Maximum number of other sessions listed if the requested session does not arrive.
const OTHERS_NAMED_MAX: usize = 3;

/// Returns the failure of an outcome with advice and exit code; `None` for a complete session.
pub fn failure(outcome: &ReceiveOutcome, refused: usize, group: SocketAddr, out: &Path) -> Option<Failure> {
    Some(match outcome {
        ReceiveOutcome::Completed => return None,
        ReceiveOutcome::NothingReceived => nothing_received(group),
        ReceiveOutcome::NothingWanted => Failure::new(
            Exit::NothingReceived,
            "no file of the session fits --include and --exclude, so nothing was taken; patterns tell capital from small letters",
        ),
        ReceiveOutcome::NothingTrusted => {
            Failure::new(Exit::Untrusted, format!("packets came from {group}, but none of a trusted sender"))
        }
        ReceiveOutcome::NothingOpened(reason) => nothing_opened(*reason, false, group),
        ReceiveOutcome::Incomplete(reason) => Failure::new(Exit::Incomplete, incomplete(*reason, refused)),
        ReceiveOutcome::VerificationFailed => Failure::new(
            Exit::VerificationFailed,
            "a file differs from the sender's digest and was discarded; receive it again, and check the sender's \
             storage if the error repeats",
        ),
        ReceiveOutcome::ControlRefused(reason) => Failure::new(Exit::Other, reason),
        ReceiveOutcome::StoreFailed(error) => Failure::of(
            Exit::Disk,
            anyhow::Error::from(error.clone()).context(format!("cannot write to '{}'", out.display())),
        ),
        ReceiveOutcome::Interrupted => {
            Failure::new(Exit::Interrupted, "interrupted before every file was whole")
        }
    })
}

/// Returns the failure of a session whose content no group key decrypts.
pub fn nothing_opened(reason: Unopened, has_group_key: bool, group: SocketAddr) -> Failure {
    Failure::new(
        Exit::Unopened,
        format!("the session on {group} {}", keys::not_opened(reason, has_group_key)),
    )
}

/// Returns the failure of a session without a packet from the group within the timeout.
pub fn nothing_received(group: SocketAddr) -> Failure {
    Failure::new(
        Exit::NothingReceived,
        format!(
            "nothing was received from {group} within the timeout; is the sender on this network and this group, \
             does its TTL reach this machine, and does a firewall let UDP port {} in? `headwater doctor` checks all of this",
            group.port()
        ),
    )
}

/// Returns the failure of a receiver whose requested session did not arrive within the timeout.
pub fn nothing_wanted(args: &ReceiveArgs, summary: &ReceiveSummary) -> Failure {
    let (group, others) = (args.network.group, &summary.others);
    let message = if let [first, ..] = &others[..] {
        let shown = others.iter().take(OTHERS_NAMED_MAX);
        let shown = shown.map(|other| format!("session {} from {}", other.tsi, other.source));
        let more = others.len().saturating_sub(OTHERS_NAMED_MAX);
        let source = first.source.ip();
        let name = match (args.tsi, &args.listen.source) {
            // A source-specific group needs a source.
            (None, Some(_)) => format!("name that source (--source {source})"),
            _ => format!(
                "name that session (--tsi {} --source {source}), or leave both options out to receive the first session",
                first.tsi
            ),
        };
        format!(
            "nothing was received of the requested session{}, but on {group} of {}{}; {name}",
            wanted(args),
            shown.collect::<Vec<_>>().join(", "),
            if more == 0 { String::new() } else { format!(" and {more} more") },
        )
    } else if summary.datagrams > 0 {
        format!(
            "no session was received on {group} within the timeout, but {} datagrams of another protocol: another program uses this group and \
             port; choose another --group at both ends",
            summary.datagrams
        )
    } else if args.amt.is_some() {
        format!(
            "nothing was received from {group} through the AMT relay within the timeout; does UDP pass to and from the relay, and does the \
             relay receive the group on its interface, from this source, within the sender's TTL?"
        )
    } else {
        return nothing_received(group);
    };
    Failure::new(Exit::NothingReceived, message)
}

/// Returns the failure of a receiver whose requests were not answered.
pub fn nothing_answered(source: SocketAddr, via: Option<SocketAddr>) -> Failure {
    let by_way_of = via.map_or_else(String::new, |via| format!(" by way of {via}"));
    Failure::new(
        Exit::NothingReceived,
        format!(
            "nothing was received from {source}{by_way_of} within the timeout; does the source send with --congestion-control rainbow, is the \
             address the one that the source or relay sends from, and do firewalls let UDP through?"
        ),
    )
}

/// Returns the failure of a receiver to which nothing came by any path of a description.
pub fn nothing_came(found: &FetchedDescription) -> Failure {
    let description = &found.description;
    let groups = description.groups.map(|groups| format!("multicast to {}", groups.base));
    let rainbow = description.rainbow.map(|rainbow| format!("requests to {}", rainbow.source));
    let http = description.http.as_ref().map(|http| match &description.fdt {
        Some(_) => format!("HTTP from {http}"),
        None => format!("HTTP from {http} (without an FDT, which the description does not name)"),
    });
    let paths: Vec<String> = groups.into_iter().chain(rainbow).chain(http).collect();
    let why = format!(
        "nothing came within the timeout by any path of '{}': {}; is the sender still running, and does a firewall \
         let it through?",
        found.url,
        paths.join(", ")
    );
    Failure::new(Exit::NothingReceived, why)
}

fn incomplete(reason: IncompleteReason, refused: usize) -> String {
    match reason {
        IncompleteReason::TimedOut => {
            "the session fell silent before every file was complete; start this receiver \
             again while the session is sent, or set a longer --timeout"
                .into()
        }
        IncompleteReason::NothingNeeded => {
            "the session goes on, but brought nothing that is missing here within the timeout: a cycle of its symbols \
             may take longer; start this receiver again, set a longer --timeout, or send with another --fec"
                .into()
        }
        IncompleteReason::SessionClosed => {
            "the sender ended the session before every file was complete; send \
             more passes, or until interrupted"
                .into()
        }
        IncompleteReason::PartsMissed { bytes, is_beginning: true } => format!(
            "the first {} of the stream were not sent any more when this receiver began; start receivers before the sender, \
             or send with a larger --keep",
            Size(bytes)
        ),
        IncompleteReason::PartsMissed { bytes, is_beginning: false } => format!(
            "{} of the stream are missing: the sender did not keep them long enough for this receiver; send more slowly, or \
             with a larger --keep",
            Size(bytes)
        ),
        IncompleteReason::Refused => format!(
            "{} of the session cannot be received here; the lines above say why",
            crate::screen::count(refused, "file")
        ),
    }
}

pub fn receiving_failed(args: &ReceiveArgs, error: ReceiveError) -> Failure {
    error_failure(&format!("cannot receive from {}", args.ask.unwrap_or(args.network.group)), error)
}

/// Adds an exit code to an error of a receiver.
pub fn error_failure(tried: &str, error: ReceiveError) -> Failure {
    let exit = match &error {
        ReceiveError::Open(OpenError::SourceFamily { .. }) => Exit::Usage,
        ReceiveError::Interface(_) | ReceiveError::Open(_) | ReceiveError::Network { .. } => Exit::Network,
        ReceiveError::Channels(_) | ReceiveError::Loss(_) | ReceiveError::Nobody(..) => Exit::Usage,
        ReceiveError::Store(_) => Exit::Disk,
    };
    match error {
        // The message names the folder, which failed instead of the group.
        ReceiveError::Store(error) => Failure::of(exit, error),
        error => Failure::of(exit, anyhow::Error::from(error).context(tried.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use headwater_proto::delivery::StoreError;

    use super::*;

    #[test]
    fn reported_codes_are_the_exit_codes() {
        let outcomes = [
            ReceiveOutcome::Completed,
            ReceiveOutcome::NothingReceived,
            ReceiveOutcome::NothingWanted,
            ReceiveOutcome::NothingTrusted,
            ReceiveOutcome::Incomplete(IncompleteReason::TimedOut),
            ReceiveOutcome::Incomplete(IncompleteReason::NothingNeeded),
            ReceiveOutcome::VerificationFailed,
            ReceiveOutcome::ControlRefused(String::new()),
            ReceiveOutcome::StoreFailed(StoreError(String::new())),
            ReceiveOutcome::Interrupted,
        ];
        for outcome in outcomes {
            let failure = failure(&outcome, 0, "239.1.1.1:1".parse().unwrap(), Path::new("."));
            let code = failure.map_or(0, |failure| failure.exit as u8);
            assert_eq!(code, outcome.code(), "{outcome:?}");
        }
    }
}
