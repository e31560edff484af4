import type { GraphView, HeadEvent, MessageEvent, Overview, ThreadView, Window, WindowRow } from './api';
import { Failure, get, path } from './client';
import { follow } from './live.svelte';

/** A checkpoint in the list. */
export interface Row {
  id: number;
  parent: number | null;
  step: number;
  source: string;
  createdMs: number;
  next: string[];
  /** The nodes that made it. */
  ran: string[];
  /** The time since its parent: work of a superstep, a pause before an input. */
  ms: number;
  lane: number;
  /** The checkpoint that it follows; a fork is a copy of its parent. */
  base: number | null;
}

/** A piece of a message that a run sends. */
export interface LiveMessage {
  id: string;
  node: string;
  text: string;
  reasoning: string;
}

const WINDOW = 100;

/** A thread as the page has it: its head, all its checkpoints in columns, and the details of those that were seen. */
export class ThreadModel {
  view = $state.raw<ThreadView | null>(null);
  graph = $state.raw<GraphView | null>(null);
  rows = $state.raw<Row[]>([]);
  details = $state.raw(new Map<number, WindowRow>());
  isCut = $state(false);
  error = $state('');
  isLoading = $state(true);
  messages = $state.raw<LiveMessage[]>([]);
  private positions = $state.raw(new Map<number, number>());
  /** The checkpoints that follow each one, oldest first. */
  private following = $state.raw(new Map<number, number[]>());
  private asked = new Set<number>();
  private stop: () => void;
  private overview: Overview | null = null;
  private reading: Promise<void> | null = null;
  private isStale = false;
  private isClosed = false;

  constructor(readonly id: string) {
    const handlers: Record<string, (data: any) => void> = {
      head: (event: HeadEvent) => this.onHead(event),
      message: (event: MessageEvent) => this.onMessage(event),
      lagged: () => void this.refresh(),
    };
    this.stop = follow('events', { thread: id }, (event, data) => handlers[event]?.(data));
  }

  close() {
    this.isClosed = true;
    this.stop();
  }

  get isRunning(): boolean {
    return this.view?.line.status === 'running';
  }

  get head(): number {
    return this.view?.line.head ?? 0;
  }

  row(id: number | undefined): Row | undefined {
    const position = id === undefined ? undefined : this.positions.get(id);
    return position === undefined ? undefined : this.rows[position];
  }

  position(id: number): number {
    return this.positions.get(id) ?? -1;
  }

  /** The checkpoints that follow the same one as this, with itself, oldest first. */
  versions(id: number): number[] {
    const base = this.row(id)?.base;
    return (base ? this.following.get(base) : undefined) ?? [id];
  }

  /** The newest checkpoint to which one leads. */
  newestAfter(id: number): number {
    const line = new Set([id]);
    let newest = id;
    for (let at = this.position(id) - 1; at >= 0; at -= 1) {
      const row = this.rows[at]!;
      if (row.parent === null || !line.has(row.parent)) continue;
      line.add(row.id);
      newest = row.id;
    }
    return newest;
  }

  /** Reads everything again. */
  reload(): Promise<void> {
    this.overview = null;
    return this.refresh();
  }

  /** Reads what is new. While that is under way another call makes it read once more. */
  refresh(): Promise<void> {
    this.isStale = true;
    this.reading ??= this.readAll().finally(() => (this.reading = null));
    return this.reading;
  }

  private async readAll() {
    while (this.isStale) {
      this.isStale = false;
      await this.read();
    }
  }

  /** Reads the head, and the checkpoints since the newest that is known. */
  private async read() {
    try {
      const overview = (after: number) => get<Overview>(path('threads', this.id, 'overview'), { after });
      const whole = this.overview ? null : overview(0);
      // Its error is that of the head, or is reported below.
      whole?.catch(() => {});
      const view = await get<ThreadView>(path('threads', this.id));
      // The head is shown while the rest is read.
      this.view ??= view;
      const graph = this.graph ? null : view.line.graph;
      const drawn = graph && get<GraphView>(path('graphs', graph)).then((found) => (this.graph = found));
      const newest = this.overview?.ids[0] ?? 0;
      // A thread that was deleted and begun again has older numbers.
      const after = view.line.head >= newest ? newest : 0;
      const isNewer = whole || view.line.head !== newest;
      const [more] = await Promise.all([isNewer && (whole ?? overview(after)), drawn]);
      if (more) {
        // The head has moved meanwhile.
        if (whole && (more.ids[0] ?? 0) < view.line.head) this.isStale = true;
        if (!after) {
          this.details = new Map();
          this.asked.clear();
        }
        this.overview = after && this.overview ? join(more, this.overview) : more;
        this.isCut = this.overview.is_cut;
        this.rows = rowsOf(this.overview);
        this.positions = new Map(this.rows.map((row, position) => [row.id, position]));
        this.following = followers(this.rows);
      }
      this.view = view;
      this.error = '';
    } catch (error) {
      this.error = error instanceof Error ? error.message : `${error}`;
      // The stream may have said what is new while the answer was lost.
      if (error instanceof Failure && error.status === 0 && !this.isClosed) setTimeout(() => void this.refresh(), 1_000);
    }
    this.isLoading = false;
  }

