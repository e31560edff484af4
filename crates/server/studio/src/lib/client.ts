/** Requests to the server. The page talks to nothing else. */

const BASE = '/studio/api/';
const KEY = 'superstep-key';

export class Failure extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

export type Params = Record<string, string | number | undefined | null>;

/** Set by the application: called when the server needs another key. */
export const door = { refused: (_: string) => {} };

export function setKey(key: string) {
  sessionStorage.setItem(KEY, key);
}

export function headers(): Record<string, string> {
  const key = sessionStorage.getItem(KEY);
  return key ? { 'x-api-key': key } : {};
}

export function path(...parts: (string | number)[]): string {
  return parts.map((part) => encodeURIComponent(part)).join('/');
}

export function url(to: string, params: Params = {}): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    if (value !== undefined && value !== null && value !== '') query.set(name, `${value}`);
  }
  return `${BASE}${to}${query.size ? `?${query}` : ''}`;
}

async function answer<T>(request: Promise<Response>): Promise<T> {
  let response: Response;
  try {
    response = await request;
  } catch (error) {
    if (error instanceof DOMException && error.name === 'AbortError') throw error;
    throw new Failure(0, 'The server does not answer.');
  }
  if (response.ok) return response.json();
  const body = await response.json().catch(() => ({}));
  const text = typeof body.detail === 'string' ? body.detail : `${response.status} ${response.statusText}`;
  if (response.status === 401 || (response.status === 403 && text.includes('token'))) door.refused(text);
  throw new Failure(response.status, text);
}

export function get<T>(to: string, params: Params = {}, signal?: AbortSignal): Promise<T> {
  return answer(fetch(url(to, params), { headers: headers(), signal: signal ?? null }));
}

export function post<T>(to: string, body: unknown): Promise<T> {
  const json = { ...headers(), 'content-type': 'application/json' };
  return answer(fetch(url(to), { method: 'POST', headers: json, body: JSON.stringify(body) }));
}
