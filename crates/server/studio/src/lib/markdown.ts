/** The part of Markdown that models write, as data; no HTML is made of a message. */

export type Inline = { kind: 'text' | 'code' | 'strong' | 'em'; text: string } | { kind: 'link'; text: string; href: string };

export type Block =
  | { kind: 'paragraph'; inlines: Inline[] }
  | { kind: 'heading'; level: number; inlines: Inline[] }
  | { kind: 'code'; language: string; text: string }
  | { kind: 'quote'; inlines: Inline[] }
  | { kind: 'list'; isOrdered: boolean; start: number; items: { depth: number; inlines: Inline[] }[] }
  | { kind: 'table'; head: Inline[][]; rows: Inline[][][] }
  | { kind: 'rule' };

const INLINE = /(`+)(.+?)\1|\*\*(.+?)\*\*|__(.+?)__|\*(?=\S)(.+?)\*|\[([^\]]+)\]\((https?:\/\/[^\s)]+)\)/g;

function inlines(text: string): Inline[] {
  const found: Inline[] = [];
  let end = 0;
  for (const match of text.matchAll(INLINE)) {
    if (match.index > end) found.push({ kind: 'text', text: text.slice(end, match.index) });
    const [whole, , code, strong, strong2, em, label, href] = match;
    if (code !== undefined) found.push({ kind: 'code', text: code.trim() });
    else if (href !== undefined) found.push({ kind: 'link', text: label ?? href, href });
    else if (em !== undefined) found.push({ kind: 'em', text: em });
    else found.push({ kind: 'strong', text: strong ?? strong2 ?? '' });
    end = match.index + whole.length;
  }
  if (end < text.length) found.push({ kind: 'text', text: text.slice(end) });
  return found;
}

const ITEM = /^(\s*)([-*+]|(\d{1,9})[.)])\s+(.*)$/;
const RULE = /^\s*([-*_])(\s*\1){2,}\s*$/;

function cells(line: string): Inline[][] {
  return line.trim().replace(/^\||\|$/g, '').split('|').map((cell) => inlines(cell.trim()));
}

export function parse(text: string): Block[] {
  const blocks: Block[] = [];
  const lines = text.split('\n');
  let paragraph: string[] = [];
  const flush = () => {
    if (paragraph.length) blocks.push({ kind: 'paragraph', inlines: inlines(paragraph.join('\n')) });
    paragraph = [];
  };
  for (let at = 0; at < lines.length; at += 1) {
    const line = lines[at] ?? '';
    const fence = /^\s*(```+|~~~+)\s*(\S*)/.exec(line);
    const heading = /^(#{1,6})\s+(.*)$/.exec(line);
    const item = ITEM.exec(line);
    if (fence) {
      flush();
      const code: string[] = [];
      for (at += 1; at < lines.length && !lines[at]?.trim().startsWith(fence[1] ?? '```'); at += 1) code.push(lines[at] ?? '');
      blocks.push({ kind: 'code', language: fence[2] ?? '', text: code.join('\n') });
    } else if (heading) {
      flush();
      blocks.push({ kind: 'heading', level: heading[1]?.length ?? 1, inlines: inlines(heading[2] ?? '') });
    } else if (RULE.test(line)) {
      flush();
      blocks.push({ kind: 'rule' });
    } else if (item) {
      flush();
      const isOrdered = item[3] !== undefined;
      const entry = { depth: Math.floor((item[1]?.length ?? 0) / 2), inlines: inlines(item[4] ?? '') };
      const last = blocks.at(-1);
      if (last?.kind === 'list' && (last.isOrdered === isOrdered || entry.depth > 0)) last.items.push(entry);
      else blocks.push({ kind: 'list', isOrdered, start: Number(item[3] ?? 1), items: [entry] });
    } else if (line.startsWith('>')) {
      flush();
      blocks.push({ kind: 'quote', inlines: inlines(line.replace(/^>\s?/, '')) });
    } else if (line.includes('|') && /^[\s|:-]*-[\s|:-]*$/.test(lines[at + 1] ?? '')) {
      flush();
      const rows: Inline[][][] = [];
      const head = cells(line);
      for (at += 2; at < lines.length && lines[at]?.includes('|'); at += 1) rows.push(cells(lines[at] ?? ''));
      at -= 1;
      blocks.push({ kind: 'table', head, rows });
    } else if (line.trim()) paragraph.push(line);
    else flush();
  }
  flush();
  return blocks;
}
