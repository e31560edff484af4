//! Instructions and skills of a turn: read when it begins, and when a tool touches another folder.
//!
//! The nodes read files only in a live run, and record the news: a replay has them from there.

use std::{path::Path, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use superstep_graph::Cx;
use superstep_llm::{
    Message, Role, Subject, Tool, ToolRegistry,
    instructions::{FileProblem, InstructionFile, Instructions, Loaded, Skill},
};

use super::skill_tool::SkillTool;
use crate::{
    AgentEvent, AgentState,
    context::instructions::{
        MAX_BYTES, SKILL_TOOL, added, fitted, fitting, has_skill, named, removed, skill,
    },
    deps::AgentDeps,
    events::emit,
    repair::steering::is_steered,
    state::{AddedKind, AddedText, Guidance},
};

/// The name of the records.
const NEWS: &str = "instructions";

/// Maximum number of skills that one prompt can name.
const MAX_NAMED: usize = 8;

/// The differences of the files from those that the thread has read.
#[derive(Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct News {
    /// The files become part of the system prompt, in place of those that the thread has read.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    begins: bool,
    /// The agent reads no instructions.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    clears: bool,
    /// The files of the system prompt, if the thread begins.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    files: Vec<InstructionFile>,
    /// The skills, if they differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    skills: Option<Vec<Skill>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    added: Vec<AddedText>,
}

impl News {
    /// Returns what the thread knows after them.
    fn after(self, guidance: Guidance) -> Guidance {
        if self.clears {
            return Guidance::default();
        }
        if self == Self::default() {
            return guidance;
        }
        let Self { begins, files, skills, added, .. } = self;
        let before = if begins { Guidance::default() } else { guidance };
        before.changed(|data| {
            if begins {
                data.files = files;
            }
            if let Some(skills) = skills {
                data.skills = skills;
            }
            data.added.extend(added);
        })
    }
}

/// Reads the instructions and skills at the beginning of a turn in a folder, if it names one.
pub(super) async fn at_start(
    deps: &AgentDeps,
    state: &AgentState,
    folder: Option<&Path>,
    cx: &Cx,
) -> Guidance {
    let guidance = state.guidance.settled(|id| state.messages.get(id).is_some());
    let news =
        if cx.is_live() { news_of_turn(deps, state, &guidance, folder, cx).await } else { News::default() };
    cx.noted(NEWS, news).after(guidance)
}

