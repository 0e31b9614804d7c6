//! Configuration of `headwater serve`: TOML, with the options of `send`, `receive` and `get` as keys.
//!
//! The command line's definition is the only list of options: keys become arguments, which `clap` checks.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{ArgAction, CommandFactory, Parser};
use headwater::PrepareOptions;
use toml::de::{DeTable, DeValue};

use super::hours::Hours;
use crate::args::{Cli, Command, SendArgs, error_lines, values, view_address};
use crate::exit::{Exit, Failure, OrExit};

/// Default time without a change before the next session of a carousel.
const SETTLE: Duration = Duration::from_secs(2);
/// Maximum number of services in a configuration.
const SERVICES_MAX: usize = 256;
/// Longest configuration in bytes.
const BYTES_MAX: u64 = 1 << 20;
/// Key of the address of the page.
const HTTP: &str = "http";
/// Options that do not suit a service.
const REFUSED: [&str; 6] = ["check", "dry-run", "follow", "help", "json", "version"];

/// Kind of a service, by the name of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceKind {
    /// `headwater send` of a folder, again after each change.
    Carousel,
    /// `headwater receive --follow`.
    Receive,
    /// `headwater get --follow`.
    Get,
}

impl ServiceKind {
    const ALL: [Self; 3] = [Self::Carousel, Self::Receive, Self::Get];

    /// Name of the table.
    const fn name(self) -> &'static str {
        match self {
            Self::Carousel => "carousel",
            Self::Receive => "receive",
            Self::Get => "get",
        }
    }

    /// Command of the service.
    const fn command(self) -> &'static str {
        match self {
            Self::Carousel => "send",
            Self::Receive => "receive",
            Self::Get => "get",
        }
    }

    /// Keys that are no options of the command.
    const fn own_keys(self) -> &'static [&'static str] {
        match self {
            Self::Carousel => &["name", "hours", "path", "settle"],
            Self::Receive => &["name", "hours"],
            Self::Get => &["name", "hours", "url"],
        }
    }

    /// Key of the command's arguments without a name.
    const fn positional(self) -> Option<&'static str> {
        match self {
            Self::Carousel => Some("path"),
            Self::Receive => None,
            Self::Get => Some("url"),
        }
    }
}

/// A service: a command that runs again and again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Name in messages, unique.
    pub name: String,
    /// Kind.
    pub kind: ServiceKind,
    /// Arguments of the command, the command first.
    pub words: Vec<String>,
    /// Paths whose changes begin a new session.
    pub watched: Vec<PathBuf>,
    /// Options for finding files there.
    pub prepare: PrepareOptions,
    /// Time without a change before a new session begins.
    pub settle: Duration,
    /// Local times at which the service runs; `None` for always.
    pub hours: Option<Hours>,
}

/// Services, and the page of all services.
#[derive(Debug)]
pub struct Configuration {
    /// Address of the page.
    pub http: Option<SocketAddr>,
    /// Services.
    pub services: Vec<Service>,
}

/// Reads and checks a configuration.
///
/// # Errors
/// The first wrong key or value, with the table's name.
pub fn read(path: &Path) -> Result<Configuration, Failure> {
    let tried = || format!("cannot read '{}'", path.display());
    let bytes = std::fs::metadata(path).or_exit(Exit::Usage, tried())?.len();
    if bytes > BYTES_MAX {
        return Err(Failure::new(Exit::Usage, format!("{}: {bytes} bytes are too many", tried())));
    }
    let text = std::fs::read_to_string(path).or_exit(Exit::Usage, tried())?;
    parse(&text).map_err(|why| Failure::new(Exit::Usage, format!("'{}': {why}", path.display())))
}

/// Parses a configuration.
pub fn parse(text: &str) -> Result<Configuration, String> {
    let table = DeTable::parse(text).map_err(|error| error.to_string().trim_end().to_owned())?;
    let mut services: Vec<Service> = Vec::new();
    let mut http = None;
    for (key, value) in table.get_ref() {
        let key: &str = key.get_ref();
        if key == HTTP {
            let DeValue::String(text) = value.get_ref() else { return Err(format!("'{HTTP}' is a text")) };
            http = Some(view_address(text).map_err(|why| format!("'{HTTP}': {why}"))?);
            continue;
        }
        let [carousel, receive, get] = ServiceKind::ALL.map(ServiceKind::name);
        let Some(kind) = ServiceKind::ALL.into_iter().find(|kind| kind.name() == key) else {
            return Err(unknown("table", key, &[carousel, receive, get, HTTP]));
        };
        let DeValue::Array(tables) = value.get_ref() else {
            return Err(format!("'{key}' is a list of tables: write [[{key}]]"));
        };
        for table in tables.iter() {
            let DeValue::Table(table) = table.get_ref() else {
                return Err(format!("'{key}' is a list of tables: write [[{key}]]"));
            };
            let service = service(kind, table)?;
            if services.iter().any(|other| other.name == service.name) {
                return Err(format!("two services have the name '{}'", service.name));
            }
            services.push(service);
        }
    }
    if services.is_empty() || services.len() > SERVICES_MAX {
        return Err(format!("1 to {SERVICES_MAX} services are possible, not {}", services.len()));
    }
    Ok(Configuration { http, services })
}

