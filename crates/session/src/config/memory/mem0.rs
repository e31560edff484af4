//! `store = "mem0"`: a memory on a Mem0 server.

use std::sync::Arc;

use superstep::{
    agent::deps::LongTermMemory,
    memory::{Mem0, Mem0Config, Mem0Form},
};

use crate::{
    config::{
        memory::{Kind, Memory},
        misfit::InvalidSetting,
        server::{is_loopback, key_in},
    },
    error::{ErrorKind, SessionError},
};

/// The default variable with the key of the hosted platform.
const USUAL_KEY: &str = "MEM0_API_KEY";

impl Memory {
    /// Checks that the settings of the server and of the memory are consistent.
    ///
    /// # Errors
    /// The conflict.
    pub(crate) fn check_server(&self) -> Result<(), InvalidSetting> {
        let of_servers = [
            ("base_url", self.base_url.is_some()),
            ("key_env", self.key_env.is_some()),
            ("form", self.form.is_some()),
            ("infer", self.infer.is_some()),
        ];
        if self.store != Kind::Mem0 {
            if self.threshold.is_some() && self.embeddings.is_none() {
                let problem = "only `embeddings` or `store = \"mem0\"` have one";
                return Err(InvalidSetting::at("memory.threshold", problem));
            }
            return match of_servers.into_iter().find(|(_, is_given)| *is_given) {
                Some((field, _)) => {
                    Err(InvalidSetting::at(&format!("memory.{field}"), "only `store = \"mem0\"` has one"))
                }
                None => Ok(()),
            };
        }
        if self.path.is_some() {
            return Err(InvalidSetting::at("memory.path", "a Mem0 server has none; it has a `base_url`"));
        }
        if self.form() == Mem0Form::SelfHosted && self.base_url.is_none() {
            return Err(InvalidSetting::at("memory.base_url", "which server of your own is it?"));
        }
        Ok(())
    }

    /// Returns the kind of server; an address implies a self-hosted one.
    fn form(&self) -> Mem0Form {
        let usual = if self.base_url.is_some() { Mem0Form::SelfHosted } else { Mem0Form::Hosted };
        self.form.unwrap_or(usual)
    }

    /// Returns whether the server needs no explicit consent: it runs on this machine, or is the hosted
    /// platform with its own key.
    pub(crate) fn is_known_server(&self) -> bool {
        match &self.base_url {
            Some(base_url) => is_loopback(base_url),
            None => self.key_env.as_deref().is_none_or(|name| name == USUAL_KEY),
        }
    }

    pub fn connect(&self) -> Result<Arc<dyn LongTermMemory>, SessionError> {
        let form = self.form();
        let key = match (&self.key_env, form) {
            (Some(name), _) => key_in(name)?,
            (None, Mem0Form::Hosted) => key_in(USUAL_KEY)?,
            (None, _) => Default::default(),
        };
        let mut config = match (form, &self.base_url) {
            (Mem0Form::Hosted, None) => Mem0Config::hosted(key),
            (Mem0Form::Hosted, Some(base_url)) => {
                Mem0Config { base_url: base_url.clone(), ..Mem0Config::hosted(key) }
            }
            (_, base_url) => Mem0Config::self_hosted(base_url.clone().unwrap_or_default(), key),
        };
        config.threshold = self.threshold.unwrap_or(config.threshold);
        config.infer = self.infer.unwrap_or(config.infer);
        let memory = Mem0::new(config).map_err(|error| SessionError::caused(ErrorKind::Invalid, &error))?;
        Ok(Arc::new(memory))
    }
}
