//! Differences from the reference server that are meant, each with its reason.

/// Returns whether a difference has a pattern, in which `*` is any text.
pub(crate) fn is_of(pattern: &str, difference: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = difference.strip_prefix(first) else { return false };
    let parts: Vec<_> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// Patterns of differences, with their reasons.
pub(crate) const ALLOWED: &[(&str, &str)] = &[
    (r#"* json.detail: "*" → "*""#, "errors have sentences of ours"),
    (r#"protocol: * json.message: "*" → "*""#, "errors have sentences of ours"),
    (r#"*: "ValueError" → "NodeError""#, "errors of nodes have no types with names"),
    (r#"*: "boom" → "SS101: * boom""#, "errors say where they happened, and have a page"),
    (r#"*: "ValueError('boom')" → "SS101: * boom""#, "errors say where they happened, and have a page"),
    (r#"failures: *: "Recursion limit of 1 *" → "SS105: *""#, "errors have a page"),
    (
        r#"background: GET /threads/<T2> json.error.message: "interrupt *" → "*""#,
        "errors have sentences of ours",
    ),
    ("* json.error: no key → null", "a thread has all its keys before its first run"),
    ("* json.interrupts: no key → {}", "a thread has all its keys before its first run"),
    (r#"*.verdict: no key → """#, "channels have values from the start"),
    ("*.sent: no key → false", "channels have values from the start"),
    ("*.config.configurable: {} → no key", "a thread has no configuration"),
    ("failures: GET /threads/<T2> json.config.recursion_limit: 1 → no key", "a thread has no configuration"),
    ("*.kwargs.config.configurable: {* → no key", "the ids of a run are in the run"),
    ("*.kwargs.config.metadata: {* → no key", "the metadata of a run is in the run"),
    ("*.kwargs.checkpoint_during: true → no key", "`durability` says it"),
    ("*.kwargs.feedback_keys: null → no key", "they are for LangSmith"),
    ("* json*.cancel_reason: no key → *", "later versions of the reference have it"),
    (
        r#"background: POST /runs/batch json[0].metadata.created_by: "system" → no key"#,
        "it stands for the lack of a user",
    ),
    (r#"background: POST /runs/batch json[0].metadata.graph_id: no key → *"#, "all runs name their graph"),
    ("assistants: GET /assistants/counters status: 422 → 404", "the names of graphs are ids too"),
    ("threads: GET /threads/nothing status: 422 → 404", "ids need not be UUIDs"),
    ("failures: GET /threads/<T1>/runs/nothing status: 422 → 404", "ids need not be UUIDs"),
    ("failures: GET /threads/<T1>/runs?limit=x status: 400 → 422", "a wrong field is 422 in a query too"),
    ("store: GET /store/items?namespace=users.ada status: 400 → 422", "a wrong field is 422 in a query too"),
    (r#"store: PUT /store/items text: "Namespace label *" → "{\"detail\":*"#, "all errors are JSON"),
    (r#"store: PUT /store/items headers.content-type: no key → "application/json""#, "all errors are JSON"),
    ("background: * /threads/<T3>/runs/<R8>/cancel headers.*location: no key → *", "it can be joined"),
    ("failures: GET /threads/<T1>/runs/<R9>/join *", "a run that does not exist is 404"),
    ("failures: GET /threads/<T1>/runs/<R9>/stream *", "a run that does not exist is 404"),
    ("threads: POST /threads/<T2>/copy status: 409 → 404", "a thread that does not exist is 404"),
    ("state: GET /threads/<T1>/state/0* status: 200 → 404", "a checkpoint that does not exist is 404"),
    ("state: POST /threads/<T1>/state status: 422 → 200", "no body is an empty object"),
    (
        "state: GET /threads/<T1>/history json: [{* → [{*",
        "the default is ten states, as its documentation says",
    ),
    ("assistants: * /assistants/<A1>/latest json.context.depth: 3 → 2", "a version has its context"),
    ("assistants: * /assistants/<A1>/schemas json.*put_schema: null → {*", "inputs and outputs have schemas"),
    ("assistants: * /assistants/<A1>/schemas json.state_schema.*", "schemas are those of the types in Rust"),
    ("threads: POST /threads/<T1>/copy json.values: no key → {*", "a copy has values"),
    (
        r#"state: GET /threads/<T1>/state/<K2> json.checkpoint.checkpoint_ns: no key → """#,
        "clients need all three keys",
    ),
    (r#"state: *.metadata.checkpoint_id: "<K2>" → no key"#, "the parent says where a run began"),
    (r#"*triggers: ["branch:to:*"] → []"#, "these are channels of its engine"),
    (r#"modes: *onfig.configurable.*_id: "*" → no key"#, "the metadata has these ids"),
    (r#"modes: *.metadata.*_id: no key → "*""#, "checkpoints have the metadata of the history"),
    ("modes: *.metadata.run_attempt: no key → 1", "checkpoints have the metadata of the history"),
    ("modes: *.values.n: 0 → 5", "the event of an input has the state with it; the history, that before"),
    ("modes: *.values.n: 7 → 12", "the event of an input has the state with it; the history, that before"),
    (r#"modes: POST /runs/stream headers.*location: "/runs/<R*" → "/threads/*"#, "the thread is known"),
    (
        r#"messages: * messages ``: [{*"chunk_position":"last"* → no event"#,
        "an end without content says nothing",
    ),
    ("messages: * messages/partial `Let me add.`: [{* → no event", "it came already"),
    ("messages: * messages/partial `The sum is 42`: [{* → no event", "it came already"),
    ("messages: *.invalid_tool_calls: [{* → []", "the rest of a call is no call of its own"),
    (r#"messages: *.ls_provider: "scripted" → no key"#, "a node need not name a provider"),
    (r#"messages: *.checkpoint_ns: no key → "tools:*"#, "all messages have a namespace"),
    ("questions: POST /threads/<T2>/runs/stream values: {* → no event", "there is nothing to answer"),
    (
        "questions: POST /threads/<T2>/runs/stream error: no event → *nothing waits*",
        "there is nothing to answer",
    ),
    (
        r#"questions: * updates|child: {"__interrupt__":* → no event"#,
        "its caller asks, under the id for the answer",
    ),
    (
        r#"questions: * values|child: {"__interrupt__":* → no event"#,
        "its caller asks, under the id for the answer",
    ),
    (
        r#"questions: * values|child: {"euros":20,"sent":false} → no event"#,
        "a subgraph that goes on has a state after its next superstep",
    ),
    ("questions: *.tasks[0].state.*checkpoint_map: {* → no key", "checkpoints of subgraphs take no runs"),
    ("questions: *.tasks[0].state.metadata.checkpoint_ns: * → no key", "its caller has it"),
    ("questions: *.tasks[0].state.metadata.langgraph_*: * → no key", "its caller has it"),
    (
        r#"questions: *.tasks[0].state.parent_checkpoint*_id: "<K8>" → *"#,
        "each namespace numbers its checkpoints",
    ),
    ("failures: POST /threads/<T1>/runs/wait status: 200 → 400", "a thread belongs to one graph"),
    ("failures: POST /threads/<T1>/runs/wait headers.*location: * → no key", "a thread belongs to one graph"),
    ("protocol: * checkpoints: no event → {*", "pages that edit a conversation need it"),
    ("protocol: * tasks: no event → {*", "its server for JavaScript sends it"),
    ("protocol: * tools tool-*: no event → {*", "all graphs send all channels"),
    ("protocol: * input.answered: no event → {*", "the types of the protocol have it"),
    ("protocol: * updates: {*\"data\":{},* → no event", "a task that asks wrote nothing"),
    ("protocol: *.params.data.done: 50 → no key", "its clients read a payload"),
    (r#"protocol: *.params.data.name: no key → "progress""#, "an event of a node has a name"),
    ("protocol: *.params.data.payload: no key → {*", "its clients read a payload"),
    ("protocol: *.params.data.value: no key → *", "clients for Python read it"),
    ("protocol: *.params.node: no key → *", "clients for JavaScript read it"),
    ("protocol: * messages *.params.data.message_id: no key → *", "messages come side by side"),
    ("protocol: * messages *.params.data.run_id: no key → *", "messages come side by side"),
    ("protocol: * messages message-start.*.metadata: no key → {*", "clients show who writes"),
    ("protocol: *.messages[*: no key → *", "messages have all their fields, as in states"),
    (r#"protocol: *.messages[*].content: [{* → "*""#, "texts are texts, as in states"),
    (r#"protocol: *.messages[*.output_version: "v1" → no key"#, "texts are texts, as in states"),
    ("protocol: * lifecycle child *.namespace: no key → *", "ends of subgraphs say whose they are"),
    ("protocol: * lifecycle child *.trigger_call_id: no key → *", "ends of subgraphs say whose they are"),
    ("protocol: * content-block-finish 0: here → elsewhere", "a block ends before the next one begins"),
    ("protocol: * values: here → elsewhere", "the end of the run is its last event"),
    ("protocol: * input.requested: here → elsewhere", "the end of the run is its last event"),
    ("protocol: * input.requested child: here → elsewhere", "the end of the run is its last event"),
    ("protocol: * lifecycle interrupted: here → elsewhere", "the end of the run is its last event"),
    ("protocol: * lifecycle child interrupted: here → elsewhere", "the end of the run is its last event"),
    ("protocol: * values child: {* → no event", "a state comes once"),
    (r#"protocol: * json.error: "no_such_run" → no key"#, "a run that has ended has a tree"),
    (r#"protocol: * json.message: "No active run *" → no key"#, "a run that has ended has a tree"),
    (r#"protocol: * json.type: "error" → "success""#, "a run that has ended has a tree"),
    ("protocol: * json.meta: no key → {*", "a run that has ended has a tree"),
    (r#"protocol: * json.result: no key → {"tree":*"#, "a run that has ended has a tree"),
    (r#"protocol: * json.error: "unknown_error" → "invalid_argument""#, "the assistant is an argument"),
    ("protocol: POST /threads/<T1>/commands status: 200 → 400", "a number of a command is from 0"),
];
