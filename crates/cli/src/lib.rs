//! Parts of the command `headwater`, as a library that shares exit codes, terminal output, signals and values
//! of options with `headwater-lab`. Other programs use the crate `headwater`.

mod args;
pub mod bench;
mod capture;
mod demo;
mod doctor;
pub mod embed;
mod events;
pub mod exit;
mod feedback;
pub mod generate;
mod inspect;
mod keys;
mod live;
mod pgm;
mod receive;
mod relay;
mod sandbox;
pub mod screen;
mod send;
mod serve;
pub mod shutdown;
mod simulate;
mod stream;
mod system;
mod view;

pub use args::{Cli, OutputArgs, values};

use args::Command;
use exit::{Exit, Failure};

impl Cli {
    /// Runs the command.
    ///
    /// # Errors
    /// The failure of the command, with an exit code.
    pub fn run(&self) -> Result<Exit, Failure> {
        serve::follow_supervisor();
        match &self.command {
            Command::Send(args) => send::run(args),
            Command::Receive(args) => receive::run(args),
            Command::Get(args) => receive::get(args),
            Command::Pgm(args) => pgm::run(args),
            Command::Stream(args) => stream::run(args),
            Command::Relay(args) => relay::run(args),
            Command::Demo(args) => demo::run(args),
            Command::View(args) => view::run(args),
            Command::Doctor(args) => doctor::run(args),
            Command::Inspect(args) => inspect::run(args),
            Command::Simulate(args) => simulate::run(args),
            Command::Bench(args) => bench::run(args),
            Command::Keygen(args) => keys::keygen(args),
            Command::Generate(args) => generate::run(args),
            Command::Serve(args) => serve::run(args),
            Command::RunForFiles(args) => receive::run_for_files(args),
            Command::RunTied(args) => stream::run_tied(args),
        }
    }
}
