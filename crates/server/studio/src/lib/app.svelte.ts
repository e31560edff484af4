import type { Info } from './api';

type Theme = 'auto' | 'light' | 'dark';

const THEME = 'superstep-theme';
const KEYS = 'superstep-keys';

/** What all pages share. */
class Application {
  info = $state.raw<Info>({ version: '', read_only: false, graphs: [] });
  waiting = $state(0);
  now = $state(Date.now());
  theme = $state<Theme>((localStorage.getItem(THEME) as Theme | null) ?? 'auto');
  hasKeys = $state(localStorage.getItem(KEYS) !== 'off');
  notes = $state<{ id: number; text: string; isBad: boolean }[]>([]);
  private last = 0;

  constructor() {
    this.showTheme();
    setInterval(() => (this.now = Date.now()), 1_000);
  }

  nextTheme() {
    this.theme = this.theme === 'auto' ? 'dark' : this.theme === 'dark' ? 'light' : 'auto';
    localStorage.setItem(THEME, this.theme);
    this.showTheme();
  }

  switchKeys() {
    this.hasKeys = !this.hasKeys;
    localStorage.setItem(KEYS, this.hasKeys ? 'on' : 'off');
  }

  note(text: string, isBad = false) {
    const id = ++this.last;
    this.notes.push({ id, text, isBad });
    setTimeout(() => this.drop(id), isBad ? 12_000 : 5_000);
  }

  fail(error: unknown) {
    this.note(error instanceof Error ? error.message : `${error}`, true);
  }

  drop(id: number) {
    this.notes = this.notes.filter((note) => note.id !== id);
  }

  private showTheme() {
    if (this.theme === 'auto') delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = this.theme;
  }
}

export const app = new Application();

/** Whether a key event belongs to a field, or to a shortcut of the browser. */
export function isTyping(event: KeyboardEvent): boolean {
  const target = event.target as HTMLElement;
  return (
    event.ctrlKey || event.metaKey || event.altKey ||
    ['INPUT', 'TEXTAREA', 'SELECT'].includes(target.tagName) || !!document.querySelector('dialog[open]')
  );
}