async fn news_of_turn(
    deps: &AgentDeps,
    state: &AgentState,
    guidance: &Guidance,
    folder: Option<&Path>,
    cx: &Cx,
) -> News {
    let Some(reader) = reader(deps, folder) else {
        return News { clears: *guidance != Guidance::default(), ..News::default() };
    };
    let none = Guidance::default();
    // The system prompt of a conversation does not change.
    let is_new = *guidance == none && state.messages.iter().all(|message| message.role != Role::Assistant);
    let begins = is_new || deps.rereads_instructions;
    let known = if begins { &none } else { guidance };
    let Loaded { files, skills, mut problems, mut unconfirmed } = reader.load().await;
    let mut news = News { begins, ..News::default() };
    let mut adding = Adding { guidance: known.clone(), added: Vec::new(), cx };
    if begins {
        report(problems, cx);
        // The first files are the ones for all folders.
        let mut room = MAX_BYTES;
        for file in files {
            loaded(&file, cx);
            let file = fitted(file, room);
            room = room.saturating_sub(file.text.len());
            news.files.push(file);
        }
    } else {
        let nested = known.paths();
        let nested = if nested.is_empty() { Loaded::default() } else { reader.nested(&nested).await };
        unconfirmed.extend(nested.unconfirmed);
        problems.extend(nested.problems);
        let there: Vec<_> = files.into_iter().chain(nested.files).collect();
        problems.retain(|wrong| known.hash_of(&wrong.path).is_some());
        // The known text counts until the user confirms the new one, or until it can be read again.
        let waits =
            |path: &String| unconfirmed.contains(path) || problems.iter().any(|wrong| wrong.path == *path);
        for path in known.paths() {
            if !there.iter().any(|file| file.path == path) && !waits(&path) {
                adding.removed(&path);
            }
        }
        let waiting: Vec<String> = known.paths().into_iter().filter(waits).collect();
        for file in there.into_iter().filter(|file| !waiting.iter().any(|path| is_beside(path, &file.path))) {
            adding.file(AddedKind::Changed, file);
        }
        report(problems, cx);
    }
    let (mut listed, others) = fitting(skills.iter().map(of_thread).collect());
    if deps.tools.get(SKILL_TOOL).is_some() {
        // A program's own tool of this name knows other skills.
        listed.clear();
    }
    if *known.skills != listed {
        let problem = "is not listed for the model: the list of skills has at most 8 KiB".to_owned();
        report(others.into_iter().map(|path| FileProblem { path, problem: problem.clone() }), cx);
        news.skills = Some(listed);
    }
    let prompts: Vec<&Message> = prompts(state).collect();
    let names = prompts.iter().flat_map(|prompt| named(&prompt.content, &skills));
    for name in names.take(MAX_NAMED) {
        let is_there =
            (!begins && has_skill(state, name)) || adding.added.iter().any(|added| added.of == name);
        if is_there {
            continue;
        }
        match reader.skill(name).await {
            Ok(text) => {
                emit(cx, || AgentEvent::InstructionsLoaded {
                    path: text.path.clone(),
                    bytes: text.body.len(),
                });
                adding.text(AddedKind::Skill, name, String::new(), 0, skill(name, &text));
            }
            Err(error) => report([FileProblem { path: format!("${name}"), problem: error.to_string() }], cx),
        }
    }
    news.added = adding.added;
    let is_empty = *guidance == none && news == News { begins: true, ..News::default() };
    if is_empty { News::default() } else { news }
}

/// Reads the instructions of the folders that the calls of a round have touched first. Returns what the thread knows then, if it differs.
pub(super) async fn touched<'a>(
    deps: &AgentDeps,
    state: &AgentState,
    calls: impl Iterator<Item = (&'a str, &'a Value)>,
    cx: &Cx,
) -> Option<Guidance> {
    let mut news = News::default();
    if let Some(reader) = deps.instructions.as_ref().filter(|_| cx.is_live()) {
        let paths = calls.filter_map(|(name, args)| paths_of(deps.tools.get(name)?.as_ref(), args));
        let mut paths: Vec<String> = paths.flatten().collect();
        paths.sort();
        paths.dedup();
        if !paths.is_empty() {
            let found = reader.nested(&paths).await;
            let problem = "is not read, because it is not confirmed";
            let unconfirmed = found.unconfirmed.into_iter();
            let unconfirmed = unconfirmed.map(|path| FileProblem { path, problem: problem.to_owned() });
            report(first_touched(deps, state, found.problems.into_iter().chain(unconfirmed).collect()), cx);
            let mut adding = Adding { guidance: state.guidance.clone(), added: Vec::new(), cx };
            let known = state.guidance.paths();
            let is_new = |file: &InstructionFile| {
                !known.iter().any(|path| *path == file.path || is_beside(path, &file.path))
            };
            for file in found.files.into_iter().filter(is_new) {
                adding.file(AddedKind::Nested, file);
            }
            news.added = adding.added;
        }
    }
    let news = cx.noted(NEWS, news);
    (news != News::default()).then(|| news.after(state.guidance.clone()))
}

/// Returns whether two different files are in one folder, so that only one of them counts.
fn is_beside(one: &str, other: &str) -> bool {
    one != other && Path::new(one).parent() == Path::new(other).parent()
}

/// Returns what a thread stores of a skill.
fn of_thread(skill: &Skill) -> Skill {
    let Skill { name, description, path, hash, .. } = skill.clone();
    Skill { name, description, path, hash, ..Skill::default() }
}

