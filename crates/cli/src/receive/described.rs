//! Receivers of described sessions: `headwater get` and `headwater receive --sdp`.

use std::path::Path;

use headwater::keys::openssh;
use headwater::{DescriptionError, FetchedDescription};
use headwater_proto::control::Rules;

use super::follow;
use crate::args::{
    GROUP_DEFAULT, GetArgs, ListenArgs, NetworkArgs, ReceiveArgs, Repair, RepairArgs, ServingArgs, values,
};
use crate::exit::{Exit, Failure, OrExit};

/// Begin of a key behind a URL, which takes the place of `--trust`.
const KEY: &str = "#key=";
/// Kind of a key, which the key behind a URL leaves out.
const KEY_KIND: &str = "ssh-ed25519 ";

/// Fetches the description at the URL. Returns the description, and the arguments of the receiver.
pub fn fetch(args: &GetArgs) -> Result<(FetchedDescription, ReceiveArgs), Failure> {
    let (url, key) = match args.url.split_once(KEY) {
        Some((url, key)) => (url, Some(format!("{KEY_KIND}{}", key.trim_start_matches(KEY_KIND)))),
        None => (&*args.url, None),
    };
    let found = FetchedDescription::fetch(url).map_err(|error| {
        let exit = match &error {
            DescriptionError::Url(_) => Exit::Usage,
            DescriptionError::Fetch { .. } => Exit::Network,
            DescriptionError::Sdp { .. } => Exit::Other,
        };
        Failure::of(exit, error)
    })?;
    let mut receive = receive_args(args)?;
    receive.keys.trust.extend(key);
    apply(&mut receive, &found)?;
    Ok((found, receive))
}

/// Waits until the URL describes another session than the last session, and replaces the description. Returns
/// the arguments of the receiver; `None` after a signal.
pub fn await_next(
    (found, args): &mut (FetchedDescription, &GetArgs),
    last: Option<u64>,
    is_asked: &dyn Fn() -> bool,
) -> Option<ReceiveArgs> {
    loop {
        match fetch(args) {
            Ok((new, receive)) if last.is_none() || new.description.tsi != last => {
                *found = new;
                return Some(receive);
            }
            Ok(_) => {}
            Err(failure) => tracing::debug!("{}", failure.chain()),
        }
        follow::pause(is_asked);
        if is_asked() {
            return None;
        }
    }
}

/// Returns the arguments of `headwater receive` for `headwater get`.
fn receive_args(args: &GetArgs) -> Result<ReceiveArgs, Failure> {
    let group = values::group(GROUP_DEFAULT).map_err(|why| Failure::new(Exit::Usage, why))?;
    Ok(ReceiveArgs {
        out: Some(args.out.clone()),
        to: None,
        select: args.select.clone(),
        metadata: args.metadata.clone(),
        network: NetworkArgs { group, interface: args.interface.clone() },
        listen: ListenArgs { source: None, drop: None, seed: 1 },
        tsi: None,
        sdp: None,
        described: None,
        timeout: Some(args.timeout),
        ask: None,
        via: None,
        multicast: None,
        amt: None,
        max_rate: args.max_rate,
        rtt: None,
        rules: Rules::Revised,
        no_reports: args.no_reports,
        name: None,
        roster_key: None,
        linger: std::time::Duration::from_secs(5),
        follow: args.follow.clone(),
        repair: RepairArgs { repair: Repair::Auto, repair_url: None },
        serve: ServingArgs::none(),
        view: args.view.clone(),
        confine: args.confine.clone(),
        keys: args.keys.clone(),
        output: args.output.clone(),
    })
}

/// Reads the description in the file of `--sdp`. Returns the arguments with what the description says.
pub fn read(args: &ReceiveArgs, file: &Path) -> Result<ReceiveArgs, Failure> {
    let bytes = std::fs::read(file).or_exit(Exit::Usage, format!("cannot read '{}'", file.display()))?;
    let found = FetchedDescription::parse(file.display().to_string(), &bytes);
    let found = found.map_err(|error| Failure::of(Exit::Usage, error))?;
    let mut args = args.clone();
    apply(&mut args, &found)?;
    let description = &found.description;
    if description.groups.is_none() {
        let Some(rainbow) = description.rainbow else {
            let why =
                format!("'{}' names no group and no source; headwater get takes its URL", file.display());
            return Err(Failure::new(Exit::Usage, why));
        };
        (args.ask, args.via, args.listen.source) = (Some(rainbow.source), rainbow.via, None);
    }
    if args.repair.repair_url.is_none() {
        args.repair.repair_url.clone_from(&description.http);
    }
    args.described = Some(found);
    Ok(args)
}

/// Sets group, source, identifier and key as described. Keys that the user has named count alone.
pub fn apply(args: &mut ReceiveArgs, found: &FetchedDescription) -> Result<(), Failure> {
    let description = &found.description;
    if let Some(groups) = description.groups {
        args.network.group = groups.base;
        let source = description.source.map(|source| values::host(&source.to_string()));
        args.listen.source = source.transpose().map_err(|why| Failure::new(Exit::Usage, why))?;
    } else if let Some(rainbow) = description.rainbow {
        args.network.group = rainbow.source;
    }
    args.tsi = description.tsi;
    if args.keys.trust.is_empty() && !args.keys.unsigned {
        args.keys.trust.extend(description.key.as_ref().map(openssh));
    }
    Ok(())
}
