//! The agent of the preset `agentscope`: it replies, observes and prints, with hooks around all of that.
//!
//! Start at [`ReActAgent`].

use std::sync::Arc;

use superstep_graph::{AsNode, MemoryCheckpointer, RunConfig, RunError, State, ThreadId};
use superstep_llm::{Message, Role};

use super::{Facade, FacadeError};
use crate::{
    Agent, AgentBuilder, AgentError, AgentState, AgentStateUpdate, Hooks, Msg, Printed, ReactConfig,
};

/// An agent with a name and a memory of its own: the thread of that name.
///
/// Its hooks are those of the builder: around [`reply`](Self::reply), [`observe`](Self::observe) and [`print`](Self::print) here,
/// around model calls and tool calls in the graph.
///
/// ```
/// # use std::sync::Arc;
/// # use superstep_agent::{Agent, Hooks, Msg, agentscope::ReActAgent};
/// # use superstep_llm::ChatModel;
/// # async fn example(model: Arc<dyn ChatModel>) -> Result<(), Box<dyn std::error::Error>> {
/// let mut hooks = Hooks::default();
/// hooks.reply.post(|_, mut reply: Msg| async move {
///     reply.content.push_str("\n-- Friday");
///     Ok(Some(reply))
/// });
/// let friday = ReActAgent::new("Friday", Agent::builder(model).hooks(hooks))?;
/// friday.observe("Ada is in Paris this week.").await?;
/// let reply = friday.reply("Where is Ada?").await?;
/// println!("{}: {}", reply.name, reply.content);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ReActAgent {
    name: String,
    facade: Facade,
    hooks: Hooks,
    display: Option<Arc<Display>>,
}

type Display = dyn Fn(&Printed) + Send + Sync;

impl ReActAgent {
    /// The agent of this name, with the preset [`agentscope`](ReactConfig::agentscope) if it has no configuration, and a memory
    /// that lasts as long as this does if it has no checkpointer.
    ///
    /// # Errors
    /// Those of [`AgentBuilder::build`].
    pub fn new(name: impl Into<String>, mut agent: AgentBuilder) -> Result<Self, AgentError> {
        agent.checkpointer.get_or_insert_with(|| Arc::new(MemoryCheckpointer::new()));
        let hooks = agent.hooks.clone();
        let facade = Facade::new(agent, ReactConfig::agentscope)?;
        Ok(Self { name: name.into(), facade, hooks, display: None })
    }

    /// Sets where [`print`](Self::print) shows what is said. Without, it is shown nowhere.
    #[must_use]
    pub fn display(self, display: impl Fn(&Printed) + Send + Sync + 'static) -> Self {
        Self { display: Some(Arc::new(display)), ..self }
    }

    /// The agent inside.
    pub fn agent(&self) -> &Agent {
        &self.facade.agent
    }

    /// The thread that is its memory.
    pub fn thread(&self) -> ThreadId {
        self.name.as_str().into()
    }

    /// Answers a message, and remembers both. Pieces of the answer are printed as they come, and all of it at the end. The
    /// reply's metadata is that of the turn, and the fields of a reply that follows a schema.
    ///
    /// # Errors
    /// [`FacadeError`]; a model that cannot be asked is one, and so is a hook that fails. What was said until then is
    /// remembered, every tool call with a result.
    pub async fn reply(&self, msg: impl Into<Msg>) -> Result<Msg, FacadeError> {
        self.reply_with(msg, RunConfig::default()).await
    }

    /// The same, to be cancelled or otherwise configured; the thread is this agent's.
    ///
    /// # Errors
    /// Those of [`reply`](Self::reply).
    pub async fn reply_with(&self, msg: impl Into<Msg>, config: RunConfig) -> Result<Msg, FacadeError> {
        let msg = self.hooks.reply.before("reply", msg.into()).await?;
        let config = RunConfig { thread: Some(self.thread()), ..config };
        let mut turn = self.facade.begin(input(&msg), config);
        let mut said = String::new();
        while let Some((event, data)) = turn.next().await {
            match (event, data["token"].as_str()) {
                ("node_start" | "attempt_discarded" | "text_calls", _) => said.clear(),
                ("llm_token", Some(token)) if self.shows() && !token.is_empty() => {
                    said.push_str(token);
                    if let Err(failed) = self.print(self.said(said.clone()), false).await {
                        turn.break_off().await?;
                        return Err(failed);
                    }
                }
                _ => {}
            }
        }
        let state = turn.end().await?;
        let mut reply = self.said(state.final_reply);
        for known in
            [serde_json::to_value(state.metadata).unwrap_or_default(), state.output.unwrap_or_default()]
        {
            reply.metadata.extend(known.as_object().cloned().unwrap_or_default());
        }
        if self.shows() {
            self.print(reply.clone(), true).await?;
        }
        Ok(self.hooks.reply.after("reply", &msg, reply).await?)
    }

    /// Remembers a message without an answer.
    ///
    /// # Errors
    /// [`FacadeError`]; also if a turn is unfinished, for its calls are to be answered first.
    pub async fn observe(&self, msg: impl Into<Msg>) -> Result<(), FacadeError> {
        let msg = self.hooks.observe.before("observe", msg.into()).await?;
        let (graph, thread) = (self.agent().graph(), self.thread());
        let next = graph.get_state(&thread, None).await?.next;
        if !next.is_empty() {
            return Err(RunError::Unfinished { thread, next }.into());
        }
        graph.update_state(RunConfig::thread(thread), input(&msg), AsNode::End).await?;
        Ok(self.hooks.observe.after("observe", &msg, ()).await?)
    }

    /// Shows what is said, or as much of it as is known yet.
    ///
    /// # Errors
    /// [`FacadeError::Hook`].
    pub async fn print(&self, msg: Msg, last: bool) -> Result<(), FacadeError> {
        let printed = self.hooks.print.before("print", Printed { msg, last }).await?;
        if let Some(display) = &self.display {
            display(&printed);
        }
        Ok(self.hooks.print.after("print", &printed, ()).await?)
    }

    /// Whether anybody sees what is printed.
    fn shows(&self) -> bool {
        self.display.is_some() || !self.hooks.print.is_empty()
    }

    fn said(&self, content: String) -> Msg {
        Msg::new(&self.name, Role::Assistant, content)
    }
}

/// For the agent everybody else is a user, whatever they are to themselves.
fn input(msg: &Msg) -> AgentStateUpdate {
    AgentState::update().messages([Message::user(&msg.content)]).cwd(None)
}
