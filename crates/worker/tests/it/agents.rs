//! Jobs of an agent: turns without a reply, and prompts behind a question.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use superstep_agent::{
    Agent, Approval, ReactConfig,
    config::{PermissionRule, Permit},
};
use superstep_llm::{Tool, ToolCx, ToolSpec, tool_fn};
use superstep_postgres::{PostgresCheckpointer, PostgresOptions};
use superstep_testing::{
    script::{Answer, Script, call, http, txt},
    scripted::ScriptedModel,
};
use superstep_worker::{JobId, JobInfo, JobState, Jobs, Listed, Worker};

use crate::{server::shared, support::fresh};

#[derive(Serialize, Deserialize)]
struct Question {
    text: &'static str,
}

/// An agent, its model, and its jobs.
struct Desk {
    agent: Agent,
    model: ScriptedModel,
    jobs: Jobs,
}

fn ask(text: &'static str) -> Question {
    Question { text }
}

fn look() -> impl Tool {
    let spec = ToolSpec {
        name: "look".to_owned(),
        description: "Looks.".to_owned(),
        parameters: json!({"type": "object"}),
    };
    tool_fn(spec, async |_: Value, _: ToolCx| Ok("here".to_owned()))
}

impl Desk {
    async fn new(options: PostgresOptions, answers: impl IntoIterator<Item = Answer>) -> Self {
        let model = ScriptedModel::new(Script::new(answers));
        let config = ReactConfig {
            permissions: vec![PermissionRule::new("look", Permit::Ask)],
            ..ReactConfig::default()
        };
        let store = PostgresCheckpointer::open(options.clone()).unwrap();
        let agent = Agent::builder(model.clone()).config(config).tool(look()).approve_by_interrupt();
        let agent = agent.checkpointer(store).build().unwrap();
        Self { agent, model, jobs: Jobs::open(options).await.unwrap() }
    }

    fn worker(&self) -> Worker {
        let agent = self.agent.clone();
        let input = move |question: OwnQuestion| agent.input(&question.text);
        Worker::new(&self.jobs).graph_of_inputs(self.agent.graph().clone(), input).concurrency(1)
    }

    async fn work(&self) -> usize {
        self.worker().run_due().await.unwrap()
    }

    async fn job(&self, id: JobId) -> JobInfo {
        self.jobs.get(id).await.unwrap().unwrap()
    }

    async fn send(&self, thread: &str, text: &'static str) -> JobId {
        self.jobs.run(self.agent.graph(), thread, ask(text)).send().await.unwrap()
    }

    async fn texts(&self, thread: &str) -> Vec<String> {
        let state = self.agent.thread(thread).state().await.unwrap();
        state.values.messages.iter().map(|message| message.content.clone()).collect()
    }

    async fn approve(&self, key: Option<&str>) {
        let asked = self.agent.thread("t").state().await.unwrap().tasks[0].interrupts[0].id.clone();
        let answer = self.jobs.answer(self.agent.graph(), "t", asked, Approval::Approve);
        let answer = match key {
            Some(key) => answer.key(key),
            None => answer,
        };
        answer.send().await.unwrap();
    }
}

#[derive(Deserialize)]
struct OwnQuestion {
    text: String,
}

/// A server that rejects a request without a retry.
fn down() -> Answer {
    http(401, &[], "no such key")
}

#[tokio::test]
async fn a_turn_whose_model_is_unavailable_fails_the_attempt_and_the_next_one_calls_the_model_again() {
    let Some(server) = shared() else { return };
    let desk = Desk::new(fresh(server), [down(), down(), txt("Hello.")]).await;
    let id = desk.send("t", "hi").await;
    assert_eq!(desk.work().await, 1);
    let failed = desk.job(id).await;
    assert_eq!((failed.state, failed.attempts), (JobState::Queued, 1));
    let error = failed.last_error.unwrap();
    assert!(error.starts_with("the turn has no answer (llm_error): ") && error.contains("401"), "{error}");
    for (attempt, left) in [(2, 1), (3, 0)] {
        let due = desk.jobs.list(Listed::All).await.unwrap()[0].run_at_ms + 1;
        assert_eq!(desk.worker().at_ms(due).run_due().await.unwrap(), 1, "{attempt}");
        assert_eq!(desk.jobs.list(Listed::All).await.unwrap().len(), left);
    }
    assert_eq!(desk.texts("t").await, ["hi", "Hello."]);
    assert_eq!(desk.model.requests().len(), 3);
}

