//! A thread that the program stored while a real language model answered: `tests/it/fixtures/real_model.db`.
//!
//! It was made with Qwen2.5-Coder-1.5B-Instruct (Q4_K_M) under llama.cpp's server, on the third attempt,
//! because such a small model does not always call the tool:
//!
//! ```text
//! $ superstep run "What is 37*91+5? Use the calculate tool." --thread sum --config plain.toml --max-steps 4 --db real_model.db
//!   → calculate {"expression":"37*91+5"}
//!   ← calculate: 3372 (1 ms)
//! The result of 37*91+5 is 3372.
//! 1 step, 2 model calls, 542 tokens in and 41 out, 3.0 s
//! $ cat plain.toml
//! system_prompt = "Use the tools to find facts. Answer briefly."
//! tools = ["calculate"]
//!
//! [models.main]
//! max_tokens = 120
//! ```

use std::{fs, path::Path, sync::Arc};

use superstep::{
    agent::{Agent, AgentOutcome, ReactConfig},
    llm::{Tool, Usage},
    sqlite::SqliteCheckpointer,
    tools,
};
use superstep_testing::{
    script::{Script, txt},
    scripted::ScriptedModel,
};

use super::{check, show};

#[tokio::test]
async fn a_thread_of_a_real_model_is_read_and_continued() {
    let folder = tempfile::tempdir().unwrap();
    // A copy, because opening a database creates files next to it.
    let path = folder.path().join("threads.db");
    let stored = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/it/fixtures/real_model.db");
    fs::copy(stored, &path).expect("the fixture is in the repository");
    let model = ScriptedModel::new(Script::new([txt("You are welcome.")]));
    let agent = Agent::builder(Arc::new(model.clone()))
        .tools([Arc::new(tools::calculate()) as Arc<dyn Tool>])
        .config(ReactConfig::graph(4))
        .checkpointer(Arc::new(SqliteCheckpointer::open(&path).unwrap()))
        .build()
        .unwrap();

    let state = agent.graph().thread("sum").state().await.unwrap().values;
    check::calls_are_answered(state.messages.iter());
    let said = state.messages.iter().map(|message| message.content.as_str()).collect::<Vec<_>>();
    let wanted = ["What is 37*91+5? Use the calculate tool.", "", "3372", "The result of 37*91+5 is 3372."];
    assert_eq!(said, wanted, "{}", show::messages(state.messages.iter()));
    assert_eq!((state.outcome, state.llm_calls), (Some(AgentOutcome::Completed), 2));
    assert_eq!(state.usage, Usage::new(542, 41));

    // It was stored before anything was recorded: what the model and the tool did is taken as it is, and the rest is compared.
    let replayed = agent.graph().thread("sum").replay().run().await.unwrap();
    assert_eq!((replayed.taken, replayed.divergence), (4, None));

    let reply = agent.thread("sum").ask("Thanks!").await.unwrap();
    assert_eq!(reply.text, "You are welcome.");
    assert_eq!(model.requests()[0].messages.len(), wanted.len() + 1);
}
