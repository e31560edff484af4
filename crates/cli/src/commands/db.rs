//! `db`: a whole database.

use std::{cmp::Reverse, sync::Arc};

use serde_json::json;
use superstep::{
    Checkpointer, History, ThreadId,
    checkpoint::{
        CheckpointError, CheckpointMeta, Retention,
        text::{ExportOptions, TextError, export_to},
    },
};
use superstep_session::{
    config::location::{Location, is_unreadable},
    error::SessionError,
    text::{count, printable_line},
};

use crate::{
    args::{
        shared::{DatabaseArgs, Locate},
        storage::{DbCheckArgs, DbCommand, DbPruneArgs},
    },
    commands::{
        checks::{mismatch, mismatch_json},
        heads::{heads, orphans},
        keys, thread_admin,
    },
    graphs::graph_set::GraphSet,
    output::{
        exit::Exit,
        note::print_note,
        table::{formatted, lines, new_table, print, time},
    },
};

/// The number of threads that the statistics list.
const MAX_LISTED: usize = 10;

/// Runs a command for a whole database.
pub(crate) async fn db<L: Locate>(command: DbCommand<L>, graphs: &GraphSet) -> Result<Exit, SessionError> {
    let at = |location: L| location.locate(&graphs.program);
    match command {
        DbCommand::Check(DbCheckArgs { trust, database: DatabaseArgs { location, json } }) => {
            check(graphs, &at(location)?, trust, json).await
        }
        DbCommand::Stats(DatabaseArgs { location, json }) => stats(&at(location)?, json).await,
        DbCommand::Migrate(DatabaseArgs { location, json }) => migrate(&at(location)?, json).await,
        DbCommand::Vacuum(DatabaseArgs { location, json }) => vacuum(&at(location)?, json).await,
        DbCommand::Key => keys::key(),
        DbCommand::Rekey(DatabaseArgs { location, json }) => keys::rekey(&at(location)?, json).await,
        DbCommand::Prune(DbPruneArgs { keep, yes, database: DatabaseArgs { location, json } }) => {
            prune(graphs, &at(location)?, thread_admin::keep(&keep), yes, json).await
        }
    }
}

