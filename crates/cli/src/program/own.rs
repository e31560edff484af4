//! Programs with graphs of their own.
//!
//! Start at [`Program`].

use std::{
    env,
    error::Error,
    ffi::OsString,
    io::{self, Write},
    path::Path,
    process::ExitCode,
    sync::Arc,
};

use clap::{CommandFactory, FromArgMatches};
use superstep::{CompiledGraph, RunOptions, State, agent::AgentBuilder, erased::JsonGraph};
use superstep_session::{
    config::settings::OwnAgent,
    error::{ErrorKind, SessionError},
};
use tracing::Instrument as _;

use crate::{
    args::{
        command_line::explained,
        jobs::on_server,
        own::{OwnCli, OwnCommand},
        shared::LogArgs,
    },
    commands::{acp, chat, db, diff, export, own, own::agent::OwnProgram, serve, show, threads, watch},
    graphs::graph_set::GraphSet,
    output::{exit::Exit, log, note::report, table::written},
    program::start::start,
    session::signals,
};

/// Runs a program with these graphs: one graph, a tuple of graphs of different states, or a `Vec` of graphs of one state.
/// Each may be the `Result` that made it. Use [`Program`] to set options.
///
/// ```no_run
/// use std::process::ExitCode;
/// use superstep::prelude::*;
///
/// #[derive(State, Clone, Debug, Default)]
/// struct Order { total: u32 }
///
/// #[derive(State, Clone, Debug, Default)]
/// struct Digest { text: String }
///
/// # fn orders() -> Result<CompiledGraph<Order>, CompileError> { StateGraph::<Order>::new("orders").compile() }
/// # fn digest() -> Result<CompiledGraph<Digest>, CompileError> { StateGraph::<Digest>::new("digest").compile() }
/// fn main() -> ExitCode {
///     superstep_cli::main((orders(), digest()))
/// }
/// ```
pub fn main(graphs: impl IntoGraphs) -> ExitCode {
    Program::named_by_file(graphs).main()
}

/// A program with the commands `run`, `resume`, `threads`, `state`, .. for graphs of your own.
///
/// The graphs may have different states. Their threads are stored in the database that `--db` names, in place of
/// the checkpointer of the graph; a store of the graph is used as it is.
///
/// ```no_run
/// # use superstep::prelude::*;
/// # #[derive(State, Clone, Debug, Default)]
/// # struct Order { total: u32 }
/// # fn orders() -> Result<CompiledGraph<Order>, CompileError> { StateGraph::<Order>::new("orders").compile() }
/// use std::process::ExitCode;
/// use superstep_cli::Program;
///
/// fn main() -> ExitCode {
///     let options = RunOptions::new().step_limit(50).context("production");
///     Program::new("shop", orders()).about("Orders and refunds.").options(options).main()
/// }
/// ```
#[must_use = "a program does nothing until `main` runs it"]
pub struct Program {
    name: String,
    about: Option<String>,
    version: Option<String>,
    options: RunOptions,
    graphs: Result<Vec<Arc<dyn JsonGraph>>, GraphError>,
    agent: Option<OwnAgent>,
}

/// The error with which a graph was not made.
type GraphError = Box<dyn Error + Send + Sync>;

impl Program {
    /// Creates a program with this name, which its help and its messages show, and these graphs: see [`main`].
    pub fn new(name: impl Into<String>, graphs: impl IntoGraphs) -> Self {
        let mut list = GraphList::default();
        let graphs = graphs.add_to(&mut list).map(|()| list.0);
        let (name, options) = (name.into(), RunOptions::new());
        Self { name, about: None, version: None, options, graphs, agent: None }
    }

    /// Creates a program with the name of its file.
    fn named_by_file(graphs: impl IntoGraphs) -> Self {
        let file = env::args_os().next().unwrap_or_default();
        let name = Path::new(&file).file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Self::new(if name.is_empty() { "program".to_owned() } else { name }, graphs)
    }

    /// Sets the first line of the help.
    pub fn about(self, text: impl Into<String>) -> Self {
        Self { about: Some(text.into()), ..self }
    }

    /// Sets the version that `--version` prints. Without it there is no such flag.
    pub fn version(self, version: impl Into<String>) -> Self {
        Self { version: Some(version.into()), ..self }
    }

    /// Sets the options of all runs, such as the step limit and the context. A command sets the thread, the checkpoint,
    /// the answers and the treatment of unfinished threads.
    pub fn options(self, options: RunOptions) -> Self {
        Self { options, ..self }
    }