/// Returns the problems with files, except those of folders that the turn has touched before.
fn first_touched(
    deps: &AgentDeps,
    state: &AgentState,
    files: Vec<FileProblem>,
) -> impl Iterator<Item = FileProblem> {
    let calls = state.tool_call_history.iter();
    let earlier = calls.filter_map(|call| paths_of(deps.tools.get(&call.name)?.as_ref(), &call.args));
    let earlier: Vec<String> = if files.is_empty() { Vec::new() } else { earlier.flatten().collect() };
    let is_new = move |file: &FileProblem| {
        let file = Path::new(&file.path);
        let folder = file.parent().unwrap_or(file);
        !earlier.iter().any(|path| Path::new(path).starts_with(folder))
    };
    files.into_iter().filter(is_new)
}

/// Adds the tool for the skills of the thread, if it has any.
pub(super) fn add_skills(deps: &mut AgentDeps, state: &AgentState) {
    if !state.guidance.skills.is_empty() {
        let mut tools = ToolRegistry::clone(&deps.tools);
        let tool = SkillTool::new(&state.guidance.skills, deps.instructions.clone());
        // A program's own tool of this name stays.
        if tools.insert(tool).is_ok() {
            deps.tools = Arc::new(tools);
        }
    }
}

/// Returns the reader of the turn's folder.
fn reader(deps: &AgentDeps, folder: Option<&Path>) -> Option<Arc<dyn Instructions>> {
    let reader = deps.instructions.clone()?;
    match folder.map(|folder| reader.in_folder(folder)) {
        None | Some(Ok(None)) => Some(reader),
        Some(Ok(there)) => there,
        Some(Err(_)) => None,
    }
}

/// Returns the messages of the user that begin the turn.
fn prompts(state: &AgentState) -> impl Iterator<Item = &Message> {
    let is_prompt = |message: &&Message| message.role == Role::User;
    let last = state.messages.iter().rev().take_while(is_prompt);
    last.filter(|message| !message.synthetic && !is_steered(message))
}

/// Returns the paths that the arguments of a call name; `None` without any.
fn paths_of(tool: &dyn Tool, args: &Value) -> Option<Vec<String>> {
    let names = args.as_object()?.keys();
    let path = |name: &String| match tool.subject(name, args)? {
        Subject::Path { root, below, .. } if !below.is_empty() => Some(format!("{root}/{below}")),
        _ => None,
    };
    Some(names.filter_map(path).collect())
}

fn loaded(file: &InstructionFile, cx: &Cx) {
    emit(cx, || AgentEvent::InstructionsLoaded { path: file.path.clone(), bytes: file.text.len() });
}

fn report(problems: impl IntoIterator<Item = FileProblem>, cx: &Cx) {
    for FileProblem { path, problem } in problems {
        emit(cx, || AgentEvent::InstructionsSkipped { path, reason: problem });
    }
}

/// The texts that are added to the conversation.
struct Adding<'a> {
    /// The guidance of the thread with the texts so far.
    guidance: Guidance,
    added: Vec<AddedText>,
    cx: &'a Cx,
}