/// Reads every thread whole, and lists the damaged ones, and those that fold to other states than were stored. With `trust`, those
/// that were set back are accepted.
async fn check(
    graphs: &GraphSet,
    location: &Location,
    trust: bool,
    json: bool,
) -> Result<Exit, SessionError> {
    let store = location.existing_database()?;
    let (mut damages, mut different, names) = (Vec::new(), Vec::new(), store.names().await?);
    if let Err(error) = store.verify().await {
        damages.push((None, damage(error)?));
    }
    let set_back = location.all_set_back(&*store, trust).await?;
    let accept = location.command("db check", &["--trust"]);
    for (thread, what) in &set_back {
        if trust {
            print_note(&format!("accepted as it is: {what}"));
        } else {
            damages
                .push((Some(thread), format!("{what}; restore it, or accept it as it is with `{accept}`")));
        }
    }
    let orphans = orphans(&*store).await?;
    damages.extend(orphans.iter().map(|(thread, error)| (Some(thread), error.to_string())));
    let mut checkpoints = 0;
    for name in &names {
        match export_to(&*store, name, &ExportOptions::default(), &mut std::io::sink()).await {
            Ok(copied) => {
                checkpoints += copied.checkpoints;
                let newest = History { limit: Some(1), ..History::default() };
                let graph = store.history(name, newest).await?.first().and_then(CheckpointMeta::graph);
                let mismatch = mismatch(graphs, location, &store, name, graph.as_ref()).await?;
                different.extend(mismatch.map(|mismatch| (name, mismatch)));
            }
            // It was deleted meanwhile.
            Err(TextError::Checkpoint(CheckpointError::NoThread { .. })) => {}
            Err(TextError::Checkpoint(error)) => damages.push((Some(name), damage(error)?)),
            Err(error) => damages.push((Some(name), SessionError::from(error).message)),
        }
    }
    let exit = match (damages.is_empty(), different.is_empty()) {
        (true, true) => Exit::Ok,
        (true, false) => Exit::Diverged,
        (false, _) => Exit::Database,
    };
    let text = if json {
        let damages = damages.iter().map(|(thread, error)| json!({ "thread": thread, "error": error }));
        let different = different.iter().map(|(thread, mismatch)| mismatch_json(thread, mismatch));
        lines([json!({
            "threads": names.len(),
            "checkpoints": checkpoints,
            "damages": damages.collect::<Vec<_>>(),
            "different": different.collect::<Vec<_>>(),
        })])
    } else {
        let mut text = String::new();
        for (_, error) in &damages {
            text += &format!("damaged: {}\n", printable_line(error));
        }
        for (thread, mismatch) in &different {
            let replay = location.command("replay", &[thread.as_str()]);
            let line = format!("different: thread `{thread}`, {mismatch}; see `{replay}`");
            text += &format!("{}\n", printable_line(&line));
        }
        let is_intact = |name: &&ThreadId| damages.iter().all(|(thread, _)| *thread != Some(*name));
        let intact = names.iter().filter(is_intact).count();
        let read = format!("{} and {}", count(intact, "thread"), count(checkpoints, "checkpoint"));
        let others = [(damages.len(), "damage"), (different.len(), "different thread")];
        let others = others.into_iter().filter(|(n, _)| *n > 0).map(|(n, what)| count(n, what));
        let others: String = others.map(|other| format!("; {other}")).collect();
        text + &format!("{read} are intact{others}\n")
    };
    print(&text)?;
    Ok(exit)
}

/// Returns the text of a damage.
///
/// # Errors
/// Of the database itself, such as a server that is gone.
fn damage(error: CheckpointError) -> Result<String, SessionError> {
    let is_damage = is_unreadable(&error);
    let failure = SessionError::from(error);
    if is_damage { Ok(failure.message) } else { Err(failure) }
}

/// Shows the size of a database.
async fn stats(location: &Location, json: bool) -> Result<Exit, SessionError> {
    let store = location.existing_database()?;
    let (storage, heads) = (store.storage().await?, heads(&*store).await?);
    let newest = heads.iter().filter_map(|(_, head)| head.as_ref().ok()).map(|head| head.created_ms).max();
    let mut sizes = Vec::with_capacity(heads.len());
    for (thread, head) in &heads {
        let size = match head {
            Ok(_) => store.history(thread, Default::default()).await.map(|history| history.len()).ok(),
            Err(_) => None,
        };
        sizes.push((thread, size));
    }
    let checkpoints: usize = sizes.iter().filter_map(|(_, size)| *size).sum();
    let damaged = sizes.iter().filter(|(_, size)| size.is_none()).count();
    sizes.sort_by_key(|(_, size)| Reverse(*size));
    sizes.truncate(MAX_LISTED);
    if json {
        let largest = sizes.iter().map(|(thread, size)| json!({ "thread": thread, "checkpoints": size }));
        return print(&lines([json!({
            "storage": storage,
            "threads": heads.len(),
            "checkpoints": checkpoints,
            "damaged_threads": damaged,
            "updated_ms": newest,
            "largest": largest.collect::<Vec<_>>(),
        })]));
    }
    let mut text = format!("{}\n", printable_line(&location.db().to_string()));
    if let Some(storage) = storage {
        let free = storage.free_bytes.filter(|free| *free > 0);
        let free = free.map_or_else(String::new, |free| format!(", {} of it free", size(free)));
        text += &format!("{}, version {}: {}{free}\n", storage.kind, storage.version, size(storage.bytes));
    }
    text += &format!("{}, {}", count(heads.len(), "thread"), count(checkpoints, "checkpoint"));
    if damaged > 0 {
        text += &format!(
            "; {} cannot be read, see `{}`",
            count(damaged, "thread"),
            location.command("db check", &[])
        );
    }
    text += &newest.map_or_else(String::new, |newest| format!("; the newest of {}", time(newest)));
    text.push('\n');
    if !sizes.is_empty() {
        let mut table = new_table(&["THREAD", "CHECKPOINTS"]);
        for (thread, size) in sizes {
            let size = size.map_or_else(|| "-".to_owned(), |size| size.to_string());
            table.add_row([printable_line(thread.as_str()), size]);
        }
        text += &format!("\n{}", formatted(table));
    }
    print(&text)
}

