//! G: the style of a workflow function with tasks, as one node whose tasks are effects.

use std::sync::{Arc, Mutex};

use superstep::{
    Answers, CompiledGraph, Cx, END, NodeError, OnUnfinished, START, State, StateGraph, Status,
    functional::Workflow,
};

use crate::support::{Backend, Plain, PlainUpdate, json, on_every_store, say};

/// The tasks that ran.
#[derive(Clone, Default)]
struct Tasks(Arc<Mutex<Vec<String>>>);

impl Tasks {
    /// Runs a task, whose result is stored with the workflow.
    async fn run(&self, cx: &Cx, name: &str, result: i64) -> Result<i64, NodeError> {
        let task = async |_: String| {
            self.0.lock().unwrap().push(format!("{name}:{result}"));
            cx.emit("task", result);
            Ok::<_, NodeError>(result)
        };
        cx.once(name, task).await
    }

    fn all(&self) -> Vec<String> {
        let mut all = self.0.lock().unwrap().clone();
        all.sort();
        all
    }
}

fn workflow<Fut>(run: impl Fn(Plain, Cx) -> Fut + Send + Sync + 'static) -> CompiledGraph<Plain>
where
    Fut: Future<Output = Result<PlainUpdate, NodeError>> + Send + 'static,
{
    let mut graph = StateGraph::<Plain>::new("workflow");
    let wf = graph.add_node("wf", run);
    graph.add_edge(START, wf);
    graph.add_edge(wf, END);
    graph.compile().unwrap()
}

/// Creates two concurrent tasks, a question, and a third task.
fn asks(backend: &Backend, tasks: &Tasks) -> CompiledGraph<Plain> {
    let tasks = tasks.clone();
    backend.keep(workflow(move |state, cx| {
        let tasks = tasks.clone();
        async move {
            let first = tasks.run(&cx, "t1(5)", state.x + 1);
            let second = tasks.run(&cx, "t1(6)", state.x + 2);
            let (first, second) = tokio::join!(first, second);
            let (first, second) = (first?, second?);
            let factor: i64 = cx.interrupt("factor", first + second).await;
            Ok(Plain::update().x(tasks.run(&cx, "t2", first * factor).await?))
        }
    }))
}

on_every_store! {
    async fn tasks_before_an_interrupt_are_not_run_again(backend: Backend) {
        let tasks = Tasks::default();
        let asked = asks(&backend, &tasks).thread("t").run(Plain::update().x(5)).await.unwrap();
        assert_eq!((asked.status, &asked.interrupts[0].question), (Status::Interrupted, &json(&13)));
        assert_eq!(tasks.all(), ["t1(5):6", "t1(6):7"]);
        let answers = Answers::new().answer("factor", 10);
        let end = asks(&backend, &tasks).thread("t").answers(answers).resume().await.unwrap();
        assert_eq!((end.status, end.state.x), (Status::Completed, 60));
        assert_eq!(tasks.all(), ["t1(5):6", "t1(6):7", "t2:60"], "t1 is called twice in total");
    }

    async fn a_workflow_finds_what_its_last_run_saved(backend: Backend) {
        #[derive(State, Clone, Debug, Default)]
        struct Saved {
            x: i64,
            previous: i64,
            returned: i64,
        }
        let make = || {
            let mut graph = StateGraph::<Saved>::new("workflow");
            let wf = graph.add_node("wf", async |state: Saved, _: Cx| {
                Saved::update().returned(state.previous).previous(state.previous + state.x)
            });
            graph.add_edge(START, wf);
            backend.keep(graph.compile().unwrap())
        };
        let mut returned = Vec::new();
        for x in [1, 2, 3] {
            returned.push(make().thread("t").run(Saved::update().x(x)).await.unwrap().state.returned);
        }
        assert_eq!(returned, [0, 1, 3]);
    }

    async fn the_failure_of_a_task_is_met_where_it_is_awaited_and_can_be_caught_there(backend: Backend) {
        let graph = backend.keep(workflow(async |_, cx| {
            let fails = async |_| Err::<i64, _>(NodeError::new("no luck"));
            let caught = cx.once("t1", fails).await;
            let other: i64 = cx.once("t2", async |_| Ok::<_, NodeError>(2)).await?;
            Ok(say(&format!("{} {other}", caught.unwrap_err())))
        }));
        assert_eq!(graph.thread("t").run(Plain::update()).await.unwrap().state.log_text(), "no luck 2");
    }

    async fn a_workflow_runs_its_tasks_once_and_continues_in_another_process(backend: Backend) {
        let tasks = Tasks::default();
        let make = || {
            let tasks = tasks.clone();
            let workflow = Workflow::new("workflow", move |x: i64, _: Option<i64>, cx: Cx| {
                let tasks = tasks.clone();
                async move {
                    let (first, second) = tokio::join!(tasks.run(&cx, "t1", x + 1), tasks.run(&cx, "t2", x + 2));
                    let (first, second) = (first?, second?);
                    let factor: i64 = cx.interrupt("factor", first + second).await;
                    tasks.run(&cx, "t3", first * factor).await
                }
            });
            workflow.with_checkpointer(backend.open())
        };
        let asked = make().thread("t").run(5).await.unwrap();
        assert_eq!((asked.status, asked.state, &asked.interrupts[0].question), (Status::Interrupted, None, &json(&13)));
        let end = make().thread("t").answer("factor", 10).resume().await.unwrap();
        assert_eq!((end.status, end.state), (Status::Completed, Some(60)));
        assert_eq!(tasks.all(), ["t1:6", "t2:7", "t3:60"]);
        make().graph().thread("t").replay().run().await.unwrap().assert_same();
    }

    async fn a_workflow_receives_the_value_that_it_saved_last(backend: Backend) {
        let make = || {
            let workflow = Workflow::saving("sums", async |x: i64, saved: Option<i64>, _: Cx| {
                let sum = saved.unwrap_or_default();
                Ok::<_, NodeError>((sum.to_string(), sum + x))
            });
            workflow.with_checkpointer(backend.open())
        };
        let mut returned = Vec::new();
        for x in [1, 2, 3] {
            returned.push(make().thread("t").run(x).await.unwrap().state.unwrap());
        }
        assert_eq!(returned, ["0", "1", "3"]);
        // Another thread has saved nothing.
        assert_eq!(make().thread("other").run(1).await.unwrap().state.as_deref(), Some("0"));

        let texts = Workflow::new("sums", async |text: String, saved: Option<String>, _: Cx| {
            Ok::<_, NodeError>(saved.unwrap_or(text))
        });
        let error = texts.with_checkpointer(backend.open()).thread("t").run("x").await.unwrap_err();
        let error = superstep::error::chain(&error);
        assert!(error.contains("`saved`") && error.contains("expected a string"), "{error}");
    }

    async fn a_value_that_cannot_be_stored_is_the_error_of_its_workflow(backend: Backend) {
        let divide = Workflow::new("divide", async |by: f64, _: Option<f64>, _: Cx| Ok::<_, NodeError>(1.0 / by));
        let thread = divide.with_checkpointer(backend.open()).thread("t").on_unfinished(OnUnfinished::Discard);
        let error = superstep::error::chain(&thread.run(0.0).await.unwrap_err());
        assert!(error.contains("inf is not a number in JSON"), "{error}");
        let error = superstep::error::chain(&thread.run(f64::NAN).await.unwrap_err());
        assert!(error.contains("`input`") && error.contains("NaN"), "{error}");
        assert_eq!(thread.run(2.0).await.unwrap().state, Some(0.5));
    }
}
