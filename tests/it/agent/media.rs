//! Images of tools in conversations that are too long.

use std::sync::Arc;

use serde_json::{Value, json};
use superstep::{
    agent::{
        Agent, ReactConfig,
        config::{ContextLayer, Truncate},
    },
    llm::{
        Request, Role, Tool, ToolCx, ToolReply, ToolSpec,
        media::{Accepts, Media},
        tokens::Estimate,
        tool_fn,
    },
};
use superstep_testing::{
    script::{Script, call, txt},
    scripted::ScriptedModel,
};

use super::context::context;

const GIF: &str = "R0lGODlh";

fn look() -> Arc<dyn Tool> {
    let parameters = json!({"type": "object"});
    let spec = ToolSpec { name: "look".into(), description: String::new(), parameters };
    Arc::new(tool_fn(spec, |_: Value, _: ToolCx| async {
        let gif = Media::new("image/gif", GIF).expect("it is one");
        Ok(ToolReply::text(gif.to_string()).with_media([gif]))
    }))
}

/// Returns the requests of a turn with three rounds under a budget of tokens: the number of images of each
/// result, and its last line.
async fn requests(budget: u64, accepts: Accepts) -> Vec<Vec<(usize, String)>> {
    let answers = ["c1", "c2", "c3"].map(|id| call(id, "look", "{}")).into_iter().chain([txt("I see.")]);
    let model = ScriptedModel::new(Script::new(answers)).accepting(accepts);
    let layers = [ContextLayer::MicroCompact(Truncate::chars(2_000, "…"))];
    let agent = Agent::builder(Arc::new(model.clone())).tools([look()]).counter(Arc::new(Estimate));
    let agent = agent.config(ReactConfig {
        context: context(budget, layers),
        loops: Vec::new(),
        ..ReactConfig::graph(9)
    });
    agent.build().unwrap().ask("Look.").await.unwrap();
    let shown = |request: &Request| {
        let results = request.messages.iter().filter(|message| message.role == Role::Tool);
        results
            .map(|result| (result.media.len(), result.content.lines().last().unwrap().to_owned()))
            .collect()
    };
    model.requests().iter().skip(1).map(shown).collect()
}

fn sent() -> (usize, String) {
    (1, "[image: image/gif, 6 bytes]".to_owned())
}

fn gone() -> (usize, String) {
    (0, "[1 of these images, audio clips or files are not sent any more]".to_owned())
}

#[tokio::test]
async fn images_of_old_rounds_go_first_when_a_request_is_too_large() {
    let images = Accepts { images: true, ..Accepts::NOTHING };
    let all = [vec![sent()], vec![sent(); 2], vec![sent(); 3]];
    assert_eq!(requests(100_000, images).await, all);
    // An image counts for 1,500 tokens.
    let two = [vec![sent()], vec![sent(); 2], vec![gone(), gone(), sent()]];
    assert_eq!(requests(4_000, images).await, two);
    // No image is better than no answer.
    assert_eq!(requests(1_000, images).await, [vec![gone()], vec![gone(); 2], vec![gone(); 3]]);
    // Media that are not sent have no tokens.
    let described = (0, sent().1);
    let none = [vec![described.clone()], vec![described.clone(); 2], vec![described; 3]];
    assert_eq!(requests(1_000, Accepts::NOTHING).await, none);
}
