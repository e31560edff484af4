//! `run`, `resume` and `answer` by a worker of a Restate cluster.

use superstep::{
    Interrupt, ThreadId,
    restate::{Ended, RestateError, RestateThread},
};
use superstep_session::{
    config::{encryption, location::Location, place::Db, restate::Cluster},
    error::{ErrorKind, SessionError},
    turn::randomness::fresh_thread,
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::{
    args::{
        own::{AnswerArgs, OwnResumeArgs, OwnRunArgs, OwnTurnArgs},
        service::ServiceArgs,
    },
    commands::own::run::check_key,
    graphs::{graph_set::GraphSet, input::check},
    output::{exit::Exit, note::print_note},
    session::{own_run::OwnEnd, signals, stdin::read_json},
};

/// Runs a graph on an input.
pub(crate) async fn run(args: OwnRunArgs, graphs: &GraphSet) -> Result<Exit, SessionError> {
    let graph = graphs.named(args.graph.as_deref())?;
    let input = read_json("input", args.input.as_deref().unwrap_or("{}"))?;
    check(&**graph, "input", &input)?;
    let location = location_of(&graphs.program, args.service, None)?;
    let thread: ThreadId = match args.thread {
        Some(name) => name.into(),
        None => fresh_thread(&*location.open()?).await?,
    };
    if !args.turn.quiet {
        print_note(&format!("thread {thread}"));
    }
    let called = cluster_of(&location).restate.thread(graph.name(), &thread);
    let ended = until_end(&called, called.run(input)).await?;
    show(&location, &args.turn, graph.name(), &thread, ended)
}

/// Runs the pending tasks of a thread.
pub(crate) async fn resume(args: OwnResumeArgs, graphs: &GraphSet) -> Result<Exit, SessionError> {
    let location = location_of(&graphs.program, args.service, None)?;
    let owned = graphs.find(&location, &args.thread, None).await?;
    let called = cluster_of(&location).restate.thread(owned.graph.name(), &owned.name);
    let ended = until_end(&called, called.resume()).await?;
    show(&location, &args.turn, owned.graph.name(), &owned.name, ended)
}

/// Answers a question, and runs the pending tasks.
pub(crate) async fn answer(args: AnswerArgs, graphs: &GraphSet) -> Result<Exit, SessionError> {
    let AnswerArgs { thread: name, key, value, service, turn } = args;
    let value = read_json("answer", &value)?;
    let location = location_of(&graphs.program, service, None)?;
    let owned = graphs.find(&location, &name, None).await?;
    let snapshot = owned.open().state().await?;
    let interrupts: Vec<&Interrupt> = snapshot.interrupts().collect();
    check_key(&name, &key, &interrupts)?;
    let is_named = |waiting: &&&Interrupt| waiting.id == key || waiting.key == key;
    let id = &interrupts.iter().find(is_named).expect("the key was checked").id;
    let called = cluster_of(&location).restate.thread(owned.graph.name(), &owned.name);
    let ended = until_end(&called, called.answer(id, value)).await?;
    show(&location, &turn, owned.graph.name(), &owned.name, ended)
}

/// Returns the place of runs by workers.
///
/// # Errors
/// Those of [`Location::new`], or encryption is required: the cluster stores inputs, answers and ends as they are.
pub(crate) fn location_of(
    program: &str,
    service: ServiceArgs,
    cwd: Option<std::path::PathBuf>,
) -> Result<Location, SessionError> {
    let cluster = service.restate.expect("the command is one of `--restate`");
    encryption::refuse_readable(
        "the inputs and ends of runs on Restate are",
        "run the thread without `--restate`",
    )?;
    Location::of_service(program, cluster, cwd)
}

pub(crate) fn cluster_of(location: &Location) -> &Cluster {
    let Db::Cluster(cluster) = location.db() else { unreachable!("the name is that of a cluster") };
    cluster
}

/// Waits for the end of a run. The first signal cancels the run at work.
pub(crate) async fn until_end(
    thread: &RestateThread,
    call: impl Future<Output = Result<Ended, RestateError>>,
) -> Result<Ended, SessionError> {
    let failed = |error| match error {
        RestateError::Cluster(error) => error.into(),
        error => SessionError::caused(ErrorKind::Failed, &error),
    };
    let stop = CancellationToken::new();
    let _signals = AbortOnDropHandle::new(tokio::spawn(signals::watch(stop.clone())));
    let mut call = std::pin::pin!(call);
    tokio::select! {
        ended = &mut call => ended.map_err(failed),
        () = stop.cancelled() => {
            thread.cancel().await.map_err(failed)?;
            call.await.map_err(failed)
        }
    }
}

fn show(
    location: &Location,
    turn: &OwnTurnArgs,
    graph: &str,
    thread: &ThreadId,
    ended: Ended,
) -> Result<Exit, SessionError> {
    let Ended { status, checkpoint, values, interrupts, .. } = ended;
    let json = turn.database.json;
    OwnEnd { location, json, graph, thread, status: &status, checkpoint, values, interrupts }.show(Ok(()))
}
