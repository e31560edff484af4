//! Threads as cases: texts that `replay` compares with what a graph does now.
//!
//! Start at [`replay`].

use std::{io::Cursor, sync::Arc};

use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
};
use serde::Deserialize;
use superstep_graph::{
    Checkpointer, MemoryCheckpointer, ThreadId,
    checkpoint::text::{self, ExportOptions, TextError},
    erased::{JsonGraph, ReplayRange},
    error::chain,
    replay::Replayed,
};

use super::{
    Studio,
    actions::replay_view,
    types::{CaseFile, CaseView},
};
use crate::{api::extract::Body, error::ApiError};

#[derive(Deserialize)]
pub(super) struct Case {
    text: String,
}

#[derive(Deserialize)]
pub(super) struct Nothing {}

/// A case in memory.
struct Loaded {
    store: Arc<dyn Checkpointer>,
    thread: ThreadId,
    graph: String,
}

/// Returns a thread as a case.
pub(super) async fn export(
    State(studio): State<Arc<Studio>>,
    Path(thread): Path<String>,
) -> Result<Json<CaseFile>, ApiError> {
    studio.refuse_hidden(studio.head(&thread).await?.graph.as_deref())?;
    Ok(Json(file(&*studio.hub.checkpointer, &Studio::thread_id(&thread)).await?))
}

/// Returns a thread as the graph does it now, as a case. The thread is unchanged.
pub(super) async fn accept_thread(
    State(studio): State<Arc<Studio>>,
    Path(thread): Path<String>,
    Body(Nothing {}): Body<Nothing>,
) -> Result<Json<CaseFile>, ApiError> {
    let head = studio.head(&thread).await?;
    studio.refuse_hidden(head.graph.as_deref())?;
    let graph = studio.graph_of(&head)?.1;
    Ok(Json(studio.accepted(&**graph, &Studio::thread_id(&thread)).await?))
}

/// Replays a case.
pub(super) async fn replay(
    State(studio): State<Arc<Studio>>,
    Body(Case { text }): Body<Case>,
) -> Result<Json<CaseView>, ApiError> {
    let case = studio.load(&text).await?;
    let graph = studio.hub.graph(&case.graph)?.with_checkpointer(case.store);
    let replayed = studio.replayed(&*graph, &case.thread).await?;
    let shows_values = studio.shown(Some(&case.graph)).is_none();
    Ok(Json(CaseView {
        thread: case.thread.to_string(),
        graph: case.graph,
        replay: replay_view(&replayed, shows_values),
    }))
}

/// Returns a case as the graph does it now.
pub(super) async fn accept(
    State(studio): State<Arc<Studio>>,
    Body(Case { text }): Body<Case>,
) -> Result<Json<CaseFile>, ApiError> {
    let case = studio.load(&text).await?;
    // The new one has the prompt of now.
    studio.refuse_hidden(Some(&case.graph))?;
    let graph = studio.hub.graph(&case.graph)?.with_checkpointer(case.store);
    Ok(Json(studio.accepted(&*graph, &case.thread).await?))
}

impl Studio {
    /// # Errors
    /// 403 if the page hides channels of the graph, all of which a case has.
    fn refuse_hidden(&self, graph: Option<&str>) -> Result<(), ApiError> {
        match self.shown(graph) {
            None => Ok(()),
            Some(_) => {
                let detail = "a case has all channels of a thread, some of which this server hides because it has no key; set one, or use `superstep export`";
                Err(ApiError::new(StatusCode::FORBIDDEN, detail))
            }
        }
    }

    /// Reads a case into memory, and finds its graph.
    async fn load(&self, text: &str) -> Result<Loaded, ApiError> {
        let store = Arc::new(MemoryCheckpointer::new());
        let mut text = Cursor::new(text);
        let checked = text::check(&mut text).map_err(invalid)?;
        let (thread, owner) = (checked.thread().clone(), checked.graph().map(|graph| graph.name.to_string()));
        checked.store(&*store, &thread).await.map_err(invalid)?;
        let graphs = &self.hub.graphs;
        let of_name = |owner: &String| graphs.iter().find(|(_, graph)| graph.name() == *owner);
        let found = match &owner {
            Some(owner) => of_name(owner),
            // An older program stored it without its graph.
            None => graphs.iter().next().filter(|_| graphs.len() == 1),
        };
        let name = found.map(|(name, _)| name.clone()).ok_or_else(|| {
            let owner = owner.map_or("a graph without a name".to_owned(), |owner| format!("graph `{owner}`"));
            ApiError::conflict(format!("the case belongs to {owner}, which this server does not have"))
        })?;
        Ok(Loaded { store, thread, graph: name })
    }

    async fn replayed(&self, graph: &dyn JsonGraph, thread: &ThreadId) -> Result<Replayed, ApiError> {
        let replay = graph.thread(self.options(thread)).replay(ReplayRange::default());
        replay.await.map_err(|error| ApiError::impossible(chain(&error)))
    }

    /// Records a thread again in memory.
    ///
    /// # Errors
    /// 422 if it needs results that were not recorded, or what is recorded does not replay.
    async fn accepted(&self, graph: &dyn JsonGraph, thread: &ThreadId) -> Result<CaseFile, ApiError> {
        let target: Arc<dyn Checkpointer> = Arc::new(MemoryCheckpointer::new());
        let recorded = graph.thread(self.options(thread)).rerecord(target.clone());
        recorded.await.map_err(|error| ApiError::impossible(chain(&error)))?;
        let again = self.replayed(&*graph.with_checkpointer(target.clone()), thread).await?;
        if again.divergence.is_some() || !again.is_whole() {
            let detail =
                format!("the new result does not replay completely, so that it cannot be a case: {again}");
            return Err(ApiError::impossible(detail));
        }
        file(&*target, thread).await
    }
}

/// Returns a thread as a file. Its name has no characters that mean something in a path.
async fn file(store: &dyn Checkpointer, thread: &ThreadId) -> Result<CaseFile, ApiError> {
    let text = text::export(store, thread, &ExportOptions::default()).await.map_err(invalid)?;
    let is_plain = |letter: char| letter.is_alphanumeric() || "-_".contains(letter);
    let name = thread.as_str().chars().map(|letter| if is_plain(letter) { letter } else { '_' });
    Ok(CaseFile { name: name.chain(text::FILE_END.chars()).collect(), text })
}

fn invalid(error: TextError) -> ApiError {
    match error {
        TextError::Checkpoint(error) => error.into(),
        error => ApiError::invalid(chain(&error)),
    }
}