  /** Reads the details of the rows between two positions, if they are not there yet. */
  async see(first: number, last: number) {
    const ids = this.rows.slice(first, last + 1).map((row) => row.id);
    const windows = new Set(ids.filter((id) => !this.details.has(id)).map((id) => Math.floor(id / WINDOW)));
    for (const window of windows) {
      if (this.asked.has(window)) continue;
      this.asked.add(window);
      const from = Math.max(1, window * WINDOW);
      const to = window * WINDOW + WINDOW - 1;
      try {
        const { rows } = await get<Window>(path('threads', this.id, 'checkpoints'), { from, to });
        const details = new Map(this.details);
        for (const row of rows) details.set(row.id, row);
        this.details = details;
      } catch {
        // The list shows what it has; the window is read when it is seen again.
      }
      // The last window grows, and what failed is tried again.
      this.asked.delete(window);
    }
  }

  private onHead(event: HeadEvent) {
    const line = this.view?.line;
    if (event.status !== 'running') this.messages = [];
    const isKnown = line?.head === event.head && line.status === event.status && line.waits === event.waits;
    if (isKnown && line.next.join() === event.next.join()) return;
    void this.refresh();
  }

  private onMessage(event: MessageEvent) {
    const others = this.messages.filter((message) => message.id !== event.id);
    if (event.ended) {
      this.messages = others;
      return;
    }
    const known = this.messages.find((message) => message.id === event.id);
    const { id, node } = event;
    const text = (known?.text ?? '') + event.text;
    const reasoning = (known?.reasoning ?? '') + event.reasoning;
    this.messages = [...others, { id, node, text, reasoning }];
  }
}

function join(newer: Overview, older: Overview): Overview {
  const nodes = [...newer.nodes];
  const place = older.nodes.map((node) => {
    if (!nodes.includes(node)) nodes.push(node);
    return nodes.indexOf(node);
  });
  return {
    ids: newer.ids.concat(older.ids),
    parents: newer.parents.concat(older.parents),
    steps: newer.steps.concat(older.steps),
    sources: newer.sources.concat(older.sources),
    created_ms: newer.created_ms.concat(older.created_ms),
    next: newer.next.concat(older.next.map((next) => next.map((node) => place[node] ?? 0))),
    nodes,
    is_cut: older.is_cut,
  };
}

function rowsOf(overview: Overview): Row[] {
  const rows: Row[] = overview.ids.map((id, at) => ({
    id,
    parent: overview.parents[at] ? id - (overview.parents[at] ?? 0) : null,
    step: overview.steps[at] ?? 0,
    source: overview.sources[at] ?? '',
    createdMs: overview.created_ms[at] ?? 0,
    next: (overview.next[at] ?? []).map((node) => titleOf(overview.nodes[node] ?? '')),
    ran: [],
    ms: 0,
    lane: 0,
    base: null,
  }));
  const byId = new Map(rows.map((row) => [row.id, row]));
  // Parents are older than their children.
  for (let at = rows.length - 1; at >= 0; at -= 1) {
    const row = rows[at]!;
    const parent = row.parent === null ? undefined : byId.get(row.parent);
    if (!parent) continue;
    row.base = parent.source === 'fork' ? parent.base : parent.id;
    row.ms = row.createdMs - parent.createdMs;
    if (row.source === 'loop') row.ran = [...new Set(parent.next)];
  }
  lanes(rows, byId);
  return rows;
}

function followers(rows: Row[]): Map<number, number[]> {
  const following = new Map<number, number[]>();
  for (let at = rows.length - 1; at >= 0; at -= 1) {
    const { id, base, source } = rows[at]!;
    if (base === null || source === 'fork') continue;
    const others = following.get(base);
    if (others) others.push(id);
    else following.set(base, [id]);
  }
  return following;
}

/** Gives each branch a lane: 0 to that of the head, others the lowest one that is free between their fork and their end. */
function lanes(rows: Row[], byId: Map<number, Row>) {
  const known = new Set<number>();
  const taken: { lane: number; from: number; to: number }[] = [];
  for (const leaf of rows) {
    if (known.has(leaf.id)) continue;
    const branch: Row[] = [];
    let row: Row | undefined = leaf;
    while (row && !known.has(row.id)) {
      known.add(row.id);
      branch.push(row);
      row = row.parent === null ? undefined : byId.get(row.parent);
    }
    const from = row?.id ?? branch[branch.length - 1]?.id ?? 0;
    const isFree = (lane: number) =>
      !taken.some((other) => other.lane === lane && other.from < leaf.id && other.to > from);
    let lane = 0;
    while (!isFree(lane)) lane += 1;
    taken.push({ lane, from, to: leaf.id });
    for (const each of branch) each.lane = lane;
  }
}

/** The checkpoints on the path to one, newest first. */
export function pathTo(model: ThreadModel, id: number | undefined): Row[] {
  const path: Row[] = [];
  for (let row = model.row(id); row; row = row.parent === null ? undefined : model.row(row.parent)) path.push(row);
  return path;
}

/** The name of a node as the picture has it. */
export function titleOf(node: string): string {
  return node === '__start__' ? 'START' : node === '__end__' ? 'END' : node;
}

const COLOURS = 6;

/** The colour of a node: the same in the picture, the list and the map. */
export function colourOf(graph: GraphView | null, node: string): string {
  const at = graph?.nodes.findIndex((known) => known.label === node) ?? -1;
  return at < 0 ? 'var(--muted)' : `var(--c${(at + COLOURS - 1) % COLOURS})`;
}
