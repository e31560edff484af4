import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig } from 'vite';

// Plain names, so that a build is compared with the committed one; the server sends an ETag.
export default defineConfig({
  base: '/studio/',
  plugins: [svelte()],
  build: {
    target: 'es2022',
    modulePreload: false,
    cssCodeSplit: false,
    rollupOptions: {
      output: { entryFileNames: 'app.js', chunkFileNames: '[name].js', assetFileNames: 'app.[ext]' },
    },
  },
  server: { proxy: { '/studio/api': 'http://127.0.0.1:2024' } },
});
