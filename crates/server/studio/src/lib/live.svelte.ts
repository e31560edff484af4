import { headers, url, type Params } from './client';

/** The connection of this tab, for the sign in the top bar. */
export const connection = $state({ isLive: false, since: Date.now() });

/**
 * Follows a stream of the server until `stop` is called, and connects again when it ends. A hidden tab has no connection, because
 * browsers allow six of them.
 */
export function follow(to: string, params: Params, handle: (event: string, data: any) => void): () => void {
  let current: AbortController | undefined;
  let isOver = false;
  let wait = 500;
  let timer: ReturnType<typeof setTimeout> | undefined;

  async function connect() {
    clearTimeout(timer);
    if (isOver || document.hidden || current) return;
    const controller = (current = new AbortController());
    try {
      const response = await fetch(url(to, params), { headers: headers(), signal: controller.signal });
      if (response.ok && response.body) {
        wait = 500;
        setLive(true);
        await read(response.body, handle);
      }
    } catch {
      // The stream ended; it is opened again below.
    }
    current = undefined;
    if (isOver) return;
    if (!document.hidden) setLive(false);
    timer = setTimeout(connect, wait);
    wait = Math.min(wait * 2, 5_000);
  }

  function seen() {
    if (document.hidden) current?.abort();
    else void connect();
  }

  document.addEventListener('visibilitychange', seen);
  void connect();
  return () => {
    isOver = true;
    clearTimeout(timer);
    current?.abort();
    document.removeEventListener('visibilitychange', seen);
  };
}

function setLive(isLive: boolean) {
  if (connection.isLive !== isLive) {
    connection.isLive = isLive;
    connection.since = Date.now();
  }
}

async function read(body: ReadableStream<Uint8Array>, handle: (event: string, data: any) => void) {
  const reader = body.pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array>).getReader();
  let text = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += value;
    const frames = text.split('\r\n\r\n');
    text = frames.pop() ?? '';
    for (const frame of frames) {
      let event = '';
      let data = '';
      for (const line of frame.split('\r\n')) {
        if (line.startsWith('event: ')) event = line.slice(7);
        else if (line.startsWith('data: ')) data = line.slice(6);
      }
      if (event) handle(event, JSON.parse(data));
    }
  }
}
