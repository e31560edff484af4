/** What is loaded when it is first opened. */
export { default as Compare } from './pages/Compare.svelte';
export { default as EditDialog } from './parts/EditDialog.svelte';
export { default as Help } from './parts/Help.svelte';
export { default as NewDialog } from './parts/NewDialog.svelte';
export { default as Palette } from './parts/Palette.svelte';
export { default as ReplayDialog } from './parts/ReplayDialog.svelte';
