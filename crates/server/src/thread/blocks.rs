//! Messages of a model as content blocks, of which one is open at a time.
//!
//! Start at [`MessageBlocks`].

use std::collections::VecDeque;

use serde_json::{Value, json};

use crate::events::{
    calls::{Call, Whole},
    event::texts,
};

/// A message that is being sent: its pieces become the start, the deltas and the end of blocks.
#[derive(Debug)]
pub(crate) struct MessageBlocks {
    id: String,
    /// The blocks that have not ended. The first one is open; those after it are parts of calls that a model writes side by side.
    blocks: VecDeque<Block>,
    /// The number of the open block.
    index: usize,
    /// The parts that have ended.
    whole: Whole,
    ready: Vec<Value>,
}

#[derive(Debug)]
enum Block {
    Text(String),
    Reasoning(String),
    /// A call, with its number among the calls of the message.
    Call {
        index: u64,
        call: Call,
    },
}

impl MessageBlocks {
    /// Begins a message of a node.
    pub(crate) fn new(id: &str, node: &str, step: i64) -> Self {
        let metadata = json!({ "langgraph_node": node, "langgraph_step": step });
        let (id, blocks) = (id.to_owned(), VecDeque::new());
        let mut message = Self { id, blocks, index: 0, whole: Whole::default(), ready: Vec::new() };
        let id = message.id.clone();
        message.push(json!({ "event": "message-start", "role": "ai", "id": id, "metadata": metadata }));
        message
    }

    /// Adds a piece, or a whole message: a text, or an object with the fields of a stored message that are present.
    pub(crate) fn add(&mut self, piece: &Value) {
        let (reasoning, text) = texts(piece);
        self.add_reasoning(reasoning);
        self.add_text(text);
        for (position, part) in (0..).zip(piece["tool_calls"].as_array().into_iter().flatten()) {
            self.add_call(part["index"].as_u64().unwrap_or(position), part);
        }
    }

    /// Ends the message, and returns its parts.
    pub(crate) fn end(&mut self) -> Whole {
        while !self.blocks.is_empty() {
            self.end_block();
        }
        self.push(json!({ "event": "message-finish" }));
        std::mem::take(&mut self.whole)
    }

    /// Ends the message as one that did not become whole.
    pub(crate) fn fail(&mut self, reason: &str) {
        self.push(json!({ "event": "error", "message": reason }));
    }

    /// Takes the data of the events that are ready.
    pub(crate) fn take(&mut self) -> Vec<Value> {
        std::mem::take(&mut self.ready)
    }

    fn push(&mut self, mut data: Value) {
        // Clients tell messages that come side by side apart by these two.
        data["message_id"] = self.id.as_str().into();
        data["run_id"] = self.id.as_str().into();
        self.ready.push(data);
    }

    fn add_text(&mut self, piece: &str) {
        if piece.is_empty() {
            return;
        }
        match self.blocks.back_mut() {
            Some(Block::Text(text)) => text.push_str(piece),
            _ => return self.add_block(Block::Text(piece.to_owned())),
        }
        self.delta(self.blocks.len() - 1, piece);
    }

    fn add_reasoning(&mut self, piece: &str) {
        if piece.is_empty() {
            return;
        }
        match self.blocks.back_mut() {
            Some(Block::Reasoning(text)) => text.push_str(piece),
            _ => return self.add_block(Block::Reasoning(piece.to_owned())),
        }
        self.delta(self.blocks.len() - 1, piece);
    }

    fn add_call(&mut self, wanted: u64, part: &Value) {
        let text = |field: &str| part[field].as_str().unwrap_or_default().to_owned();
        let piece = text("arguments");
        let begun = self
            .blocks
            .iter()
            .position(|block| matches!(block, Block::Call { index, .. } if *index == wanted));
        match begun {
            Some(at) => {
                if let Block::Call { call, .. } = &mut self.blocks[at] {
                    call.arguments.push_str(&piece);
                }
                self.delta(at, &piece);
            }
            None if part["id"].is_string() || part["name"].is_string() => {
                let call = Call { id: text("id"), name: text("name"), arguments: piece };
                self.add_block(Block::Call { index: wanted, call });
            }
            // A part without its beginning.
            None => {}
        }
    }

    fn add_block(&mut self, block: Block) {
        self.blocks.push_back(block);
        if self.blocks.len() == 1 {
            return self.start_block();
        }
        while self.blocks.len() > 1 && self.blocks.front().is_some_and(Block::is_whole) {
            self.end_block();
        }
    }

    fn delta(&mut self, at: usize, piece: &str) {
        if at > 0 || piece.is_empty() {
            return;
        }
        let delta = match &self.blocks[0] {
            Block::Text(_) => json!({ "type": "text-delta", "text": piece }),
            Block::Reasoning(_) => json!({ "type": "reasoning-delta", "reasoning": piece }),
            Block::Call { .. } => json!({ "type": "tool-call-delta", "args": piece }),
        };
        self.push(json!({ "event": "content-block-delta", "index": self.index, "delta": delta }));
    }

