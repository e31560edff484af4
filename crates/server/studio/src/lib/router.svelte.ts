/** The address of the page. Selection, tab and filters are in it, so that an address shows the same again. */

class Router {
  url = $state.raw(new URL(location.href));

  constructor() {
    addEventListener('popstate', () => (this.url = new URL(location.href)));
  }

  /** The parts of the path after `/studio`. */
  get parts(): string[] {
    return this.url.pathname.split('/').slice(2).filter(Boolean).map(decodeURIComponent);
  }

  get(name: string): string | undefined {
    return this.url.searchParams.get(name) ?? undefined;
  }

  go(to: string) {
    history.pushState(null, '', to);
    this.url = new URL(location.href);
  }

  /** Changes the query in place. */
  set(changes: Record<string, string | number | undefined>) {
    const url = new URL(this.url);
    for (const [name, value] of Object.entries(changes)) {
      if (value === undefined || value === '') url.searchParams.delete(name);
      else url.searchParams.set(name, `${value}`);
    }
    history.replaceState(null, '', url);
    this.url = url;
  }
}

export const router = new Router();

export function threadPath(thread: string, query: Record<string, string | number> = {}): string {
  const params = new URLSearchParams(Object.entries(query).map(([name, value]) => [name, `${value}`]));
  return `/studio/t/${encodeURIComponent(thread)}${params.size ? `?${params}` : ''}`;
}

/** Opens links of the page without loading it again. */
export function onLink(event: MouseEvent) {
  const link = (event.target as Element).closest('a');
  if (!link || event.button || event.metaKey || event.ctrlKey || event.shiftKey || link.target) return;
  if (link.origin !== location.origin || !link.pathname.startsWith('/studio')) return;
  event.preventDefault();
  router.go(link.href);
}
