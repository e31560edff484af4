import { mount } from 'svelte';
import './app.css';
import App from './App.svelte';
import { setKey } from './lib/client';

// An address may bring the key, which then leaves it.
const key = new URLSearchParams(location.hash.slice(1)).get('key');
if (key) {
  setKey(key);
  history.replaceState(null, '', location.pathname + location.search);
}

mount(App, { target: document.body });
