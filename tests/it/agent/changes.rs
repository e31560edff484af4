//! Deliberate changes of an agent: each is reported at its node, with its kind and in words.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};
use superstep::{
    MemoryCheckpointer,
    agent::{
        Agent, AgentBuilder, ReactConfig,
        config::{Finish, FinishBy, OutputMode},
    },
    checkpoint::text::{self, ExportOptions, Redaction},
    llm::{ChatModel, Named, Request, ResponseStream, Tool, ToolCx, ToolSpec, tool_fn},
    replay::{At, Divergence, DivergenceKind},
};
use superstep_testing::{
    script::{Script, calls, txt},
    scripted::ScriptedModel,
};

use super::{Scenario, kit::Kit, paused};

const PROMPT: &str = "You are careful.\nUse the tools.\nAnswer in one sentence.";

/// A scripted model with a temperature.
struct Warm(ScriptedModel, f64);

impl ChatModel for Warm {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn settings(&self) -> BTreeMap<String, Value> {
        BTreeMap::from([("temperature".to_owned(), self.1.into())])
    }

    fn stream(&self, request: Request) -> ResponseStream<'_> {
        self.0.stream(request)
    }
}

fn prompted(config: ReactConfig) -> ReactConfig {
    ReactConfig { system_prompt: PROMPT.into(), ..config }
}

fn spec(name: &str, description: &str, parameters: Value) -> Arc<dyn Tool> {
    let spec = ToolSpec { name: name.into(), description: description.into(), parameters };
    Arc::new(tool_fn(spec, |_: Value, _: ToolCx| async { Ok("5".to_owned()) }))
}

fn add(description: &str, properties: &[&str]) -> Arc<dyn Tool> {
    let properties: BTreeMap<_, _> =
        properties.iter().map(|name| (*name, json!({"type": "integer"}))).collect();
    spec("add", description, json!({"type": "object", "properties": properties}))
}

fn echo() -> Arc<dyn Tool> {
    spec("echo", "Repeats a word.", json!({"type": "object"}))
}

