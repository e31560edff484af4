// A server of the files of a built page.

import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { extname, join } from "node:path";

const TYPES = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml" };

/** Serves a folder on a free port; unknown paths are the page. */
export async function serveFiles(folder) {
  const server = createServer(async (request, response) => {
    const { pathname } = new URL(request.url, "http://localhost");
    const name = pathname.includes("..") || pathname === "/" ? "index.html" : pathname;
    const found = await readFile(join(folder, name)).then((bytes) => [bytes, name], async () => [await readFile(join(folder, "index.html")), "index.html"]);
    response.setHeader("content-type", TYPES[extname(found[1])] ?? "application/octet-stream");
    response.end(found[0]);
  });
  await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
  const url = `http://127.0.0.1:${server.address().port}/`;
  return { url, close: () => new Promise((closed) => { server.close(closed); server.closeAllConnections(); }) };
}
