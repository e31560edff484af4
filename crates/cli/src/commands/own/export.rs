//! `export` and `import`: threads of one's own graphs as text.

use superstep::{ThreadId, checkpoint::text::Redaction};

use crate::{
    args::export::{OwnExportArgs, OwnImportArgs},
    commands::export::{export_of, import_of, options},
    config::location::Location,
    graphs::graph_set::GraphSet,
    output::exit::{Exit, Failure},
};

/// Writes a thread to stdout.
pub(crate) async fn export(args: OwnExportArgs, program: &str, graphs: &GraphSet) -> Result<Exit, Failure> {
    let OwnExportArgs { thread: name, text, db } = args;
    let options = options(text, Redaction::new())?;
    let location = Location::new(program, db, None)?;
    let owned = graphs.owned(location.existing(&name)?, &name, None, || location.unknown(&name)).await?;
    export_of(&*owned.store, &ThreadId::from(name), &options).await
}

/// Stores the thread of a file, which has to belong to a graph of the program.
pub(crate) async fn import(args: OwnImportArgs, program: &str, graphs: &GraphSet) -> Result<Exit, Failure> {
    let location = Location::new(program, args.database.db, None)?;
    let accepts = |name: &str, graph: Option<&_>| graphs.owner(name, graph).map(|_| ());
    // A new database is the user's own, and the thread is not.
    let open = async || location.open_own(None, false).await;
    import_of(args.file, args.database.json, &location, graphs, accepts, open).await
}
