//! `embeddings`: the model by which entries are found by meaning.

use std::{path::Path, sync::Arc};

use superstep::{
    memory::OpenAiEmbeddings,
    store::{Embed, StoreOptions},
};

use crate::{
    config::{
        memory::{Kind, Memory, is_plain},
        misfit::InvalidSetting,
    },
    error::{ErrorKind, SessionError},
};

const FIELD: &str = "memory.embeddings";

/// The beginning of the name of a model in a folder.
const LOCAL: &str = "model2vec:";

impl Memory {
    /// Checks the name of the model.
    ///
    /// # Errors
    /// The problem with it.
    pub(crate) fn check_embeddings(&self) -> Result<(), InvalidSetting> {
        let problem = match &self.embeddings {
            None => return Ok(()),
            Some(_) if self.store == Kind::Mem0 => "a Mem0 server has its own".to_owned(),
            Some(name) if name.trim().is_empty() => "a model needs a name".to_owned(),
            Some(_) => match self.local_model() {
                Some(folder) if !folder.is_absolute() && !is_plain(folder) => {
                    let folder = folder.display();
                    format!("`{folder}` is neither a plain path below the folder nor an absolute one")
                }
                _ => return Ok(()),
            },
        };
        Err(InvalidSetting::at(FIELD, problem))
    }

    /// Returns the folder of a local model.
    pub(crate) fn local_model(&self) -> Option<&Path> {
        self.embeddings.as_deref()?.strip_prefix(LOCAL).map(Path::new)
    }

    /// Loads the model, or creates the client of its server.
    ///
    /// # Errors
    /// The model cannot be loaded, or the environment names no server.
    pub(crate) fn embed(&self, cwd: &Path) -> Result<Option<Arc<dyn Embed>>, SessionError> {
        match (&self.embeddings, self.local_model()) {
            (None, _) => Ok(None),
            (_, Some(folder)) => local(&cwd.join(folder)).map(Some),
            (Some(name), None) => {
                let embeddings = OpenAiEmbeddings::from_env(name).map_err(|error| failed(&error))?;
                Ok(Some(Arc::new(embeddings)))
            }
        }
    }
}

/// Returns the options of a store with this embedding.
pub(super) fn options(embed: Option<&Arc<dyn Embed>>) -> StoreOptions {
    let options = StoreOptions::new();
    match embed {
        Some(embed) => options.embed(embed.clone()),
        None => options,
    }
}

#[cfg(feature = "model2vec")]
fn local(folder: &Path) -> Result<Arc<dyn Embed>, SessionError> {
    let model = superstep::memory::Model2Vec::load(folder).map_err(|error| failed(&error))?;
    Ok(Arc::new(model))
}

#[cfg(not(feature = "model2vec"))]
fn local(_: &Path) -> Result<Arc<dyn Embed>, SessionError> {
    Err(SessionError::missing_feature(&format!("`{FIELD}` with a folder"), "model2vec"))
}

fn failed(error: &(dyn std::error::Error + 'static)) -> SessionError {
    let SessionError { message, .. } = SessionError::caused(ErrorKind::Invalid, error);
    SessionError::usage(format!("`{FIELD}`: {message}"))
}
