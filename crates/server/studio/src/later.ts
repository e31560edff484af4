/** What is loaded when it is first opened, or after the first page. */
export { default as Cases } from './pages/Cases.svelte';
export { default as Compare } from './pages/Compare.svelte';
export { default as DiffTab } from './parts/DiffTab.svelte';
export { default as EditDialog } from './parts/EditDialog.svelte';
export { default as Help } from './parts/Help.svelte';
export { default as ManageDialog } from './parts/ManageDialog.svelte';
export { default as NewDialog } from './parts/NewDialog.svelte';
export { default as Palette } from './parts/Palette.svelte';
export { default as ReplayDialog } from './parts/ReplayDialog.svelte';
export { default as TasksTab } from './parts/TasksTab.svelte';
