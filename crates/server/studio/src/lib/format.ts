/** Numbers and times for people. */

export function duration(ms: number): string {
  if (ms < 1_000) return `${Math.max(0, Math.round(ms))} ms`;
  if (ms < 9_950) return `${(ms / 1_000).toFixed(1)} s`;
  if (ms < 59_500) return `${Math.round(ms / 1_000)} s`;
  if (ms < 3_600_000) return `${Math.round(ms / 60_000)} min`;
  if (ms < 86_400_000) return `${Math.round(ms / 3_600_000)} h`;
  return `${Math.round(ms / 86_400_000)} d`;
}

export function ago(ms: number, now: number): string {
  const passed = now - ms;
  return passed < 5_000 ? 'now' : `${duration(passed)} ago`;
}

export function clock(ms: number): string {
  return new Date(ms).toLocaleTimeString(undefined, { hour: '2-digit', minute: '2-digit', second: '2-digit' });
}

export function moment(ms: number): string {
  return new Date(ms).toLocaleString();
}

export function size(bytes: number): string {
  if (bytes < 1_000) return `${bytes} B`;
  if (bytes < 1_000_000) return `${(bytes / 1_000).toFixed(bytes < 10_000 ? 1 : 0)} kB`;
  return `${(bytes / 1_000_000).toFixed(1)} MB`;
}

export function short(count: number): string {
  return count < 1_000 ? `${count}` : `${(count / 1_000).toFixed(count < 10_000 ? 1 : 0)}k`;
}

export function plural(count: number, one: string, several = `${one}s`): string {
  return `${count.toLocaleString()} ${count === 1 ? one : several}`;
}

/** JSON with indentation, if it is complete. */
export function pretty(json: string): string {
  try {
    return JSON.stringify(JSON.parse(json), null, 2);
  } catch {
    return json;
  }
}

/** The line of the first error in a text that is not JSON, which not all browsers say. */
export function errorLine(text: string): number {
  const lines = text.split('\n');
  let before = '';
  for (const [nth, line] of lines.entries()) {
    before += `${line}\n`;
    try {
      JSON.parse(before);
    } catch (error) {
      const message = error instanceof Error ? error.message : '';
      const isEnd = /end of|EOF/i.test(message) || Number(/position (\d+)/.exec(message)?.[1]) >= before.length;
      if (!isEnd) return nth + 1;
    }
  }
  return lines.length;
}