#[tokio::test]
async fn the_last_attempt_without_a_reply_leaves_a_dead_job_that_a_retry_completes() {
    let Some(server) = shared() else { return };
    let desk = Desk::new(fresh(server), [down(), txt("Hello.")]).await;
    let job = desk.jobs.run(desk.agent.graph(), "t", ask("hi")).attempts(1);
    let id = job.send().await.unwrap();
    desk.work().await;
    assert_eq!(desk.job(id).await.state, JobState::Dead);
    assert!(desk.jobs.retry(id).await.unwrap());
    desk.work().await;
    assert_eq!(desk.jobs.list(Listed::All).await.unwrap(), []);
    assert_eq!(desk.texts("t").await, ["hi", "Hello."]);
}

#[tokio::test]
async fn an_answer_and_a_resume_also_fail_if_the_model_is_unavailable_and_do_not_repeat_the_call() {
    let Some(server) = shared() else { return };
    let answers = [call("c1", "look", "{}"), down(), down(), txt("There.")];
    let desk = Desk::new(fresh(server), answers).await;
    desk.send("t", "where?").await;
    desk.work().await;
    desk.approve(None).await;
    desk.work().await;
    let [failed] = &desk.jobs.list(Listed::All).await.unwrap()[..] else { panic!("one job is left") };
    assert_eq!((failed.attempts, failed.work.as_deref()), (1, Some("answer")));
    let resume = desk.jobs.resume(desk.agent.graph(), "t").attempts(1).send().await.unwrap();
    desk.work().await;
    assert_eq!(desk.job(resume).await.state, JobState::Dead);
    assert_eq!(desk.worker().at_ms(failed.run_at_ms + 1).run_due().await.unwrap(), 1);
    assert_eq!(desk.texts("t").await, ["where?", "", "here", "There."]);
    assert_eq!(desk.jobs.list(Listed::In(JobState::Queued)).await.unwrap(), []);
}

/// Prompts behind a call that waits for approval, each with and without a key, and so the answer.
#[tokio::test]
async fn prompts_behind_a_question_use_no_attempts_and_run_in_their_order_after_its_answer() {
    let Some(server) = shared() else { return };
    for key in [None, Some("t")] {
        for answer_key in [None, Some("t")] {
            let answers = [call("c1", "look", "{}"), txt("There."), txt("Two."), txt("Three.")];
            let desk = Desk::new(fresh(server), answers).await;
            let send = async |text| {
                let job = desk.jobs.run(desk.agent.graph(), "t", ask(text));
                let job = match key {
                    Some(key) => job.key(key),
                    None => job,
                };
                job.send().await.unwrap()
            };
            send("one").await;
            desk.work().await;
            let behind = [send("two").await, send("three").await];
            for _ in 0..3 {
                desk.work().await;
            }
            let first = desk.job(behind[0]).await;
            assert_eq!((first.state, first.attempts), (JobState::Queued, 0), "{first:?}");
            assert_eq!(first.last_error.as_deref(), Some("the thread waits for an answer"));
            desk.approve(answer_key).await;
            desk.work().await;
            assert_eq!(
                desk.texts("t").await,
                ["one", "", "here", "There.", "two", "Two.", "three", "Three."],
                "{key:?} {answer_key:?}"
            );
            assert_eq!(desk.jobs.list(Listed::All).await.unwrap(), []);
        }
    }
}