fn script() -> Script {
    let both = calls([("c1", "add", r#"{"a":2,"b":3}"#), ("c2", "echo", r#"{"x":"five"}"#)]);
    Script::new([both, txt("It is five.")])
}

fn model() -> Arc<dyn ChatModel> {
    Arc::new(Warm(ScriptedModel::new(script()), 0.2))
}

fn usual_tools() -> Vec<Arc<dyn Tool>> {
    vec![add("Adds two numbers.", &["a", "b"]), echo()]
}

fn built(
    model: Arc<dyn ChatModel>,
    tools: Vec<Arc<dyn Tool>>,
    config: ReactConfig,
    store: &Arc<MemoryCheckpointer>,
) -> Agent {
    let agent: AgentBuilder = Agent::builder(model).tools(tools).config(config).checkpointer(store.clone());
    agent.build().unwrap()
}

async fn recorded() -> Arc<MemoryCheckpointer> {
    let store = Arc::new(MemoryCheckpointer::new());
    let agent = built(model(), usual_tools(), prompted(super::preset()), &store);
    agent.thread("t").ask("2 + 3?").await.unwrap();
    agent.graph().thread("t").replay().run().await.unwrap().assert_same();
    store
}

async fn found(agent: &Agent) -> Divergence {
    let replayed = agent.graph().thread("t").replay().run().await.unwrap();
    replayed.divergence.expect("the agent is another one")
}

#[test]
fn a_changed_request_is_reported_in_words() {
    use DivergenceKind::{Messages, Model, Parameters, Prompt, Tools};
    let config = || prompted(super::preset());
    let same = usual_tools;
    let schema =
        |by, output| Finish { by, output, schema: Some(json!({"type": "integer"})), ..Finish::default() };
    type Case =
        (&'static str, Arc<dyn ChatModel>, Vec<Arc<dyn Tool>>, ReactConfig, DivergenceKind, &'static str);
    let cases: Vec<Case> = vec![
        (
            "a word of the prompt",
            model(),
            same(),
            ReactConfig { system_prompt: PROMPT.replace("one sentence", "French"), ..config() },
            Prompt,
            "(prompt)\n  system prompt\n    \
             \u{20} Use the tools.\n    - Answer in one sentence.\n    + Answer in French.",
        ),
        (
            "no prompt",
            model(),
            same(),
            ReactConfig { system_prompt: "".into(), ..config() },
            Prompt,
            "- You are careful.\n    - Use the tools.\n    - Answer in one sentence.",
        ),
        (
            "a tool more",
            model(),
            same().into_iter().chain([spec("ping", "Pings.", json!({"type": "object"}))]).collect(),
            config(),
            Tools,
            "(tools)\n  tool `ping` added\n    + Pings.",
        ),
        (
            "a tool less",
            model(),
            vec![add("Adds two numbers.", &["a", "b"])],
            config(),
            Tools,
            "(tools)\n  tool `echo` removed\n    - Repeats a word.",
        ),
        (
            "the description of a tool",
            model(),
            vec![add("Adds two integers.", &["a", "b"]), echo()],
            config(),
            Tools,
            "(tools)\n  description of tool `add`\n    - Adds two numbers.\n    + Adds two integers.",
        ),
        (
            "the parameters of a tool",
            model(),
            vec![add("Adds two numbers.", &["a", "b", "c"]), echo()],
            config(),
            Tools,
            "parameters of tool `add`\n",
        ),
        (
            "the name of the model",
            Arc::new(Named::new("other", Warm(ScriptedModel::new(script()), 0.2))),
            same(),
            config(),
            Model,
            "(model)\n  model\n    - scripted\n    + other",
        ),
        (
            "the temperature",
            Arc::new(Warm(ScriptedModel::new(script()), 0.7)),
            same(),
            config(),
            Parameters,
            "(parameters)\n  temperature\n    - 0.2\n    + 0.7",
        ),
        (
            "a hint",
            model(),
            same(),
            ReactConfig { remaining_hint: Some("{left} left".into()), ..config() },
            Messages,
            "(messages)\n  messages\n      user: 2 + 3?\n    + user: 5 left",
        ),
        (
            "a finish tool",
            model(),
            same(),
            ReactConfig { finish: schema(FinishBy::Tool, OutputMode::Tool), ..config() },
            Tools,
            "added",
        ),
        (
            "a schema",
            model(),
            same(),
            ReactConfig { finish: schema(FinishBy::PlainText, OutputMode::Native), ..config() },
            DivergenceKind::Schema,
            "(schema)\n  schema of the reply\n    + {\n    +   \"properties\": {",
        ),
    ];
    paused(async {
        let store = recorded().await;
        for (what, model, tools, config, kind, words) in cases {
            let found = found(&built(model, tools, config, &store)).await;
            let text = found.to_string();
            assert_eq!(
                (found.node.as_str(), &found.at),
                ("agent", &At::Effect("model".into())),
                "{what}: {text}"
            );
            assert_eq!((found.kind, found.step), (kind, 3), "{what}: {text}");
            assert!(text.contains(words), "{what}: {text}\n{words}");
            assert_eq!(json!(found)["kind"], kind.name());
        }
    });
}

#[test]
fn a_hint_that_changed_or_is_gone_is_shown() {
    let hint = |text: &str| ReactConfig { synthetic_after_tools: Some(text.into()), ..super::preset() };
    paused(async {
        let store = Arc::new(MemoryCheckpointer::new());
        let agent = built(model(), usual_tools(), hint("Think."), &store);
        agent.thread("t").ask("2 + 3?").await.unwrap();
        let changed = found(&built(model(), usual_tools(), hint("And now?"), &store)).await.to_string();
        assert!(changed.contains("- user: Think.\n    + user: And now?"), "{changed}");
        let gone = found(&built(model(), usual_tools(), super::preset(), &store)).await.to_string();
        assert!(gone.contains("- user: Think."), "{gone}");
    });
}

#[test]
fn a_thread_that_is_recorded_again_has_the_hints_of_now() {
    let hint = |text: &str| ReactConfig { synthetic_after_tools: Some(text.into()), ..super::preset() };
    paused(async {
        let (store, target) = (Arc::new(MemoryCheckpointer::new()), Arc::new(MemoryCheckpointer::new()));
        let agent = built(model(), usual_tools(), hint("Think."), &store);
        agent.thread("t").ask("2 + 3?").await.unwrap();
        let changed = built(model(), usual_tools(), hint("And now?"), &store);
        changed.graph().thread("t").replay().rerecord(target.clone()).await.unwrap();
        let accepted = built(model(), usual_tools(), hint("And now?"), &target);
        accepted.graph().thread("t").replay().run().await.unwrap().assert_same();
        let text = text::export(&*target, &"t".into(), &ExportOptions::default()).await.unwrap();
        assert!(text.contains("And now?") && !text.contains("Think."), "{text}");
        let later = found(&built(model(), usual_tools(), hint("Then?"), &target)).await.to_string();
        assert!(later.contains("- user: And now?\n    + user: Then?"), "{later}");
    });
}

#[test]
fn the_frame_of_requests_is_stored_once_until_it_changes() {
    paused(async {
        let store = Arc::new(MemoryCheckpointer::new());
        let ask = async |prompt: &str, question: &str| {
            let config = ReactConfig { system_prompt: prompt.into(), ..super::preset() };
            let agent = built(model(), usual_tools(), config, &store);
            agent.thread("t").ask(question).await.unwrap();
            text::export(&*store, &"t".into(), &ExportOptions::default()).await.unwrap()
        };
        let n = |text: &str, part: &str| text.matches(part).count();
        let one = ask(PROMPT, "2 + 3?").await;
        let (prompts, descriptions) = ("You are careful", "Adds two numbers");
        assert_eq!((n(&one, prompts), n(&one, descriptions)), (1, 1), "{one}");
        let two = ask(PROMPT, "Again?").await;
        assert_eq!((n(&two, prompts), n(&two, descriptions)), (1, 1));
        let three = ask(&format!("{PROMPT}\nBe brief."), "And again?").await;
        assert_eq!(n(&three, prompts), 2);

        // Rules of an export reach it.
        let redaction = Redaction::new().secret("You are careful").channel("frame");
        let options = ExportOptions::new().redaction(redaction);
        let text = text::export(&*store, &"t".into(), &options).await.unwrap();
        assert_eq!((n(&text, prompts), n(&text, descriptions)), (0, 0), "{text}");
    });
}

#[test]
fn a_thread_without_recording_has_no_frame() {
    paused(async {
        let store = Arc::new(MemoryCheckpointer::new());
        let (scenario, kit) = (Scenario::new([txt("Hello.")]), Kit::default());
        let agent = scenario.agent(Arc::new(ScriptedModel::new(scenario.script.clone())), &kit);
        let agent = agent.checkpointer(store.clone()).build().unwrap();
        let thread = agent.graph().thread("t").recording(false);
        let end = thread.run(agent.input("Hi.")).await.unwrap();
        assert_eq!(end.state.frame.model, "");
    });
}
