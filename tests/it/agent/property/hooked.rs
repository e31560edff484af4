//! The hooks of a program around the steps of its agent.

use std::{future::ready, time::Duration};

use serde_json::json;
use superstep::{
    agent::hooks::{Acting, Hooks},
    llm::Message,
};

use super::super::Kit;

/// Some hooks, by name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hooked {
    pub(super) name: &'static str,
    pub(super) hooks: fn(&Kit) -> Hooks,
}

pub(super) const HOOKED: [Hooked; 7] = [
    Hooked { name: "none", hooks: |_| Hooks::default() },
    Hooked { name: "other arguments", hooks: other_arguments },
    Hooked { name: "other results and words", hooks: other_results_and_words },
    Hooked { name: "denies", hooks: denies },
    Hooked { name: "fails before the second model call", hooks: fails_before_the_second_model_call },
    Hooked { name: "fails after the second tool call", hooks: fails_after_the_second_tool_call },
    Hooked {
        name: "takes a minute before the second model call",
        hooks: takes_a_minute_before_the_second_model_call,
    },
];

/// Counts its calls, over all processes of a case.
fn nth(kit: &Kit, what: &str) -> usize {
    kit.note(what);
    kit.notes().iter().filter(|note| *note == what).count()
}

fn other_arguments(_: &Kit) -> Hooks {
    let mut hooks = Hooks::default();
    hooks.acting.pre(|mut acting: Acting| {
        acting.args = json!({"x": "of the hook"});
        ready(Ok(Some(acting)))
    });
    hooks
}

fn other_results_and_words(_: &Kit) -> Hooks {
    let mut hooks = Hooks::default();
    hooks.acting.post(|_, result: String| ready(Ok(Some(format!("<{result}>")))));
    hooks.reasoning.post(|_, answer: Message| {
        let content = format!("{}!", answer.content);
        ready(Ok(Some(answer.with(|answer| answer.content = content))))
    });
    hooks
}

fn denies(_: &Kit) -> Hooks {
    let mut hooks = Hooks::default();
    hooks.acting.pre(|mut acting: Acting| {
        acting.denied = (acting.tool == "echo").then(|| "not now".to_owned());
        ready(Ok(Some(acting)))
    });
    hooks
}

fn fails_before_the_second_model_call(kit: &Kit) -> Hooks {
    let (mut hooks, kit) = (Hooks::default(), kit.clone());
    hooks.reasoning.pre(move |_| ready(if nth(&kit, "asks") == 2 { Err("no".into()) } else { Ok(None) }));
    hooks
}

fn fails_after_the_second_tool_call(kit: &Kit) -> Hooks {
    let (mut hooks, kit) = (Hooks::default(), kit.clone());
    hooks.acting.post(move |_, _| {
        let nth = nth(&kit, "acted");
        async move { if nth == 2 { std::panic::resume_unwind(Box::new("no")) } else { Ok(None) } }
    });
    hooks
}

fn takes_a_minute_before_the_second_model_call(kit: &Kit) -> Hooks {
    let (mut hooks, kit) = (Hooks::default(), kit.clone());
    hooks.reasoning.pre(move |_| {
        let nth = nth(&kit, "asks");
        async move {
            if nth == 2 {
                tokio::time::sleep(Duration::from_secs(60)).await;
            }
            Ok(None)
        }
    });
    hooks
}