    /// Adds the commands `chat` and `acp` for an agent, which `make` creates for the folder of a session before each of its turns.
    /// The session sets its checkpointer, and the calls that require approval wait for the decision of the user.
    ///
    /// The other commands know its threads by its graph, [`Agent::graph`](superstep::agent::Agent::graph), if that is a graph of the
    /// program.
    ///
    /// ```no_run
    /// use std::process::ExitCode;
    /// use superstep::{agent::Agent, agent::ReactConfig, llm::OpenAiModel};
    /// use superstep_cli::Program;
    ///
    /// fn main() -> ExitCode {
    ///     let agent = || Ok(Agent::builder(OpenAiModel::from_env("gpt-5.2")?).config(ReactConfig::graph(25)));
    ///     let graph = || Ok::<_, Box<dyn std::error::Error + Send + Sync>>(agent()?.build()?.graph().clone());
    ///     Program::new("shop", graph()).agent(move |_folder| agent()).main()
    /// }
    /// ```
    pub fn agent(
        self,
        make: impl Fn(&Path) -> Result<AgentBuilder, Box<dyn Error + Send + Sync>> + Send + Sync + 'static,
    ) -> Self {
        Self { agent: Some(OwnAgent::new(make)), ..self }
    }

    /// Runs the command of the process's command line on a runtime of its own, and returns the exit code.
    pub fn main(self) -> ExitCode {
        start(async || self.execute(env::args_os()).await)
    }

