//! Standard input as the content of a session.

use std::io::{self, IsTerminal};
use std::path::Path;

use headwater::SendInput;

use crate::args::{Order, SendArgs};
use crate::exit::{Exit, Failure, OrExit};
use crate::system::standard_input;

/// Returns the input, if the only path is `-`.
///
/// # Errors
/// If an option or another path does not go together with an input of unknown length.
pub fn chosen(args: &SendArgs) -> Result<Option<SendInput>, Failure> {
    let usage = |reason: &str| Err(Failure::new(Exit::Usage, reason));
    if !args.paths.iter().any(|path| path == Path::new("-")) {
        if args.input.keep.is_some() {
            return usage("--keep is for standard input (PATH -): files are kept where they are");
        }
        return Ok(None);
    }
    if args.paths.len() > 1 {
        return usage("standard input (-) is sent alone: send the other paths in a session of their own");
    }
    let conflicts = [
        (args.dry_run, "--dry-run"),
        (args.order == Order::Window, "--order window"),
        (args.repair.http.is_some(), "--http"),
        (args.repair.repair_url.is_some(), "--repair-url"),
        (args.repair.sdp.is_some(), "--sdp"),
        (args.compress.is_some(), "--compress"),
    ];
    if let Some((_, option)) = conflicts.into_iter().find(|(is_given, _)| *is_given) {
        return usage(&format!("{option} needs content of known length: leave it out, or send a file"));
    }
    if io::stdin().is_terminal() {
        return usage("standard input is a terminal: pipe the output of a program into `headwater send -`");
    }
    let input = standard_input().or_exit(Exit::Disk, "cannot open standard input")?;
    let keep = args.input.keep.map(|keep| keep.0);
    Ok(Some(SendInput { input, name: args.input.input_name.clone(), keep }))
}
