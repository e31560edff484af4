//! Features that meet: each test has two or three of them on one thread.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use superstep::{
    Checkpointer, MemoryCheckpointer,
    agent::{
        Agent, AgentBuilder, ReactConfig,
        config::ContextLayer,
        deps::{HistoryFuture, TurnHistory, TurnRecord},
        replay::ReplayTools,
    },
    llm::{
        Role, Tool, ToolCx, ToolRegistry, ToolReply, ToolSpec,
        media::{Accepts, Media},
        tokens::Estimate,
        tool_fn,
        toolset::{RefreshFuture, ToolSource},
    },
};
use superstep_testing::{
    script::{Answer, Script, call, txt},
    scripted::ScriptedModel,
};

use super::{context::context, preset};
use crate::support::head;

/// A source with the tool `look`, which returns an image.
struct Camera(Arc<ToolRegistry>);

impl Camera {
    fn new(description: &str) -> Self {
        let parameters = json!({"type": "object"});
        let spec = ToolSpec { name: "look".into(), description: description.into(), parameters };
        let look = tool_fn(spec, |_: Value, _: ToolCx| async {
            let gif = Media::new("image/gif", "R0lGODlh").expect("it is one");
            Ok(ToolReply::text(gif.to_string()).with_media([gif]))
        });
        let mut tools = ToolRegistry::new();
        tools.insert(Arc::new(look) as Arc<dyn Tool>).unwrap();
        Self(Arc::new(tools))
    }
}

impl ToolSource for Camera {
    fn tools(&self) -> Arc<ToolRegistry> {
        self.0.clone()
    }

    fn refresh(&self) -> RefreshFuture<'_> {
        Box::pin(async {})
    }
}

#[tokio::test]
async fn a_conversation_whose_older_images_are_dropped_is_replayed_with_the_current_tools() {
    let store = Arc::new(MemoryCheckpointer::new());
    let agent = |answers: Vec<Answer>, description: &str, tools: ReplayTools| {
        let layers = [ContextLayer::consolidate(3), ContextLayer::Snip { keep_last: 3 }];
        let images = Accepts { images: true, ..Accepts::NOTHING };
        let model = ScriptedModel::new(Script::new(answers)).accepting(images);
        let config =
            ReactConfig { context: context(4_000, layers), loops: Vec::new(), ..ReactConfig::graph(9) };
        let shared: Arc<dyn Checkpointer> = store.clone();
        let agent = Agent::builder(model.clone()).tool_source(Camera::new(description)).config(config);
        (agent.counter(Arc::new(Estimate)).replay_tools(tools).checkpointer(shared).build().unwrap(), model)
    };
    let rounds = ["c1", "c2", "c3", "c4"].map(|id| call(id, "look", "{}")).into_iter();
    let answers = rounds.chain([txt("I saw."), txt("I saw it all.")]);
    let (first, model) = agent(answers.collect(), "Looks.", ReplayTools::default());
    let reply = first.thread("t").ask("Look.").await.unwrap();
    assert_eq!(reply.text, "I saw.");
    let images = |request: &superstep::llm::Request| {
        request
            .messages
            .iter()
            .filter(|message| message.role == Role::Tool)
            .map(|it| it.media.len())
            .sum::<usize>()
    };
    let sent: Vec<usize> = model.requests().iter().map(images).collect();
    assert!(sent.contains(&2) && sent.iter().all(|count| *count <= 2), "{sent:?}");
    for tools in [ReplayTools::Recorded, ReplayTools::Current] {
        let (again, model) = agent(Vec::new(), "Looks.", tools);
        again.graph().thread("t").replay().run().await.unwrap().assert_same();
        assert_eq!(model.requests().len(), 0);
    }
    let (other, _) = agent(Vec::new(), "Looks around.", ReplayTools::Current);
    let replayed = other.graph().thread("t").replay().run().await.unwrap();
    assert!(replayed.divergence.unwrap().to_string().contains("look"));
    let (same, _) = agent(Vec::new(), "Looks around.", ReplayTools::Recorded);
    same.graph().thread("t").replay().run().await.unwrap().assert_same();
}

/// A history in memory, which stores a turn once.
#[derive(Clone, Default)]
struct Diary(Arc<Mutex<Vec<TurnRecord>>>);

impl TurnHistory for Diary {
    fn end<'a>(&'a self, _: &'a str, _: std::time::Duration) -> HistoryFuture<'a, u64> {
        Box::pin(async { Ok(0) })
    }