fn service(kind: ServiceKind, table: &DeTable<'_>) -> Result<Service, String> {
    let text = |key: &str| match table.get(key).map(|value| value.get_ref()) {
        None => Ok(None),
        Some(DeValue::String(text)) => Ok(Some(text.to_string())),
        Some(_) => Err(format!("[[{}]]: '{key}' is a text", kind.name())),
    };
    let Some(name) = text("name")?.filter(|name| is_name(name)) else {
        return Err(format!("[[{}]]: a name of letters, digits, '.', '_' and '-' is missing", kind.name()));
    };
    let within = |why: String| format!("[[{}]] '{name}': {why}", kind.name());
    let command = Cli::command();
    let command = command.find_subcommand(kind.command()).ok_or("no such command")?;
    let mut words = vec![kind.command().to_owned()];
    let mut positional = Vec::new();
    for (key, value) in table {
        let (key, value): (&str, _) = (key.get_ref(), value.get_ref());
        if kind.positional() == Some(key) {
            positional = scalars(key, value).map_err(within)?;
        } else if !kind.own_keys().contains(&key) {
            words.extend(option(command, kind, key, value).map_err(within)?);
        }
    }
    if kind != ServiceKind::Carousel {
        words.push("--follow".to_owned());
    } else if table.get("links").is_none() {
        // Nobody looks at the warnings about links that lead out of the folder.
        words.push("--links=skip".to_owned());
    }
    if let Some(key) = kind.positional() {
        if positional.is_empty() {
            return Err(within(format!("'{key}' is missing")));
        }
        words.push("--".to_owned());
        words.extend(positional.clone());
    }
    let (watched, prepare) = checked(kind, &words, &positional).map_err(within)?;
    let settle = text("settle").map_err(within)?;
    let settle = settle.map_or(Ok(SETTLE), |text| values::duration(&text));
    let settle = settle.map_err(|why| within(format!("'settle': {why}")))?;
    let hours = text("hours").map_err(within)?.map(|text| text.parse::<Hours>()).transpose();
    let hours = hours.map_err(|why| within(format!("'hours': {why}")))?;
    Ok(Service { name, kind, words, watched, prepare, settle, hours })
}

/// Checks arguments by the definition of the command line. Returns the paths to watch, and the options for
/// finding files there.
fn checked(
    kind: ServiceKind,
    words: &[String],
    paths: &[String],
) -> Result<(Vec<PathBuf>, PrepareOptions), String> {
    let words = std::iter::once("headwater").chain(words.iter().map(String::as_str));
    let cli = Cli::try_parse_from(words).map_err(|error| error_lines(&error))?;
    match cli.command {
        Command::Send(args) if is_input(&args) => Err("'path' names files and folders, not '-'".into()),
        Command::Send(args) if kind == ServiceKind::Carousel => {
            Ok((paths.iter().map(PathBuf::from).collect(), args.metadata.prepare_options()))
        }
        _ => Ok((Vec::new(), PrepareOptions::default())),
    }
}

fn is_input(args: &SendArgs) -> bool {
    args.paths.iter().any(|path| path == Path::new("-"))
}

/// Converts a key to an option of the command.
fn option(
    command: &clap::Command,
    kind: ServiceKind,
    key: &str,
    value: &DeValue<'_>,
) -> Result<Vec<String>, String> {
    let known = || command.get_arguments().filter_map(clap::Arg::get_long);
    let known = || known().filter(|name| !REFUSED.contains(name));
    if REFUSED.contains(&key) {
        return Err(format!("'{key}' does not suit a service"));
    }
    let Some(arg) = command.get_arguments().find(|arg| arg.get_long() == Some(key)) else {
        let all: Vec<_> = known().chain(kind.own_keys().iter().copied()).collect();
        return Err(unknown("key", key, &all));
    };
    // `compress = true` is the option without a value.
    let needs_no_value = arg.get_num_args().is_some_and(|values| values.min_values() == 0);
    let is_boolean = matches!(value, DeValue::Boolean(_));
    if matches!(arg.get_action(), ArgAction::SetTrue | ArgAction::Count) || (needs_no_value && is_boolean) {
        return match value {
            DeValue::Boolean(true) => Ok(vec![format!("--{key}")]),
            DeValue::Boolean(false) => Ok(Vec::new()),
            _ => Err(format!("'{key}' is true or false")),
        };
    }
    Ok(scalars(key, value)?.into_iter().map(|value| format!("--{key}={value}")).collect())
}