    /// Sends the start of the first block, with its text so far as a delta.
    fn start_block(&mut self) {
        let Some(block) = self.blocks.front() else { return };
        let (content, so_far) = match block {
            Block::Text(text) => (json!({ "type": "text", "text": "" }), text.clone()),
            Block::Reasoning(text) => (json!({ "type": "reasoning", "reasoning": "" }), text.clone()),
            Block::Call { index, call: Call { id, name, arguments } } => {
                let content =
                    json!({ "type": "tool_call_chunk", "id": id, "name": name, "args": "", "index": index });
                (content, arguments.clone())
            }
        };
        self.push(json!({ "event": "content-block-start", "index": self.index, "content": content }));
        self.delta(0, &so_far);
    }

    fn end_block(&mut self) {
        let content = match self.blocks.pop_front() {
            None => return,
            Some(Block::Text(text)) => {
                self.whole.text.push_str(&text);
                json!({ "type": "text", "text": text })
            }
            Some(Block::Reasoning(text)) => {
                self.whole.reasoning.push_str(&text);
                json!({ "type": "reasoning", "reasoning": text })
            }
            Some(Block::Call { call, .. }) => {
                let content = whole_call(&call);
                self.whole.calls.push(call);
                content
            }
        };
        self.push(json!({ "event": "content-block-finish", "index": self.index, "content": content }));
        self.index += 1;
        self.start_block();
    }
}

impl Block {
    /// Returns whether nothing is missing, once another block has begun.
    fn is_whole(&self) -> bool {
        match self {
            Self::Text(_) | Self::Reasoning(_) => true,
            Self::Call { call, .. } => call.read().is_ok(),
        }
    }
}

fn whole_call(call: &Call) -> Value {
    let Call { id, name, arguments } = call;
    match call.read() {
        Ok(args) => json!({ "type": "tool_call", "id": id, "name": name, "args": args }),
        Err(error) => {
            let error = error.to_string();
            json!({ "type": "invalid_tool_call", "id": id, "name": name, "args": arguments, "error": error })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the events of pieces, one a line, and the calls.
    fn sent(pieces: &[Value]) -> (Vec<String>, Vec<Call>) {
        let mut message = MessageBlocks::new("m1", "model", 1);
        pieces.iter().for_each(|piece| message.add(piece));
        let calls = message.end().calls;
        let line = |data: Value| {
            let event = data["event"].as_str().unwrap().replace("content-block-", "");
            let part = [&data["delta"], &data["content"]].into_iter().find(|part| part.is_object());
            let part = part.map(|part| {
                let text = ["text", "reasoning", "args"].iter().find_map(|field| part.get(field));
                format!(" {} {} {}", data["index"], part["type"].as_str().unwrap(), text.unwrap())
            });
            format!("{event}{}", part.unwrap_or_default())
        };
        (message.take().into_iter().map(line).collect(), calls)
    }

    fn call(index: u64, id: Option<&str>, arguments: &str) -> Value {
        json!({ "content": "", "tool_calls": [{ "index": index, "id": id, "name": id, "arguments": arguments }] })
    }

    #[test]
    fn each_kind_of_text_is_a_block_that_ends_before_the_next_begins() {
        let pieces = [json!({ "reasoning": "Let " }), json!({ "reasoning": "me." }), json!("4"), json!("2")];
        let expected = [
            "message-start",
            "start 0 reasoning \"\"",
            "delta 0 reasoning-delta \"Let \"",
            "delta 0 reasoning-delta \"me.\"",
            "finish 0 reasoning \"Let me.\"",
            "start 1 text \"\"",
            "delta 1 text-delta \"4\"",
            "delta 1 text-delta \"2\"",
            "finish 1 text \"42\"",
            "message-finish",
        ];
        assert_eq!(sent(&pieces).0, expected);
    }

    #[test]
    fn calls_that_come_side_by_side_end_one_after_the_other() {
        let pieces = [
            call(0, Some("a"), "{\"x\""),
            call(1, Some("b"), "{"),
            call(0, None, ":1}"),
            call(1, None, "}"),
            call(7, None, "lost"),
        ];
        let (lines, calls) = sent(&pieces);
        let expected = [
            "message-start",
            "start 0 tool_call_chunk \"\"",
            "delta 0 tool-call-delta \"{\\\"x\\\"\"",
            "delta 0 tool-call-delta \":1}\"",
            "finish 0 tool_call {\"x\":1}",
            "start 1 tool_call_chunk \"\"",
            "delta 1 tool-call-delta \"{}\"",
            "finish 1 tool_call {}",
            "message-finish",
        ];
        assert_eq!(lines, expected);
        assert_eq!(calls.iter().map(|call| &*call.id).collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn arguments_that_are_no_object_are_an_invalid_call() {
        let (lines, _) = sent(&[call(0, Some("a"), "{\"x\"")]);
        assert_eq!(lines[3], "finish 0 invalid_tool_call \"{\\\"x\\\"\"");
    }
}