    fn add<'a>(
        &'a self,
        _: &'a str,
        turn: TurnRecord,
        _: u64,
        _: std::time::Duration,
    ) -> HistoryFuture<'a, ()> {
        Box::pin(async {
            let mut turns = self.0.lock().unwrap();
            if turns.iter().all(|known| known.id != turn.id) {
                turns.push(turn);
            }
            Ok(())
        })
    }
}

impl Diary {
    fn agent(
        &self,
        store: &Arc<MemoryCheckpointer>,
        answers: impl IntoIterator<Item = Answer>,
    ) -> AgentBuilder {
        let shared: Arc<dyn Checkpointer> = store.clone();
        let model = ScriptedModel::new(Script::new(answers));
        Agent::builder(model).config(preset()).history(self.clone()).checkpointer(shared)
    }

    fn turns(&self) -> Vec<(String, String)> {
        let turns = self.0.lock().unwrap();
        turns.iter().map(|turn| (turn.user.clone(), turn.reply.clone())).collect()
    }
}

#[tokio::test]
async fn each_branch_of_a_thread_writes_its_turn_down_once() {
    let (diary, store) = (Diary::default(), Arc::new(MemoryCheckpointer::new()));
    let agent = diary.agent(&store, [txt("one"), txt("two")]).build().unwrap();
    agent.thread("t").ask("first").await.unwrap();
    let history = agent.graph().thread("t").history().checkpoints().await.unwrap();
    let at = |node: &str| {
        let found =
            history.iter().find(|meta| matches!(&meta.control.next[..], [next] if next.as_str() == node));
        found.unwrap().id
    };
    let said = |texts: &[(&str, &str)]| -> Vec<(String, String)> {
        texts.iter().map(|(user, reply)| ((*user).to_owned(), (*reply).to_owned())).collect()
    };
    assert_eq!(diary.turns(), said(&[("first", "one")]));
    // A branch from before the model call has a reply of its own.
    agent.thread("t").at(at("agent")).resume().await.unwrap();
    assert_eq!(diary.turns(), said(&[("first", "one"), ("first", "two")]));
    // A finished branch writes nothing again, and neither does a replay.
    agent.thread("t").resume().await.unwrap();
    agent.graph().thread("t").replay().run().await.unwrap().assert_same();
    assert_eq!(diary.turns().len(), 2);
    let turns = diary.0.lock().unwrap();
    assert_ne!(turns[0].id, turns[1].id);
}

#[tokio::test]
async fn a_message_to_a_thread_reaches_each_branch_once() {
    let (diary, store) = (Diary::default(), Arc::new(MemoryCheckpointer::new()));
    let agent = |answers: Vec<Answer>| diary.agent(&store, answers).build().unwrap();
    agent(vec![txt("one")]).thread("t").ask("first").await.unwrap();
    let history = agent(vec![]).graph().thread("t").history().checkpoints().await.unwrap();
    let before = |node: &str| {
        let found =
            history.iter().find(|meta| matches!(&meta.control.next[..], [next] if next.as_str() == node));
        found.unwrap().id
    };
    let at = before("agent");
    // The handle's checkpoint is where a run begins; a message is for the thread, which is finished.
    let refused = agent(vec![]).thread("t").at(at).steer("now").await.unwrap_err();
    assert!(refused.to_string().contains("has no turn in progress"), "{refused}");
    // A branch that waits for a resume takes it.
    let drain = superstep::thread::Drain::new();
    drain.request("later");
    agent(vec![]).thread("t").at(at).drain(drain).resume().await.unwrap();
    agent(vec![]).thread("t").at(at).steer("in French").await.unwrap();
    agent(vec![txt("un")]).thread("t").resume().await.unwrap();
    let texts = async || -> Vec<String> {
        let messages = head(agent(vec![]).graph()).await.values.messages;
        messages.iter().map(|message| message.content.to_string()).collect()
    };
    assert_eq!(texts().await, ["first", "in French", "un"]);
    // Another branch from the same place has not read it yet; a later one has.
    let last = agent(vec![]).graph().thread("t").state().await.unwrap().checkpoint.unwrap().id;
    agent(vec![txt("uno")]).thread("t").at(at).resume().await.unwrap();
    assert_eq!(texts().await, ["first", "in French", "uno"]);
    agent(vec![txt("deux")]).thread("t").at(last).ask("second").await.unwrap();
    assert_eq!(texts().await, ["first", "in French", "un", "second", "deux"]);
}
