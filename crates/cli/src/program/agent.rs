//! The program `superstep`.

use std::process::ExitCode;

use superstep_session::error::SessionError;
use tracing::Instrument as _;

#[cfg(feature = "restate")]
use crate::commands::service;
use crate::{
    args::{
        command_line::{self, Command},
        shared::{AGENT, LogArgs},
    },
    commands::{
        acp, agent_jobs, chat, config, db, diff, doctor, dream, export, memory, models, new, pin, presets,
        replay, revert, run, serve, show, skills, steer, thread_admin, threads, tools, usage, watch, worker,
    },
    graphs::agent_graphs::agent_graphs,
    output::{exit::Exit, log},
    program::start::start,
};

/// Runs the program `superstep`: a ReAct agent in the terminal.
pub fn agent() -> ExitCode {
    let (command, name, LogArgs { log }) = match command_line::parse(chat::is_default()) {
        Ok(parsed) => parsed,
        Err(exit) => return exit.into(),
    };
    let observed = log::begin(log, AGENT);
    let span = observed.command(AGENT, &name);
    start(async || run(command).instrument(span).await)
}

async fn run(command: Command) -> Result<Exit, SessionError> {
    let graphs = || agent_graphs(AGENT);
    match command {
        #[cfg(feature = "restate")]
        Command::Run(args) if args.service.restate.is_some() => service::run(args).await,
        #[cfg(feature = "restate")]
        Command::Resume(args) if args.service.restate.is_some() => service::resume(args).await,
        #[cfg(feature = "restate")]
        Command::Worker(args) if args.endpoint.is_for_cluster(args.location.db.as_ref()) => {
            service::worker(args).await
        }
        Command::Run(args) => run::run(args).await,
        Command::Resume(args) => run::resume(args).await,
        Command::Steer(args) => steer::steer(args).await,
        Command::Pin(args) => pin::pin(args).await,
        Command::Chat(args) => chat::chat(args).await,
        Command::Acp(args) => acp::acp(args).await,
        Command::Serve(args) => serve::serve(args).await,
        Command::Jobs(command) => agent_jobs::jobs(command).await,
        Command::Worker(args) => worker::worker(args).await,
        Command::Threads(args) => threads::threads(args, &graphs()?).await,
        Command::Delete(args) => thread_admin::delete(args).await,
        Command::Copy(args) => thread_admin::copy(args).await,
        Command::Adopt(args) => thread_admin::adopt(args).await,
        Command::Prune(args) => thread_admin::prune(args).await,
        Command::Db(command) => db::db(command, &graphs()?).await,
        Command::Revert(args) => revert::revert(args).await,
        Command::State(args) => show::state(args).await,
        Command::History(args) => show::history(args, &graphs()?).await,
        Command::Diff(args) => diff::diff(args, &graphs()?).await,
        Command::Watch(args) => watch::watch(args, &graphs()?).await,
        Command::Replay(args) => replay::replay(args).await,
        Command::Export(args) => export::export(args, &graphs()?).await,
        Command::Import(args) => export::import(args, &graphs()?).await,
        Command::Draw(args) => show::draw(args).await,
        Command::Dream(args) => dream::dream(args).await,
        Command::Memory(command) => memory::memory(command).await,
        Command::Config(args) => config::config(args),
        Command::Doctor(args) => doctor::doctor(args).await,
        Command::Usage(args) => usage::usage(args).await,
        Command::Models(args) => models::models(args).await,
        Command::Presets(args) => presets::presets(&args),
        Command::Skills(args) => skills::skills(args),
        Command::Tools(args) => tools::list(&args).await,
        Command::New(args) => new::new(args),
        Command::Completions { shell } => show::completions(shell),
    }
}
