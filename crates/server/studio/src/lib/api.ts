// Generated from `src/studio/types.rs` by a test of the crate.

export type Info = { version: string, read_only: boolean, graphs: Array<string>, };

export type ThreadList = { threads: Array<ThreadLine>, 
/**
 * The number of threads that match.
 */
total: number, 
/**
 * The number of questions that wait, on all threads.
 */
waiting: number, };

export type ThreadLine = { id: string, 
/**
 * The name of the graph on this server; null if the server does not have it.
 */
graph: string | null, status: Status, 
/**
 * The text of the first input.
 */
title: string, head: number, step: number, next: Array<string>, 
/**
 * The number of questions that wait.
 */
waits: number, error: string | null, updated_ms: number, };

export type Status = "running" | "waits" | "failed" | "paused" | "done" | "damaged" | "empty";

export type GraphView = { name: string, version: string | null, width: number, height: number, nodes: Array<NodeView>, arrows: Array<ArrowView>, channels: Array<ChannelInfo>, input_schema: unknown, 
/**
 * Runs read messages that are sent meanwhile, and files that they change can be restored.
 */
has_actions: boolean, };

export type NodeView = { label: string, is_round: boolean, x: number, y: number, width: number, height: number, };

export type ArrowView = { from: number, to: number, line: string, head: string, is_dashed: boolean, labels: Array<LabelView>, };

export type LabelView = { text: string, x: number, y: number, };

export type ChannelInfo = { name: string, 
/**
 * One write in each superstep.
 */
exclusive: boolean, ephemeral: boolean, untracked: boolean, };

export type ThreadView = { line: ThreadLine, 
/**
 * The number of checkpoints.
 */
checkpoints: number, questions: Array<QuestionView>, 
/**
 * The graph that stored the thread.
 */
stored_by: string | null, };

export type Overview = { ids: Array<number>, 
/**
 * The distance to the parent, 0 for none.
 */
parents: Array<number>, steps: Array<number>, sources: Array<string>, 
/**
 * UTC milliseconds.
 */
created_ms: Array<number>, 
/**
 * The pending nodes of each, as positions in `nodes`.
 */
next: Array<Array<number>>, nodes: Array<string>, 
/**
 * `true` if older checkpoints are left out.
 */
is_cut: boolean, };

export type Window = { rows: Array<WindowRow>, };

export type WindowRow = { id: number, wrote: Array<string>, bytes: number, tokens: Tokens | null, 
/**
 * The text of an input.
 */
title: string | null, error: string | null, };

export type Tokens = { input: number, output: number, };

export type CheckpointView = { id: number, parent: number | null, parent_pruned: boolean, source: string, step: number, created_ms: number, next: Array<string>, metadata: Record<string, unknown>, channels: Array<Entry>, tasks: Array<TaskView>, 
/**
 * The updates that made it from its parent.
 */
wrote: Array<WriteView>, has_messages: boolean, };

export type TaskView = { slot: number, node: string, status: TaskStatus, attempts: number, error: string | null, questions: Array<QuestionView>, answered: Array<string>, 
/**
 * The names of its effects with stored results.
 */
effects: Array<string>, 
/**
 * The text of its update, if it is finished.
 */
result: string | null, item: string | null, 
/**
 * The paths of the graphs that it called.
 */
subgraphs: Array<string>, };

export type SubgraphView = { checkpoint: number, step: number, next: Array<string>, created_ms: number, channels: Array<Entry>, 
/**
 * The paths of the graphs that its tasks called.
 */
subgraphs: Array<string>, };

export type TaskStatus = "done" | "waits" | "failed" | "cancelled" | "started" | "pending";

export type WriteView = { node: string, channels: Array<string>, bytes: number, };

export type QuestionView = { id: string, node: string, key: string, question: unknown, schema: unknown, };

export type Entry = { key: string, kind: JsonKind, 
/**
 * The size of its JSON.
 */
bytes: number, 
/**
 * The number of entries of a list or an object, of characters of a text.
 */
count: number, preview: string, 
/**
 * The preview is not the whole value.
 */
is_cut: boolean, };

export type JsonKind = "null" | "boolean" | "number" | "text" | "list" | "object";

export type Part = { value: Entry, entries: Array<Entry>, text: string | null, offset: number, 
/**
 * The offset of the next part; null at the end.
 */
next: number | null, };

export type Changes = { against: number | null, channels: Array<ChannelChange>, unchanged: Array<string>, };

export type ChannelChange = { channel: string, 
/**
 * The change in short, such as `+1 of 9`.
 */
summary: string, changes: Array<Change>, 
/**
 * Changes that are left out.
 */
more: number, };

export type Change = { 
/**
 * The place of the value in the channel, as a JSON pointer.
 */
pointer: string, kind: ChangeKind, before: string | null, after: string | null, 
/**
 * The lines of a text, instead of both.
 */
lines: Array<DiffLine>, };

export type ChangeKind = "added" | "removed" | "changed";

export type DiffLine = { 
/**
 * `-`, `+`, a blank, or `~` for lines that are left out.
 */
sign: string, text: string, };

export type MessagePage = { total: number, 
/**
 * The position of the first message.
 */
first: number, messages: Array<MessageView>, };

export type MessageView = { id: string, role: string, content: string, is_cut: boolean, reasoning: string, calls: Array<CallView>, 
/**
 * The call that it answers.
 */
call: string | null, failed: boolean, interrupted: boolean, 
/**
 * The checkpoint with which it came; null if that is not among the last ones.
 */
from: number | null, };

export type CallView = { id: string, name: string, arguments: string, };

export type Inbox = { threads: Array<InboxThread>, };

export type InboxThread = { line: ThreadLine, questions: Array<QuestionView>, };

export type Accepted = { 
/**
 * The new checkpoint; null for a run.
 */
checkpoint: number | null, thread: string, };

export type Pruned = { pruned: number, left: number, };

export type Reverted = { files: Array<string>, };

export type CaseFile = { name: string, text: string, };

export type CaseView = { thread: string, graph: string, replay: ReplayView, };

export type DryRun = { changes: Changes, next: Array<string>, };

export type Comparison = { changes: Changes, 
/**
 * The newest checkpoint on the paths to both, if they are of one thread.
 */
common: number | null, one: Array<PathStep>, other: Array<PathStep>, };

export type PathStep = { id: number, step: number, source: string, ran: Array<string>, created_ms: number, };

export type ReplayView = { 
/**
 * `true` if all was executed: none was taken as stored, skipped, or not reached.
 */
is_whole: boolean, same: number, taken: number, skipped: number, left: number, fork: number | null, divergence: DivergenceView | null, };

export type DivergenceView = { 
/**
 * The whole in words.
 */
text: string, checkpoint: number, step: number, node: string, at: string, kind: string, place: string, recorded: string, now: string, changes: Array<string>, };

export type HeadEvent = { thread: string, head: number, status: Status, next: Array<string>, waits: number, };

export type MessageEvent = { id: string, node: string, text: string, reasoning: string, 
/**
 * The message is complete, or its pieces are void.
 */
ended: boolean, };
