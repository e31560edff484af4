//! Each kind of update is as the schema requires.

use serde_json::json;
use superstep_acp::{
    stream::available_commands,
    wire::{
        Chunk, CompactionStatus, ContentBlock, Cost, Location, PlanEntry, PlanPriority, PlanStatus,
        ResourceContents, SessionUpdate, Severity, ToolCall, ToolContent, ToolKind, ToolStatus,
    },
};

use crate::{editor::Editor, fake};

/// Returns an update of each kind, with all fields.
pub(crate) fn all() -> Vec<SessionUpdate> {
    let image =
        ContentBlock::Image { data: "AAAA".into(), mime_type: "image/png".into(), uri: Some("x:y".into()) };
    let link = ContentBlock::ResourceLink { uri: "file:///a".into(), name: "a".into() };
    let contents = |text: Option<&str>, blob: Option<&str>| ContentBlock::Resource {
        resource: ResourceContents {
            uri: "x:y".into(),
            mime_type: Some("text/plain".into()),
            text: text.map(Into::into),
            blob: blob.map(Into::into),
        },
    };
    let content = |content| ToolContent::Content { content };
    let new_file = ToolContent::Diff { path: "/a".into(), old_text: None, new_text: "b".into() };
    let call = ToolCall {
        tool_call_id: "c1".into(),
        title: Some("Edit".into()),
        name: Some("edit_file".into()),
        kind: Some(ToolKind::Edit),
        status: Some(ToolStatus::InProgress),
        content: Some(vec![content(image), content(link), content(contents(Some("t"), None)), new_file]),
        locations: Some(vec![Location { path: "/a".into(), line: Some(1) }]),
        raw_input: Some(json!({ "path": "a" })),
        raw_output: Some(json!({ "text": "done" })),
    };
    let entry = |status| PlanEntry { content: "test".into(), priority: PlanPriority::Medium, status };
    let notice =
        |severity| SessionUpdate::Notice { severity, title: "t".into(), description: Some("d".into()) };
    let compaction = |status| SessionUpdate::CompactionUpdate { compaction_id: "1".into(), status };
    let kind = |kind| SessionUpdate::ToolCallUpdate(ToolCall { kind: Some(kind), ..ToolCall::new("c1") });
    let status =
        |status| SessionUpdate::ToolCallUpdate(ToolCall { status: Some(status), ..ToolCall::new("c1") });
    vec![
        SessionUpdate::UserMessageChunk(Chunk { content: contents(None, Some("AAAA")), message_id: None }),
        SessionUpdate::AgentMessageChunk(Chunk::text("m", "a")),
        SessionUpdate::AgentThoughtChunk(Chunk::text("m:thought", "a")),
        SessionUpdate::ToolCall(call.clone()),
        SessionUpdate::ToolCallUpdate(call),
        kind(ToolKind::Read),
        kind(ToolKind::Search),
        kind(ToolKind::Execute),
        kind(ToolKind::Think),
        kind(ToolKind::Fetch),
        kind(ToolKind::Other),
        status(ToolStatus::Pending),
        status(ToolStatus::Completed),
        status(ToolStatus::Failed),
        SessionUpdate::Plan {
            entries: vec![
                entry(PlanStatus::Pending),
                entry(PlanStatus::InProgress),
                entry(PlanStatus::Completed),
            ],
        },
        SessionUpdate::AvailableCommandsUpdate { available_commands: available_commands() },
        SessionUpdate::CurrentModeUpdate { current_mode_id: "ask".into() },
        SessionUpdate::ConfigOptionUpdate { config_options: fake::options() },
        SessionUpdate::SessionInfoUpdate {
            title: Some("t".into()),
            updated_at: Some("2026-11-28T23:00:00Z".into()),
        },
        SessionUpdate::UsageUpdate {
            used: 1,
            size: 2,
            cost: Some(Cost { amount: 0.5, currency: "USD".into() }),
        },
        notice(Severity::Info),
        notice(Severity::Warning),
        notice(Severity::Error),
        compaction(CompactionStatus::Completed),
        compaction(CompactionStatus::Failed),
    ]
}

#[tokio::test(start_paused = true)]
async fn every_update_is_valid_and_arrives_before_the_response() {
    let mut editor = Editor::start().await;
    let id = editor.prompt("s1", "all").await;
    for update in all() {
        let expected = json!({ "sessionId": "s1", "update": update });
        assert_eq!(editor.next().await["params"], expected);
    }
    let response = editor.next().await;
    let expected = json!({ "stopReason": "end_turn", "_meta": { "superstep": { "checkpoint": 7 } } });
    assert_eq!((&response["id"], &response["result"]), (&json!(id), &expected));
}

#[tokio::test(start_paused = true)]
async fn notices_and_compactions_are_omitted_for_clients_without_them() {
    let mut editor = Editor::connect();
    editor.call("initialize", json!({ "protocolVersion": 1 })).await;
    let id = editor.prompt("s1", "all").await;
    let mut kinds = Vec::new();
    loop {
        let line = editor.next().await;
        if line.get("id").is_some() {
            assert_eq!(line["id"], id);
            break;
        }
        kinds.push(line["params"]["update"]["sessionUpdate"].as_str().unwrap().to_owned());
    }
    assert_eq!(kinds.len(), all().len() - 5);
    assert!(!kinds.iter().any(|kind| kind == "notice" || kind == "compaction_update"), "{kinds:?}");
}
