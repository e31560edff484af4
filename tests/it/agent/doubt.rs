//! Calls that had begun when a program stopped, and what their tools report about them.

use std::{future::pending, sync::Arc, time::Duration};

use serde_json::{Value, json};
use superstep::{
    RunOptions,
    agent::{Agent, AgentOutcome, AgentState, ReactConfig, config::Budget},
    clock::TokioClock,
    llm::{Tool, ToolCx, ToolFuture, ToolSpec, calls::ReconcileFuture},
};
use superstep_testing::{
    script::{Answer, Script, call, txt},
    scripted::ScriptedModel,
};

use super::{check, paused};
use crate::support::{Backend, head};

const IN_DOUBT: &str = "Error: the outcome of this call is unknown, the process stopped while it ran. Check before repeating it.";

/// A tool whose calls never end, and that may report their outcome.
struct Stuck {
    spec: ToolSpec,
    reports: Reports,
}

/// The end of a request for an outcome.
#[derive(Clone, Copy, Debug)]
enum Reports {
    Known,
    Panic,
    Never,
}

impl Tool for Stuck {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn reconcile<'a>(&'a self, _: &'a str) -> ReconcileFuture<'a> {
        let reports = self.reports;
        Box::pin(async move {
            match reports {
                Reports::Known => Some(Ok("it was done".to_owned())),
                // Unwinds like a panic, without output on the terminal.
                Reports::Panic => std::panic::resume_unwind(Box::new("which call?")),
                Reports::Never => pending().await,
            }
        })
    }

    fn call(&self, _: Value, _: ToolCx) -> ToolFuture<'_> {
        Box::pin(pending())
    }
}

fn agent(reports: Reports, config: &ReactConfig, backend: &Backend, answer: Answer) -> Agent {
    let parameters = json!({ "type": "object" });
    let spec = ToolSpec { name: "stuck".to_owned(), description: String::new(), parameters };
    let agent = Agent::builder(Arc::new(ScriptedModel::new(Script::new([answer]))));
    let agent = agent.tools([Arc::new(Stuck { spec, reports }) as Arc<dyn Tool>]).config(config.clone());
    agent.checkpointer(backend.open()).build().unwrap()
}

/// Stops a program in a call and resumes the turn in another one, which starts at `at` milliseconds and is cancelled at once if
/// that is set.
async fn resumed(reports: Reports, config: ReactConfig, (at, cancelled): (i64, bool)) -> AgentState {
    let backend = Backend::memory();
    let options = |at| RunOptions::new().thread("t").clock(TokioClock::starting_at(at));
    let first = agent(reports, &config, &backend, call("c1", "stuck", "{}"));
    let ended = tokio::time::timeout(Duration::from_millis(10), first.configured(options(0)).ask("go"));
    ended.await.unwrap_err();
    drop(first);
    let second = agent(reports, &config, &backend, txt("ok"));
    let options = options(at);
    let token = options.get_cancel().clone();
    let cancel = async {
        tokio::time::sleep(Duration::from_millis(10)).await;
        if cancelled {
            token.cancel();
        }
    };
    let (reply, ()) = tokio::join!(second.configured(options).resume(), cancel);
    reply.unwrap();
    let state = head(second.graph()).await.values;
    check::calls_are_answered(state.messages.iter());
    state
}

#[test]
fn an_outcome_that_a_tool_does_not_report_in_time_is_unknown_and_the_turn_continues() {
    let config = |wall: Option<u64>| ReactConfig {
        budget: Budget { wall: wall.map(Duration::from_millis), ..Budget::default() },
        tool_timeout: Some(Duration::from_secs(5)),
        ..super::preset()
    };
    for (reports, wall, resumed_at, wanted, outcome) in [
        (Reports::Panic, None, (20, false), IN_DOUBT, AgentOutcome::Completed),
        (Reports::Never, None, (20, false), IN_DOUBT, AgentOutcome::Completed),
        (Reports::Never, None, (20, true), IN_DOUBT, AgentOutcome::Cancelled),
        (Reports::Never, Some(1000), (20, false), IN_DOUBT, AgentOutcome::Budget),
        // The time of the turn had passed before it was resumed.
        (Reports::Known, Some(1000), (60_000, false), "it was done", AgentOutcome::Budget),
    ] {
        let state = paused(resumed(reports, config(wall), resumed_at));
        let results: Vec<_> = state.tool_result_history.iter().map(String::as_str).collect();
        assert_eq!((results, state.outcome), (vec![wanted], Some(outcome)), "{reports:?} {wall:?}");
    }
}