impl Adding<'_> {
    /// Adds a file that the thread does not know in this form.
    fn file(&mut self, kind: AddedKind, file: InstructionFile) {
        let known = self.guidance.hash_of(&file.path);
        if known == Some(&file.hash) {
            return;
        }
        let kind = if known.is_none() { AddedKind::Nested } else { kind };
        loaded(&file, self.cx);
        let room = MAX_BYTES.saturating_sub(self.guidance.bytes_without(&file.path));
        let InstructionFile { path, text, hash } = fitted(file, room);
        let message = added(kind == AddedKind::Changed, &path, &text);
        self.text(kind, &path, hash, text.len(), message);
    }

    fn removed(&mut self, path: &str) {
        self.text(AddedKind::Removed, path, String::new(), 0, removed(path));
    }

    fn text(&mut self, kind: AddedKind, of: &str, hash: String, bytes: usize, text: String) {
        let id = self.cx.id(format!("{NEWS}.{}", self.added.len()));
        let added = AddedText { id, kind, of: of.to_owned(), hash, bytes, text };
        self.added.push(added.clone());
        self.guidance = self.guidance.changed(|data| data.added.push(added));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures::stream;
    use serde_json::json;
    use superstep_graph::{MemoryCheckpointer, State as _};
    use superstep_llm::{
        ChatModel, Delta, FinishReason, Request, ResponseStream, ToolCx, ToolFuture, ToolSpec,
        instructions::{InstructionsFuture, SkillError, SkillText},
        tokens::Estimate,
    };

    use super::*;
    use crate::{
        Agent, AgentBuilder, ReactConfig,
        config::{ContextBudget, Keep},
    };

    /// Files in memory: those of the whole folder, those of folders below, and skills.
    #[derive(Default)]
    struct Files {
        all: Mutex<Vec<(&'static str, String)>>,
        below: Mutex<Vec<(&'static str, String)>>,
        skills: Mutex<Vec<&'static str>>,
        unreadable: Mutex<Vec<&'static str>>,
    }

    impl Files {
        /// The files of a list that can be read, and the others.
        fn read(
            &self,
            list: &Mutex<Vec<(&'static str, String)>>,
        ) -> (Vec<InstructionFile>, Vec<FileProblem>) {
            let unreadable = self.unreadable.lock().unwrap();
            let (bad, good): (Vec<_>, Vec<_>) =
                files(&list.lock().unwrap()).into_iter().partition(|file| unreadable.contains(&&*file.path));
            let problem =
                |file: InstructionFile| FileProblem { path: file.path, problem: "is a link".into() };
            (good, bad.into_iter().map(problem).collect())
        }
    }

    fn files(list: &[(&'static str, String)]) -> Vec<InstructionFile> {
        let file = |(path, text): &(&'static str, String)| InstructionFile {
            path: (*path).to_owned(),
            text: text.clone(),
            hash: format!("hash of {text}"),
        };
        list.iter().map(file).collect()
    }

    impl Instructions for Files {
        fn load(&self) -> InstructionsFuture<'_, Loaded> {
            let skill = |name: &&str| Skill {
                name: (*name).into(),
                description: format!("does {name}"),
                license: "MIT".into(),
                ..Skill::default()
            };
            let (files, problems) = self.read(&self.all);
            let skills = self.skills.lock().unwrap().iter().map(skill).collect();
            Box::pin(async { Loaded { files, skills, problems, ..Loaded::default() } })
        }

        fn nested<'a>(&'a self, paths: &'a [String]) -> InstructionsFuture<'a, Loaded> {
            let (mut files, mut problems) = self.read(&self.below);
            let is_on_way = |file: &str| {
                let folder = file.trim_end_matches("AGENTS.md");
                paths.iter().any(|path| path.starts_with(folder))
            };
            files.retain(|file| is_on_way(&file.path));
            problems.retain(|wrong| is_on_way(&wrong.path));
            Box::pin(async { Loaded { files, problems, ..Loaded::default() } })
        }

        fn skill<'a>(&'a self, name: &'a str) -> InstructionsFuture<'a, Result<SkillText, SkillError>> {
            let body = format!("How to {name}.");
            Box::pin(async { Ok(SkillText { path: "/s/SKILL.md".into(), body, ..SkillText::default() }) })
        }
    }

    /// A model that stores its requests, calls the tools of the last user message in the form `TOOL ARGUMENTS`, and then answers.
    #[derive(Default)]
    struct Calls(Mutex<Vec<Request>>);

    impl ChatModel for Calls {
        fn name(&self) -> &str {
            "calls"
        }

        fn stream(&self, request: Request) -> ResponseStream<'_> {
            let last = request.messages.iter().rfind(|message| !message.synthetic).cloned().unwrap();
            if last.content.contains("<conversation>") {
                return text("We talked.");
            }
            let number = self.0.lock().unwrap().len();
            self.0.lock().unwrap().push(request);
            match last
                .content
                .split_once(' ')
                .filter(|_| last.role == Role::User && last.content.contains('{'))
            {
                Some((tool, arguments)) => Box::pin(stream::iter([
                    Ok(Delta::ToolCall {
                        index: 0,
                        id: Some(format!("c{number}")),
                        name: Some(tool.to_owned()),
                        arguments: arguments.to_owned(),
                    }),
                    Ok(Delta::Finish(FinishReason::ToolCalls)),
                ])),
                None => text("ok"),
            }
        }
    }

    fn text(text: &str) -> ResponseStream<'static> {
        Box::pin(stream::iter([Ok(Delta::Text(text.to_owned())), Ok(Delta::Finish(FinishReason::Stop))]))
    }

    impl Calls {
        fn last(&self) -> Vec<String> {
            let requests = self.0.lock().unwrap();
            requests.last().unwrap().messages.iter().map(|message| message.content.clone()).collect()
        }

        fn tools(&self) -> Vec<ToolSpec> {
            self.0.lock().unwrap().last().unwrap().tools.iter().cloned().collect()
        }
    }

    /// A tool with a path below `/w`.
    struct Touch(ToolSpec);

    impl Tool for Touch {
        fn spec(&self) -> &ToolSpec {
            &self.0
        }

        fn subject(&self, argument: &str, args: &Value) -> Option<Subject> {
            let below = args[argument].as_str()?.to_owned();
            Some(Subject::Path { root: "/w".into(), below, whole: false, any_case: false })
        }

        fn call(&self, _: Value, _: ToolCx) -> ToolFuture<'_> {
            Box::pin(async { Ok("touched".into()) })
        }
    }

    fn builder(model: &Arc<Calls>, store: &Arc<MemoryCheckpointer>) -> AgentBuilder {
        let parameters = json!({"type": "object", "properties": {"path": {"type": "string"}}});
        let spec = ToolSpec { name: "touch".into(), description: String::new(), parameters };
        let mut config = ReactConfig { system_prompt: "Be brief.".into(), ..ReactConfig::default() };
        config.context.keep = Keep::recommended();
        let agent = Agent::builder(model.clone()).config(config).counter(Estimate);
        agent.checkpointer(store.clone()).tool(Touch(spec)).approve_all()
    }

    fn agent(model: &Arc<Calls>, store: &Arc<MemoryCheckpointer>, files: &Arc<Files>) -> Agent {
        builder(model, store).instructions(files.clone()).build().unwrap()
    }

    #[tokio::test]
    async fn instructions_are_in_the_system_prompt_and_changes_are_added_to_the_conversation() {
        let (model, store, files) =
            (Arc::new(Calls::default()), Arc::new(MemoryCheckpointer::new()), Arc::new(Files::default()));
        *files.all.lock().unwrap() = vec![("/AGENTS.md", "root".into()), ("/w/AGENTS.md", "here".into())];
        let agent = agent(&model, &store, &files);
        let thread = agent.thread("t");
        thread.ask("hi").await.unwrap();
        let system = model.last()[0].clone();
        let enclosed = "<instructions path=\"/AGENTS.md\">\nroot\n</instructions>\n\n<instructions path=\"/w/AGENTS.md\">\nhere\n</instructions>";
        assert!(
            system.starts_with("Be brief.\n\n# Instructions\n") && system.ends_with(enclosed),
            "{system}"
        );
        *files.all.lock().unwrap() = vec![("/w/AGENTS.md", "new".into())];
        for nth in 0..2 {
            thread.ask("on").await.unwrap();
            let sent = model.last();
            assert_eq!((sent[0] == system, sent.len()), (true, 6 + 2 * nth), "{sent:?}");
            assert_eq!(sent[4], "The file /AGENTS.md was removed. Its instructions are not valid any more.");
            assert!(
                sent[5].ends_with(
                    "valid from now on:\n<instructions path=\"/w/AGENTS.md\">\nnew\n</instructions>"
                ),
                "{sent:?}"
            );
        }
        assert!(thread.replay().run().await.unwrap().divergence.is_none());
        // A fork knows what its branch has read.
        let begin = thread
            .history()
            .checkpoints()
            .await
            .unwrap()
            .into_iter()
            .rev()
            .find(|at| at.control.is_finished());
        let fork = agent.thread("t").at(begin.unwrap().id);
        fork.ask("other").await.unwrap();
        assert_eq!(model.last().iter().filter(|text| text.contains("valid from now on")).count(), 1);
        // An agent without instructions forgets them; a replay of the turns before has them.
        builder(&model, &store).build().unwrap().thread("t").ask("on").await.unwrap();
        assert_eq!(model.last()[0], "Be brief.");
        assert!(thread.replay().run().await.unwrap().divergence.is_none());
    }

    #[tokio::test]
    async fn a_folder_below_is_read_once_when_a_tool_touches_it() {
        let (model, store, files) =
            (Arc::new(Calls::default()), Arc::new(MemoryCheckpointer::new()), Arc::new(Files::default()));
        *files.below.lock().unwrap() =
            vec![("/w/a/AGENTS.md", "in a".into()), ("/w/b/AGENTS.md", "in b".into())];
        let agent = agent(&model, &store, &files);
        let thread = agent.thread("t");
        let count = |what: &str| model.last().iter().filter(|text| text.contains(what)).count();
        thread.ask("touch {\"path\":\"a/x\"}").await.unwrap();
        let sent = model.last();
        assert_eq!((sent.len(), sent[3].as_str()), (5, "touched"), "{sent:?}");
        assert!(
            sent[4].ends_with("<instructions path=\"/w/a/AGENTS.md\">\nin a\n</instructions>"),
            "{sent:?}"
        );
        thread.ask("touch {\"path\":\"a/y\"}").await.unwrap();
        assert_eq!((count("in a"), count("in b")), (1, 0));
        files.below.lock().unwrap()[0].1 = "changed".into();
        thread.ask("on").await.unwrap();
        assert_eq!((count("in a"), count("changed\n")), (1, 1));
        assert!(thread.replay().run().await.unwrap().divergence.is_none());
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_read_now_still_counts() {
        let (model, store, files) =
            (Arc::new(Calls::default()), Arc::new(MemoryCheckpointer::new()), Arc::new(Files::default()));
        *files.all.lock().unwrap() = vec![("/w/AGENTS.md", "here".into())];
        *files.below.lock().unwrap() = vec![("/w/a/AGENTS.md", "in a".into())];
        let agent = agent(&model, &store, &files);
        let thread = agent.thread("t");
        thread.ask("touch {\"path\":\"a/x\"}").await.unwrap();
        *files.unreadable.lock().unwrap() = vec!["/w/AGENTS.md", "/w/a/AGENTS.md"];
        thread.ask("on").await.unwrap();
        let count = |what: &str| model.last().iter().filter(|text| text.contains(what)).count();
        assert_eq!((count("was removed"), count("in a")), (0, 1));
        let known = agent.graph().thread("t").state().await.unwrap().values.guidance;
        assert_eq!(known.paths(), ["/w/AGENTS.md", "/w/a/AGENTS.md"]);
        files.unreadable.lock().unwrap().clear();
        files.all.lock().unwrap().clear();
        thread.ask("on").await.unwrap();
        assert_eq!(count("The file /w/AGENTS.md was removed."), 1);
    }

    #[tokio::test]
    async fn a_compaction_keeps_what_replaces_the_system_prompt_without_a_share() {
        let (model, store, files) =
            (Arc::new(Calls::default()), Arc::new(MemoryCheckpointer::new()), Arc::new(Files::default()));
        *files.all.lock().unwrap() = vec![("/AGENTS.md", "root".into()), ("/w/AGENTS.md", "here".into())];
        *files.below.lock().unwrap() = vec![("/w/a/AGENTS.md", "in a".into())];
        let mut config = ReactConfig::default();
        config.context.window = Some(6_000);
        config.context.budget = ContextBudget::Tokens(1_500);
        config.context.keep = Keep { results_share: 0.0, ..Keep::recommended() };
        let agent = builder(&model, &store).config(config).instructions(files.clone()).build().unwrap();
        let thread = agent.thread("t");
        thread.ask("touch {\"path\":\"a/x\"}").await.unwrap();
        *files.all.lock().unwrap() = vec![("/w/AGENTS.md", "new".into())];
        for _ in 0..6 {
            thread.ask(&"filler ".repeat(500)).await.unwrap();
        }
        let sent = model.last();
        let carried = sent.iter().find(|text| text.starts_with("<kept>")).unwrap();
        assert!(carried.contains("/AGENTS.md was removed") && carried.contains("\nnew\n"), "{carried}");
        assert!(!carried.contains("in a"), "{carried}");
    }

    #[tokio::test]
    async fn all_instructions_have_a_bound_and_say_so() {
        let (model, store, files) =
            (Arc::new(Calls::default()), Arc::new(MemoryCheckpointer::new()), Arc::new(Files::default()));
        *files.all.lock().unwrap() =
            vec![("/AGENTS.md", "a".repeat(30 << 10)), ("/w/AGENTS.md", "b".repeat(30 << 10))];
        *files.below.lock().unwrap() = vec![("/w/a/AGENTS.md", "c".repeat(100))];
        agent(&model, &store, &files).thread("t").ask("touch {\"path\":\"a/x\"}").await.unwrap();
        let sent = model.last();
        let of = |letter| sent[0].matches(letter).count();
        assert!(of('a') > (30 << 10) && of('b') < (2 << 10) + 100, "{} {}", of('a'), of('b'));
        assert_eq!(sent[0].matches("[The rest is left out").count(), 1);
        assert!(sent[4].contains("[The rest is left out") && !sent[4].contains("ccc"), "{}", sent[4]);
    }

    #[tokio::test]
    async fn skills_are_listed_and_loaded_once_by_the_tool_or_by_name() {
        let (model, store, files) =
            (Arc::new(Calls::default()), Arc::new(MemoryCheckpointer::new()), Arc::new(Files::default()));
        let agent = agent(&model, &store, &files);
        let thread = agent.thread("t");
        thread.ask("hi").await.unwrap();
        assert_eq!(model.tools().len(), 1, "no skill, no tool");
        *files.skills.lock().unwrap() = vec!["release", "review"];
        thread.ask("Use $release").await.unwrap();
        let tools = model.tools();
        assert_eq!(tools[0].parameters["properties"]["name"]["enum"], json!(["release", "review"]));
        let known = agent.graph().thread("t").state().await.unwrap().values.guidance;
        assert_eq!((known.skills.len(), known.skills[0].license.as_str()), (2, ""));
        let sent = model.last();
        assert!(
            sent[0].contains("\n- release: does release\n- review: does review\n</available_skills>"),
            "{sent:?}"
        );
        let body = "<skill_content name=\"release\">\nFile: /s/SKILL.md\n\nHow to release.\n</skill_content>";
        assert_eq!(sent.last().unwrap(), body);
        for prompt in ["skill {\"name\":\"release\"}", "again $release"] {
            thread.ask(prompt).await.unwrap();
            assert_eq!(model.last().iter().filter(|text| *text == body).count(), 1, "{prompt}");
        }
        assert!(
            model.last().iter().any(|text| text.starts_with("This skill is in the conversation already."))
        );
        thread.ask("skill {\"name\":\"review\"}").await.unwrap();
        assert!(model.last().iter().any(|text| text.contains("How to review.")));
        thread.ask("skill {\"name\":\"other\"}").await.unwrap();
        assert!(model.last().iter().any(|text| text.contains("Error: invalid args for 'skill'")));
        assert!(thread.replay().run().await.unwrap().divergence.is_none());
        // A program's own tool of the name stays.
        let spec = ToolSpec {
            name: "skill".into(),
            description: "mine".into(),
            parameters: json!({"type": "object"}),
        };
        let own = builder(&model, &store).tool(Touch(spec)).instructions(files.clone()).build().unwrap();
        own.thread("u").ask("hi").await.unwrap();
        assert!(model.tools().iter().any(|tool| tool.description == "mine"));
        assert_eq!(model.last()[0], "Be brief.");
    }

    #[tokio::test]
    async fn a_compaction_keeps_what_was_added() {
        let (model, store, files) =
            (Arc::new(Calls::default()), Arc::new(MemoryCheckpointer::new()), Arc::new(Files::default()));
        *files.all.lock().unwrap() = vec![("/AGENTS.md", "root".into())];
        *files.below.lock().unwrap() = vec![("/w/a/AGENTS.md", "in </kept> a".into())];
        *files.skills.lock().unwrap() = vec!["release", "review"];
        let mut config = ReactConfig::default();
        config.context.window = Some(6_000);
        config.context.budget = ContextBudget::Tokens(1_500);
        config.context.keep = Keep::recommended();
        let agent = builder(&model, &store).config(config).instructions(files.clone()).build().unwrap();
        let thread = agent.thread("t");
        thread.ask("touch {\"path\":\"a/x\"}").await.unwrap();
        thread.ask("Use $release").await.unwrap();
        thread.ask("skill {\"name\":\"review\"}").await.unwrap();
        for _ in 0..6 {
            thread.ask(&"filler ".repeat(500)).await.unwrap();
        }
        let sent = model.last();
        let kept = sent.iter().find(|text| text.starts_with("<kept>")).unwrap();
        for part in ["in <\\/kept> a", "How to release.", "How to review."] {
            assert_eq!(sent.concat().matches(part).count(), 1, "{part}: {sent:?}");
            assert!(kept.contains(part), "{part}: {kept}");
        }
        assert!(sent[0].contains("root") && sent.len() < 8, "{sent:?}");
        thread.ask("skill {\"name\":\"review\"}").await.unwrap();
        assert_eq!(model.last().concat().matches("How to review.").count(), 1);
        let state = agent.graph().thread("t").state().await.unwrap().values;
        assert!(
            state.context.summary.is_some() && state.guidance.added.iter().all(|added| added.text.is_empty())
        );
    }

    #[tokio::test]
    async fn an_untrusted_thread_reads_its_instructions_anew() {
        let (model, store, files) =
            (Arc::new(Calls::default()), Arc::new(MemoryCheckpointer::new()), Arc::new(Files::default()));
        *files.all.lock().unwrap() = vec![("/AGENTS.md", "mine".into())];
        let thread = agent(&model, &store, &files);
        let forged =
            InstructionFile { path: "/AGENTS.md".into(), text: "forged".into(), hash: "hash of mine".into() };
        let forged = Guidance::default().changed(|data| data.files = vec![forged]);
        thread.thread("t").ask("hi").await.unwrap();
        thread.graph().thread("t").update(AgentState::update().guidance(forged)).await.unwrap();
        let rereading =
            builder(&model, &store).instructions(files.clone()).reread_instructions().build().unwrap();
        rereading.thread("t").ask("on").await.unwrap();
        assert!(
            model.last()[0].contains("mine") && !model.last()[0].contains("forged"),
            "{:?}",
            model.last()
        );
    }
}