/// Returns the texts of a value, or of a list of values.
fn scalars(key: &str, value: &DeValue<'_>) -> Result<Vec<String>, String> {
    match value {
        DeValue::String(text) => Ok(vec![text.to_string()]),
        DeValue::Integer(number) => Ok(vec![number.to_string()]),
        DeValue::Float(number) => Ok(vec![number.to_string()]),
        DeValue::Array(list) => {
            let texts = list.iter().map(|value| match value.get_ref() {
                DeValue::Array(_) => Err(format!("'{key}' is a list of texts")),
                value => scalars(key, value),
            });
            texts.collect::<Result<Vec<_>, _>>().map(|texts| texts.concat())
        }
        _ => Err(format!("'{key}' is a text or a number")),
    }
}

fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    !name.is_empty() && name.len() <= 64 && name.bytes().all(is_plain)
}

/// Describes an unknown word, with the nearest known word.
fn unknown(kind: &str, word: &str, known: &[&str]) -> String {
    let near = known.iter().map(|known| (strsim::damerau_levenshtein(word, known), known));
    match near.min().filter(|(distance, _)| *distance <= 3) {
        Some((_, near)) => format!("no {kind} '{word}'; did you mean '{near}'?"),
        None => format!("no {kind} '{word}'; known are {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_the_options_of_the_commands() {
        let text = r#"
            http = "127.0.0.1"
            [[carousel]]
            name = "images"
            path = ["/srv/a", "/srv/b"]
            group = "239.1.2.3:7000"
            max-rate = "200M"
            no-sign = true
            ttl = 8
            compress = true
            hours = "22:00-06:00"
            settle = "5s"
            [[get]]
            name = "weather"
            url = "http://192.0.2.1/"
            out = "/srv/in"
            trust = ["ssh-ed25519 AAAA", "ssh-ed25519 BBBB"]
            delete = false
        "#;
        let Configuration { http, services } = parse(text).unwrap();
        assert_eq!(http, Some("127.0.0.1:9720".parse().unwrap()));
        assert_eq!(services.len(), 2);
        let images = &services[0];
        assert_eq!(images.watched, [PathBuf::from("/srv/a"), PathBuf::from("/srv/b")]);
        assert_eq!(images.settle, Duration::from_secs(5));
        assert!(images.hours.is_some());
        for word in ["--group=239.1.2.3:7000", "--max-rate=200M", "--no-sign", "--ttl=8", "--compress"] {
            assert!(images.words.iter().any(|other| other == word), "{word}: {:?}", images.words);
        }
        let weather = &services[1];
        assert_eq!(weather.words.iter().filter(|word| word.starts_with("--trust=")).count(), 2);
        assert!(weather.words.contains(&"--follow".to_owned()) && weather.watched.is_empty());
        assert!(!weather.words.contains(&"--delete".to_owned()));
    }

    #[test]
    fn wrong_configurations_are_refused_with_the_place_and_the_near_name() {
        let carousel = |rest: &str| format!("[[carousel]]\nname = \"images\"\npath = \"/srv\"\n{rest}");
        let cases = [
            (carousel("max_rate = \"1M\""), "did you mean 'max-rate'?"),
            (carousel("setle = \"2s\""), "did you mean 'settle'?"),
            (carousel("max-rate = \"fast\""), "[[carousel]] 'images'"),
            (carousel("dry-run = true"), "does not suit a service"),
            (carousel("no-sign = \"yes\""), "'no-sign' is true or false"),
            (carousel("hours = \"22-06\""), "'hours'"),
            (carousel(&carousel("")), "two services have the name"),
            ("[[carousel]]\nname = \"a b\"\npath = \"/srv\"".into(), "a name of letters"),
            ("[[carousel]]\nname = \"a\"".into(), "'path' is missing"),
            ("[[carousel]]\nname = \"a\"\npath = \"-\"".into(), "not '-'"),
            ("[[carrousel]]\nname = \"a\"".into(), "did you mean 'carousel'?"),
            ("[carousel]\nname = \"a\"".into(), "write [[carousel]]"),
            ("[[receive]]\nname = \"a\"".into(), "--out"),
            (String::new(), "1 to 256 services"),
            ("htpp = \"127.0.0.1\"".into(), "did you mean 'http'?"),
            ("http = 9720".into(), "'http' is a text"),
            ("http = \"here\"".into(), "'http': not an address"),
            ("[[carousel".into(), "TOML parse error"),
        ];
        for (text, expected) in cases {
            let error = parse(&text).expect_err(&text);
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