    /// Runs the command of these words, of which the first is the program's file, on the current runtime, and returns the
    /// exit code. Use it if the graphs are made asynchronously.
    pub async fn run(self, words: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> ExitCode {
        let exit = self.execute(words).await.unwrap_or_else(|error| report(&error));
        signals::release();
        exit.into()
    }

    async fn execute(
        self,
        words: impl IntoIterator<Item = impl Into<OsString> + Clone>,
    ) -> Result<Exit, SessionError> {
        let cli = OwnCli::command().mut_subcommand("jobs", on_server).mut_subcommand("worker", on_server);
        let is_hidden = self.agent.is_none();
        let cli = ["acp", "chat"]
            .into_iter()
            .fold(cli, |cli, name| cli.mut_subcommand(name, |command| command.hide(is_hidden)));
        let mut cli = cli.name(self.name.clone()).bin_name(self.name.clone());
        if let Some(about) = &self.about {
            cli = cli.about(about.clone());
        }
        if let Some(version) = &self.version {
            cli = cli.version(version.clone());
        }
        let words: Vec<OsString> = words.into_iter().map(Into::into).collect();
        if words.len() < 2 {
            return written(write!(io::stdout(), "{}", cli.render_help()));
        }
        let parsed = cli.try_get_matches_from_mut(words).and_then(|found| {
            let name = found.subcommand_name().unwrap_or_default().to_owned();
            Ok((OwnCli::from_arg_matches(&found)?, name))
        });
        let (command, word, LogArgs { log }) = match parsed {
            Ok((OwnCli { command, log }, word)) => (command, word, log),
            Err(error) => return Ok(explained(&error)),
        };
        let observed = log::begin(log, &self.name);
        let span = observed.command(&self.name, &word);
        self.dispatch(command, cli).instrument(span).await
    }

    /// Runs a command.
    async fn dispatch(self, command: OwnCommand, mut cli: clap::Command) -> Result<Exit, SessionError> {
        let failed = |error: GraphError| {
            let message =
                format!("a graph of this program is not valid: {}", superstep::error::chain(&*error));
            SessionError::new(ErrorKind::Failed, message)
        };
        let with_agent = OwnProgram::new(&self.name, self.version, self.agent);
        let graphs = GraphSet::new(self.name, self.graphs.map_err(failed)?, self.options)?;
        match command {
            #[cfg(feature = "restate")]
            OwnCommand::Run(args) if args.service.restate.is_some() => own::service::run(args, &graphs).await,
            #[cfg(feature = "restate")]
            OwnCommand::Resume(args) if args.service.restate.is_some() => {
                own::service::resume(args, &graphs).await
            }
            #[cfg(feature = "restate")]
            OwnCommand::Answer(args) if args.service.restate.is_some() => {
                own::service::answer(args, &graphs).await
            }
            OwnCommand::Run(args) => own::run::run(args, &graphs).await,
            OwnCommand::Resume(args) => own::run::resume(args, &graphs).await,
            OwnCommand::Answer(args) => own::run::answer(args, &graphs).await,
            #[cfg(feature = "restate")]
            OwnCommand::Worker(args) if args.endpoint.is_for_cluster(args.location.db.as_ref()) => {
                own::endpoint::worker(args, &graphs).await
            }
            #[cfg(feature = "postgres")]
            OwnCommand::Jobs(command) => own::jobs::jobs(command, &graphs).await,
            #[cfg(feature = "postgres")]
            OwnCommand::Worker(args) => own::worker::worker(args, &graphs).await,
            #[cfg(not(feature = "postgres"))]
            OwnCommand::Jobs(_) | OwnCommand::Worker(_) => Err(crate::commands::worker::absent()),
            OwnCommand::Chat(args) => chat::own(args, with_agent?).await,
            OwnCommand::Acp(args) => acp::own(args, with_agent?).await,
            OwnCommand::Serve(args) => serve::own(args, &graphs).await,
            OwnCommand::Threads(args) => threads::threads(args, &graphs).await,
            OwnCommand::State(args) => own::show::state(args, &graphs).await,
            OwnCommand::History(args) => show::history(args, &graphs).await,
            OwnCommand::Diff(args) => diff::diff(args, &graphs).await,
            OwnCommand::Fork(args) => own::change::fork(args, &graphs).await,
            OwnCommand::Edit(args) => own::change::edit(args, &graphs).await,
            OwnCommand::Watch(args) => watch::watch(args, &graphs).await,
            OwnCommand::Replay(args) => own::show::replay(args, &graphs).await,
            OwnCommand::Export(args) => export::export(args, &graphs).await,
            OwnCommand::Import(args) => export::import(args, &graphs).await,
            OwnCommand::Schema(args) => own::show::schema(&args, &graphs),
            OwnCommand::Db(command) => db::db(command, &graphs).await,
            OwnCommand::Draw(args) => own::show::draw(args, &graphs).await,
            OwnCommand::Completions { shell } => {
                let mut script = Vec::new();
                clap_complete::generate(shell, &mut cli, graphs.program, &mut script);
                written(io::stdout().write_all(&script))
            }
        }
    }
}

/// The graphs of a program, while they are collected.
#[derive(Default)]
pub struct GraphList(Vec<Arc<dyn JsonGraph>>);

/// One or several graphs for a [`Program`]: a graph, the `Result` that made one, a tuple of them, or a `Vec`.
// Graphs of different states are different types, so that an array cannot hold them, and a public `Box<dyn ..>` would
// publish every method that the commands need. An element may be the `Result` of its builder, so that `main` reports
// an invalid graph like every other error.
pub trait IntoGraphs {
    /// Adds the graphs to the list.
    ///
    /// # Errors
    /// The error with which a graph was not made.
    fn add_to(self, list: &mut GraphList) -> Result<(), Box<dyn Error + Send + Sync>>;
}

impl<S: State> IntoGraphs for CompiledGraph<S> {
    fn add_to(self, list: &mut GraphList) -> Result<(), GraphError> {
        list.0.push(self.into());
        Ok(())
    }
}

impl<G: IntoGraphs, E: Into<GraphError>> IntoGraphs for Result<G, E> {
    fn add_to(self, list: &mut GraphList) -> Result<(), GraphError> {
        self.map_err(Into::into)?.add_to(list)
    }
}

impl<G: IntoGraphs> IntoGraphs for Vec<G> {
    fn add_to(self, list: &mut GraphList) -> Result<(), GraphError> {
        self.into_iter().try_for_each(|graph| graph.add_to(list))
    }
}

/// Implements [`IntoGraphs`] for tuples.
macro_rules! tuples {
    ($($first:ident $($rest:ident)*;)*) => {$(
        impl<$first: IntoGraphs, $($rest: IntoGraphs),*> IntoGraphs for ($first, $($rest,)*) {
            #[allow(non_snake_case, reason = "a type and its value have one name")]
            fn add_to(self, list: &mut GraphList) -> Result<(), GraphError> {
                let ($first, $($rest,)*) = self;
                $first.add_to(list)?;
                $($rest.add_to(list)?;)*
                Ok(())
            }
        }
    )*};
}

tuples! {
    A;
    A B;
    A B C;
    A B C D;
    A B C D E;
    A B C D E F;
    A B C D E F G;
    A B C D E F G H;
}
