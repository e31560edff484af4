//! The sessions of the agent of a program of one's own.
//!
//! Start at [`OwnProgram`].

use superstep_session::{
    config::{
        names::DbName,
        settings::{Given, OwnAgent},
    },
    error::SessionError,
    live::Sessions,
};

/// A program of one's own that has an agent.
pub(crate) struct OwnProgram {
    pub(crate) name: String,
    pub(crate) version: String,
    agent: OwnAgent,
}

impl OwnProgram {
    /// Creates the description of a program.
    ///
    /// # Errors
    /// The program has no agent.
    pub(crate) fn new(
        name: &str,
        version: Option<String>,
        agent: Option<OwnAgent>,
    ) -> Result<Self, SessionError> {
        let Some(agent) = agent else {
            return Err(SessionError::usage(format!(
                "`{name}` has no agent for sessions; its author adds one with `Program::agent`"
            )));
        };
        Ok(Self { name: name.to_owned(), version: version.unwrap_or_default(), agent })
    }

    /// Creates the sessions of the program.
    pub(crate) fn sessions(&self, db: Option<DbName>) -> Sessions {
        Sessions::new(&*self.name, db, Given { agent: Some(self.agent.clone()), ..Given::default() })
    }
}