/// Converts the tables of an older version.
async fn migrate(location: &Location, json: bool) -> Result<Exit, SessionError> {
    // Tables of an older version cannot be opened for reading.
    let (store, was_current) = match location.find() {
        Ok(None) => return Err(location.absent()),
        Ok(Some(store)) => (store, true),
        Err(_) => (location.open()?, false),
    };
    let storage = store.storage().await?;
    let version = storage.map(|storage| storage.version);
    if json {
        return print(&lines([json!({ "version": version, "migrated": !was_current })]));
    }
    let version = version.map_or_else(String::new, |version| format!(" version {version}"));
    print(&if was_current {
        format!("the tables already have{version}\n")
    } else {
        format!("the tables have{version} now\n")
    })
}

/// Returns the space of deleted data to the disk.
async fn vacuum(location: &Location, json: bool) -> Result<Exit, SessionError> {
    location.existing_database()?;
    let store = location.open()?;
    let before = store.storage().await?.map_or(0, |storage| storage.bytes);
    store.vacuum().await?;
    let after = store.storage().await?.map_or(0, |storage| storage.bytes);
    if json {
        return print(&lines([json!({ "bytes_before": before, "bytes": after })]));
    }
    print(&format!("{} before, {} now\n", size(before), size(after)))
}

/// Prunes all threads.
async fn prune(
    graphs: &GraphSet,
    location: &Location,
    keep: Retention,
    yes: bool,
    json: bool,
) -> Result<Exit, SessionError> {
    location.existing_database()?;
    let store = location.open()?;
    let names = store.names().await?;
    let of_all = format!("delete older checkpoints of {}", count(names.len(), "thread"));
    if !names.is_empty() && !thread_admin::allowed(&of_all, yes)? {
        return Ok(Exit::Interrupted);
    }
    let (mut checkpoints, mut threads, mut failed) = (0, 0, None);
    for name in &names {
        match prune_thread(graphs, location, store.clone(), name, keep.clone()).await {
            Ok(0) => {}
            Ok(pruned) => (checkpoints, threads) = (checkpoints + pruned, threads + 1),
            // The others are pruned all the same.
            Err(failure) => {
                print_note(&format!("not pruned: {}", failure.message));
                failed = Some(failure.kind);
            }
        }
    }
    let text = if json {
        lines([json!({ "pruned": checkpoints, "threads": threads })])
    } else {
        format!("pruned {} of {}\n", count(checkpoints, "checkpoint"), count(threads, "thread"))
    };
    print(&text)?;
    Ok(failed.map_or(Exit::Ok, Exit::from))
}

/// Prunes a thread, and returns the number of deleted checkpoints.
async fn prune_thread(
    graphs: &GraphSet,
    location: &Location,
    store: Arc<dyn Checkpointer>,
    thread: &ThreadId,
    keep: Retention,
) -> Result<usize, SessionError> {
    if graphs.is_agent {
        return Ok(thread_admin::pruned(location, store, thread, keep).await?.0);
    }
    Ok(graphs.find_in(location, store, thread, None).await?.open().prune(keep).await?)
}

fn size(bytes: u64) -> String {
    indicatif::HumanBytes(bytes).to_string()
}
