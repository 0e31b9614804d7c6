//! `headwater serve`: a daemon for carousels over folders and for receivers that follow senders.
//!
//! The daemon reads no packet. The daemon starts the commands `send`, `receive` and `get`, each in a separate
//! confinement, and starts a carousel's command again when the folder has changed: a new session on the same
//! group.

mod child;
mod config;
mod hours;
mod service;
mod watch;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use headwater_web::{FileServer, FileServerOptions, FileServerSocket, LiveView, ViewSender};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::args::{OutputArgs, ServeArgs};
use crate::exit::{Exit, Failure, OrExit};
use crate::live::tell;
use crate::screen::Screen;
use crate::send::server_failed;
use crate::system::{ServiceState, notify, watchdog_interval};
pub use child::{SAMPLES, SUPERVISED, follow_supervisor};
use config::{Configuration, Service};
use service::Supervised;

/// Interval of the steps of services.
const STEP: Duration = Duration::from_millis(100);

/// Runs the services of a configuration until a signal.
pub fn run(args: &ServeArgs) -> Result<Exit, Failure> {
    let screen = Screen::new(&OutputArgs::default());
    let Configuration { http, services } = config::read(&args.config)?;
    if args.check {
        for Service { name, words, .. } in &services {
            println!("{name}: headwater {}", shown(words));
        }
        return Ok(Exit::Ok);
    }
    let signals = Signals::install()?;
    let now = Instant::now();
    let page = args.view.http.or(http).map(|address| open_page(address, args, &screen)).transpose()?;
    let view = page.as_ref().map(|(_, view)| view.sender());
    let supervise = |service| Supervised::new(service, view.clone(), now);
    let mut supervised: Vec<_> = services.into_iter().map(supervise).collect();
    let mut watchdog = Watchdog::new(now);
    notify(ServiceState::Ready);
    while !supervised.is_empty() {
        let (now, minute) = (Instant::now(), hours::minute_now());
        if signals.ends.load(Ordering::Relaxed) {
            notify(ServiceState::Stopping);
            supervised.iter_mut().for_each(Supervised::leave);
        }
        if signals.reloads.swap(false, Ordering::Relaxed) {
            reload(args, http, &mut supervised, (&screen, view.as_ref()), now);
        }
        supervised.iter_mut().for_each(|service| service.step(now, minute));
        supervised.retain(|service| !service.has_left());
        watchdog.step(now);
        std::thread::sleep(STEP);
    }
    Ok(Exit::Ok)
}

/// Serves the page of all services.
fn open_page(
    address: SocketAddr,
    args: &ServeArgs,
    screen: &Screen,
) -> Result<(FileServer, LiveView), Failure> {
    let options = FileServerOptions { view: args.view.opened.http_view, ..FileServerOptions::new(address) };
    let socket = FileServerSocket::open(options).map_err(server_failed)?;
    tell(&socket, screen);
    let view = LiveView::new();
    Ok((socket.serve(None, Some(view.clone())).map_err(server_failed)?, view))
}

/// Reads the configuration again. Services that have not changed go on; a faulty configuration changes
/// nothing. The page stays where `http` had it at the start.
fn reload(
    args: &ServeArgs,
    http: Option<SocketAddr>,
    supervised: &mut Vec<Supervised>,
    (screen, view): (&Screen, Option<&ViewSender>),
    now: Instant,
) {
    let services = match config::read(&args.config) {
        Ok(configuration) => {
            if configuration.http != http && args.view.http.is_none() {
                tracing::warn!("'http' has changed: start 'headwater serve' again to move the page");
            }
            configuration.services
        }
        Err(failure) => {
            tracing::error!("{}; the services go on as before", failure.chain());
            return;
        }
    };
    for running in supervised.iter_mut() {
        if !services.iter().any(|service| service.name == running.service().name) {
            running.leave();
        }
    }
    let mut changed = 0;
    for service in services {
        match supervised.iter_mut().find(|running| running.service().name == service.name) {
            Some(running) if running.runs(&service) => {}
            Some(running) => {
                changed += 1;
                running.replace(service, now);
            }
            None => {
                changed += 1;
                supervised.push(Supervised::new(service, view.cloned(), now));
            }
        }
    }
    screen.say(&format!(
        "the configuration was read again: {} changed",
        crate::screen::count(changed, "service")
    ));
}

/// Returns arguments in the syntax of a shell.
fn shown(words: &[String]) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_=./:,@+%".contains(&byte);
    let quoted = words.iter().map(|word| match word.bytes().all(is_plain) {
        true => word.clone(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// Signals that arrived.
struct Signals {
    ends: Arc<AtomicBool>,
    reloads: Arc<AtomicBool>,
}

impl Signals {
    fn install() -> Result<Self, Failure> {
        let (ends, reloads) = (Arc::default(), Arc::default());
        let signals = [
            (SIGINT, &ends),
            (SIGTERM, &ends),
            #[cfg(unix)]
            (signal_hook::consts::SIGHUP, &reloads),
        ];
        for (signal, flag) in signals {
            let installed = signal_hook::flag::register(signal, Arc::clone(flag));
            installed.or_exit(Exit::Other, "cannot catch signals")?;
        }
        Ok(Self { ends, reloads })
    }
}

/// Signs of life for the service manager, if the manager wants any.
struct Watchdog {
    interval: Option<Duration>,
    due: Instant,
}

impl Watchdog {
    fn new(now: Instant) -> Self {
        Self { interval: watchdog_interval().map(|longest| longest / 2), due: now }
    }

    fn step(&mut self, now: Instant) {
        if let Some(interval) = self.interval.filter(|_| now >= self.due) {
            self.due = now + interval;
            notify(ServiceState::Watchdog);
        }
    }
}
