//! The facade of the preset `agentscope`: reply, observe and print, with hooks around each.
//!
//! Start at [`ReActAgent`].

use std::sync::Arc;

use superstep_graph::{MemoryCheckpointer, RunError, RunOptions, State, ThreadId, thread::AsNode};
use superstep_llm::{Message, Role};

use super::facade::{Facade, FacadeError};
use crate::{
    Agent, AgentBuilder, AgentError, AgentEvent, AgentState, ReactConfig,
    hooks::{Hooks, Printed},
    repair::msg::Msg,
    state::AgentStateUpdate,
};

/// An agent with a name and its own memory: the thread of that name.
///
/// It uses the builder's hooks: around [`reply`](Self::reply), [`observe`](Self::observe) and
/// [`print`](Self::print) here, around model calls and tool calls in the graph.
///
/// ```
/// # use std::sync::Arc;
/// # use superstep_agent::{Agent, facades::agentscope::ReActAgent, hooks::{Hooks, Msg}};
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
    /// Creates the agent of this name. Defaults to the preset [`agentscope`](ReactConfig::agentscope) and to
    /// an in-memory checkpointer.
    ///
    /// # Errors
    /// Those of [`AgentBuilder::build`].
    pub fn new(name: impl Into<String>, mut agent: AgentBuilder) -> Result<Self, AgentError> {
        agent.checkpointer.get_or_insert_with(|| Arc::new(MemoryCheckpointer::new()));
        let hooks = agent.deps.hooks.clone();
        let facade = Facade::new(agent, ReactConfig::agentscope)?;
        Ok(Self { name: name.into(), facade, hooks, display: None })
    }

    /// Sets the output of [`print`](Self::print); by default there is none.
    #[must_use]
    pub fn display(self, display: impl Fn(&Printed) + Send + Sync + 'static) -> Self {
        Self { display: Some(Arc::new(display)), ..self }
    }

    /// Returns the inner agent.
    pub fn agent(&self) -> &Agent {
        &self.facade.agent
    }

    /// Returns the thread that is its memory.
    pub fn thread(&self) -> ThreadId {
        self.name.as_str().into()
    }

    /// Replies to a message and stores both. Pieces of the reply are printed as they arrive, and the whole at
    /// the end. The reply's metadata is that of the turn, and the fields of a structured reply.
    ///
    /// # Errors
    /// [`FacadeError`], also for an unavailable model and a failing hook. The messages until then
    /// are stored, every tool call with a result.
    pub async fn reply(&self, msg: impl Into<Msg>) -> Result<Msg, FacadeError> {
        self.reply_with(msg, RunOptions::new()).await
    }

    /// Does the same with the options of the run, for example to cancel it; the thread is this agent's.
    ///
    /// # Errors
    /// Those of [`reply`](Self::reply).
    pub async fn reply_with(&self, msg: impl Into<Msg>, options: RunOptions) -> Result<Msg, FacadeError> {
        let msg = self.hooks.reply.before("reply", msg.into()).await?;
        let mut turn = self.facade.begin(input(&msg), options.thread(self.thread()));
        let mut said = String::new();
        while let Some((name, data)) = turn.next().await {
            match AgentEvent::read(name, &data) {
                Some(
                    AgentEvent::NodeStart { .. }
                    | AgentEvent::AttemptDiscarded { .. }
                    | AgentEvent::TextCalls { .. },
                ) => said.clear(),
                Some(AgentEvent::LlmToken { token, .. }) if self.shows() && !token.is_empty() => {
                    said.push_str(&token);
                    if let Err(failed) = self.print(self.message(said.clone()), false).await {
                        turn.break_off().await?;
                        return Err(failed);
                    }
                }
                _ => {}
            }
        }
        let state = turn.end().await?;
        let mut reply = self.message(state.final_reply);
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

    /// Stores a message without a reply.
    ///
    /// # Errors
    /// [`FacadeError`], for example if a turn is unfinished: its calls must be answered first.
    pub async fn observe(&self, msg: impl Into<Msg>) -> Result<(), FacadeError> {
        let msg = self.hooks.observe.before("observe", msg.into()).await?;
        let (graph, thread) = (self.agent().graph(), self.thread());
        let next = graph.thread(&thread).state().await?.next;
        if !next.is_empty() {
            return Err(RunError::Unfinished { thread, next }.into());
        }
        graph.thread(thread).update_as(AsNode::End, input(&msg)).await?;
        Ok(self.hooks.observe.after("observe", &msg, ()).await?)
    }

    /// Prints a message, complete or partial.
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

    /// Returns whether printing has any effect.
    fn shows(&self) -> bool {
        self.display.is_some() || !self.hooks.print.is_empty()
    }

    fn message(&self, content: String) -> Msg {
        Msg::new(&self.name, Role::Assistant, content)
    }
}

/// Converts a message to an input; every other party is a user to the agent.
fn input(msg: &Msg) -> AgentStateUpdate {
    AgentState::update().messages([Message::user(&msg.content)]).cwd(None)
}
