// Generated from `src/studio/types.rs` by a test of the crate.

export type Info = { version: string, read_only: boolean, graphs: Array<string>, };

export type ThreadList = { threads: Array<ThreadLine>, total: number, waiting: number, };

export type ThreadLine = { id: string, graph: string | null, status: Status, title: string, head: number, step: number, next: Array<string>, waits: number, error: string | null, updated_ms: number, };

export type Status = "running" | "waits" | "failed" | "paused" | "done" | "damaged" | "empty";

export type GraphView = { name: string, version: string | null, width: number, height: number, nodes: Array<NodeView>, arrows: Array<ArrowView>, channels: Array<ChannelInfo>, input_schema: unknown, };

export type NodeView = { label: string, is_round: boolean, x: number, y: number, width: number, height: number, };

export type ArrowView = { from: number, to: number, line: string, head: string, is_dashed: boolean, labels: Array<LabelView>, };

export type LabelView = { text: string, x: number, y: number, };

export type ChannelInfo = { name: string, exclusive: boolean, ephemeral: boolean, untracked: boolean, };

export type ThreadView = { line: ThreadLine, checkpoints: number, questions: Array<QuestionView>, stored_by: string | null, };

export type Overview = { ids: Array<number>, parents: Array<number>, steps: Array<number>, sources: Array<string>, created_ms: Array<number>, next: Array<Array<number>>, nodes: Array<string>, is_cut: boolean, };

export type Window = { rows: Array<WindowRow>, };

export type WindowRow = { id: number, wrote: Array<string>, bytes: number, tokens: Tokens | null, title: string | null, error: string | null, };

export type Tokens = { input: number, output: number, };

export type CheckpointView = { id: number, parent: number | null, parent_pruned: boolean, source: string, step: number, created_ms: number, next: Array<string>, metadata: Record<string, unknown>, channels: Array<Entry>, tasks: Array<TaskView>, wrote: Array<WriteView>, has_messages: boolean, };

export type TaskView = { slot: number, node: string, status: TaskStatus, attempts: number, error: string | null, questions: Array<QuestionView>, answered: Array<string>, effects: Array<string>, result: string | null, item: string | null, subgraphs: Array<string>, };

export type TaskStatus = "done" | "waits" | "failed" | "cancelled" | "started" | "pending";

export type WriteView = { node: string, channels: Array<string>, bytes: number, };

export type QuestionView = { id: string, node: string, key: string, question: unknown, schema: unknown, };

export type Entry = { key: string, kind: JsonKind, bytes: number, count: number, preview: string, is_cut: boolean, };

export type JsonKind = "null" | "boolean" | "number" | "text" | "list" | "object";

export type Part = { value: Entry, entries: Array<Entry>, text: string | null, offset: number, next: number | null, };

export type Changes = { against: number | null, channels: Array<ChannelChange>, unchanged: Array<string>, };

export type ChannelChange = { channel: string, summary: string, changes: Array<Change>, more: number, };

export type Change = { pointer: string, kind: ChangeKind, before: string | null, after: string | null, lines: Array<DiffLine>, };

export type ChangeKind = "added" | "removed" | "changed";

export type DiffLine = { sign: string, text: string, };

export type MessagePage = { total: number, first: number, messages: Array<MessageView>, };

export type MessageView = { id: string, role: string, content: string, is_cut: boolean, reasoning: string, calls: Array<CallView>, call: string | null, failed: boolean, interrupted: boolean, };

export type CallView = { id: string, name: string, arguments: string, };

export type Inbox = { threads: Array<InboxThread>, };

export type InboxThread = { line: ThreadLine, questions: Array<QuestionView>, };

export type Accepted = { checkpoint: number | null, thread: string, };

export type DryRun = { changes: Changes, next: Array<string>, };

export type Comparison = { changes: Changes, common: number | null, one: Array<PathStep>, other: Array<PathStep>, };

export type PathStep = { id: number, step: number, source: string, ran: Array<string>, created_ms: number, };

export type ReplayView = { same: number, taken: number, skipped: number, left: number, fork: number | null, divergence: DivergenceView | null, };

export type DivergenceView = { text: string, checkpoint: number, step: number, node: string, at: string, kind: string, place: string, recorded: string, now: string, changes: Array<string>, };

export type HeadEvent = { thread: string, head: number, status: Status, next: Array<string>, waits: number, };

export type MessageEvent = { id: string, node: string, text: string, reasoning: string, ended: boolean, };
