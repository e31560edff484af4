import { untrack } from 'svelte';

/**
 * A value of the server that depends on other state. While a new one is read the old one stays, and `isDim` is set once that takes
 * longer than people notice.
 */
export class Resource<T> {
  value = $state.raw<T | null>(null);
  error = $state('');
  isDim = $state(false);
  private turn = 0;

  /** `load` reads what it depends on before its first `await`; `null` means that there is nothing to read. */
  constructor(load: (signal: AbortSignal) => Promise<T> | null) {
    $effect(() => {
      const controller = new AbortController();
      const loading = load(controller.signal);
      untrack(() => void this.settle(loading));
      return () => controller.abort();
    });
  }

  private async settle(loading: Promise<T> | null) {
    const turn = ++this.turn;
    if (!loading) {
      this.value = null;
      return;
    }
    const timer = setTimeout(() => (this.isDim = turn === this.turn), 150);
    try {
      const value = await loading;
      if (turn === this.turn) {
        this.value = value;
        this.error = '';
      }
    } catch (error) {
      const isOld = error instanceof DOMException && error.name === 'AbortError';
      if (turn === this.turn && !isOld) this.error = error instanceof Error ? error.message : `${error}`;
    }
    clearTimeout(timer);
    if (turn === this.turn) this.isDim = false;
  }
}
