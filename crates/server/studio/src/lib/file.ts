import type { CaseFile } from './api';

/** Stores a text as a file of the user, as the browser does with downloads. */
export function save({ name, text }: CaseFile) {
  const url = URL.createObjectURL(new Blob([text], { type: 'application/jsonl' }));
  const link = document.createElement('a');
  link.href = url;
  link.download = name;
  link.click();
  // The browser has read it by then.
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
