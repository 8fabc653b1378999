//! The gateway alone, in front of remote replicas.

mod failure;
mod options;

use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser as _;
use ivy::{Fleet, Server};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;
use crate::options::Options;

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            #[expect(clippy::print_stderr, reason = "the one line of a command that failed")]
            {
                eprintln!("ivy: {error}");
            }
            ExitCode::from(2)
        }
    }
}

fn run(options: &Options) -> Result<(), Failure> {
    rose_telemetry::init(&options.log_level, options.log_format)
        .map_err(|error| Failure::of_option("log-level", error))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .thread_name("ivy-worker")
        .enable_all()
        .build()?;
    runtime.block_on(serve(options, runtime.handle()))
}

/// Serves until SIGINT or SIGTERM; a second one ends the process at once.
async fn serve(options: &Options, runtime: &tokio::runtime::Handle) -> Result<(), Failure> {
    let mut signals = StopSignals::new()?;
    let config = options.gateway()?;
    let drain_timeout = config.drain_timeout;
    let fleet = Arc::new(Fleet::start(options.fleet()?)?);
    let server = Server::bind(config, Arc::clone(&fleet) as Arc<dyn ivy::Backend>, runtime)?;
    let address = server.local_addr();
    tracing::info!(%address, "listening; answers 503 until a replica has said what it serves");
    tokio::select! {
        () = fleet.ready() => {
            #[expect(clippy::print_stdout, reason = "the line that tells who waits for it")]
            {
                println!("ready http={address}");
            }
            signals.next().await;
        }
        () = signals.next() => {}
    }
    tracing::info!(?drain_timeout, "draining");
    tokio::select! {
        clean = server.shutdown(drain_timeout) => {
            if !clean {
                tracing::warn!("stopped with requests still in flight");
            }
        }
        () = signals.next() => tracing::warn!("second signal: stopped at once"),
    }
    Ok(())
}

/// SIGINT and SIGTERM.
struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
