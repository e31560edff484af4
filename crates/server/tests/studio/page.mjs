// The page of the studio in a browser: `page.mjs URLS CHROMIUM`, with the addresses of the servers as JSON. Prints `done` at its end. A line
// `> restart` or `> outside` asks the test for an action, which it confirms with a line. With SCREENS it stores pictures there, with AIMS the
// limits of time are those of an optimized server. ONLY names a step. With DIST it takes the files of the page from there, so that a change of
// the page needs no build of the server.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

const urls = JSON.parse(process.argv[2]);
const executablePath = process.argv[3];
const base = urls.busy;
const clients = createRequire(join(process.env.CLIENTS, 'node_modules/'));
const { chromium } = clients('playwright-core');
const axe = readFileSync(clients.resolve('axe-core/axe.min.js'), 'utf8');
const screens = process.env.SCREENS;
const hasAims = !!process.env.AIMS;
const call = (server, path, body) =>
  fetch(`${server}/studio/api/${path}`, {
    method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body),
  });
const api = (path, body) => call(base, path, body);
const confirmed = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

async function ask(action) {
  console.log(`> ${action}`);
  assert.equal((await confirmed.next()).value, 'ok');
}

const browser = await chromium.launch({ executablePath, args: ['--no-sandbox'] });

let failed = 0;

/** Notes what no step expects; the steps go on. */
function fail(what) {
  failed += 1;
  console.error(`FAILED: ${what}`);
}

async function open(path, { server = base, context, ...options } = {}) {
  context ??= await browser.newContext({ viewport: { width: 1360, height: 820 }, colorScheme: 'light', bypassCSP: !!options.axe, ...options });
  if (process.env.DIST) {
    await context.route(/\/studio\/\w+\.(js|css)$/, (route) => route.fulfill({ path: join(process.env.DIST, route.request().url().split('/').pop()) }));
  }
  const page = await context.newPage();
  page.setDefaultTimeout(15_000);
  page.underWay = new Set();
  // The stream of events does not end.
  page.on('request', (request) => /api\/events/.test(request.url()) || page.underWay.add(request));
  for (const end of ['requestfinished', 'requestfailed']) page.on(end, (request) => page.underWay.delete(request));
  page.on('request', (request) => /^(data|blob):/.test(request.url()) || request.url().startsWith(server) || fail(`a request to ${request.url()}`));
  page.on('pageerror', (error) => fail(`an error of the page: ${error.message}`));
  page.on('console', (message) => message.type() !== 'error' || /status of [45]|ERR_/.test(message.text()) || fail(message.text()));
  await page.goto(`${server}/studio/${path}`);
  return page;
}

/** Waits until the page has read what it shows. */
async function quiet(page) {
  // A part of the page requests more a few frames after it is shown.
  for (let still = 0; still < 6; still = page.underWay.size ? 0 : still + 1) await page.evaluate(() => new Promise(requestAnimationFrame));
  await page.waitForFunction(() => !document.querySelector('.isDim'));
}

/** Waits until a thread has a status and so many checkpoints, and returns it. */
async function until(thread, status, checkpoints = 0) {
  for (;;) {
    const view = await (await fetch(`${base}/studio/api/threads/${thread}`)).json();
    if (view.line?.status === status && view.checkpoints >= checkpoints) return view;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

async function picture(page, name) {
  if (screens) await page.screenshot({ path: join(screens, `studio-${name}.png`) });
}

async function accessible(path, then = async () => {}, server = base) {
  const page = await open(path, { axe: true, server });
  await quiet(page);
  await then(page);
  await page.evaluate(axe);
  // Only the colours differ in the dark.
  for (const [colorScheme, rules] of [['light', {}], ['dark', { runOnly: ['color-contrast'] }]]) {
    await page.emulateMedia({ colorScheme });
    let found = [];
    // Content may have been read again meanwhile.
    for (let tries = 0; tries < 3; tries += 1) {
      await quiet(page);
      const { violations } = await page.evaluate((rules) => window.axe.run(document, rules), rules);
      found = violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html.slice(0, 140)).slice(0, 3).join(' | ')}`);
      if (!found.length) break;
    }
    if (found.length) fail(`${path}, ${colorScheme}: ${found.join('\n')}`);
  }
  await page.context().close();
}

const steps = {
  async 'the list has the threads, and filters are in the address'() {
    const page = await open('threads');
    await page.getByRole('row', { name: /rename/ }).waitFor();
    await picture(page, 'threads');
    await page.getByRole('button', { name: 'failed' }).click();
    await page.waitForFunction(() => document.querySelectorAll('.table a').length === 1);
    assert.match(page.url(), /status=failed/);
    await page.reload();
    await page.getByRole('row', { name: /sum/ }).waitFor();
    await page.getByRole('button', { name: 'failed' }).click();
    await page.getByRole('searchbox').fill('parser');
    await page.waitForFunction(() => document.querySelectorAll('.table a').length === 3);
    await page.getByRole('row', { name: /rename/ }).click();
    await page.waitForURL(/\/t\/rename/);
    await page.context().close();
  },

  async 'a thread has its graph, checkpoints, state, differences and messages'() {
    const page = await open('t/rename');
    await page.getByText('Two places name it:').waitFor();
    await page.getByRole('button', { name: /^agent, ran 1 time\b/ }).waitFor();
    assert.equal(await page.getByRole('option').count(), 3);
    await picture(page, 'thread');
    await page.keyboard.press('d');
    await page.getByText('+1 of 2').waitFor();
    await picture(page, 'diff');
    await page.keyboard.press('s');
    await page.getByRole('button', { name: 'Open messages' }).click();
    await page.getByRole('button', { name: 'Open 1', exact: true }).click();
    await page.getByText('declares').first().waitFor();
    await page.keyboard.press('j');
    assert.match(page.url(), /at=2/);
    await page.keyboard.press('t');
    await page.getByRole('tab', { name: 'Tasks', selected: true }).waitFor();
    await page.keyboard.press('h');
    assert.doesNotMatch(page.url(), /at=/);
    await page.context().close();
  },

  async 'text of a state stays text'() {
    const page = await open('t/count?tab=state');
    await page.getByRole('button', { name: 'Open log' }).click();
    await page.getByText("<script>document.title = 'broken'</script>").first().waitFor();
    assert.match(await page.title(), /studio$/);
    await page.context().close();
  },

  async 'questions are answered one by one, and a draft survives a reload'() {
    const page = await open('inbox');
    const article = page.getByRole('article').filter({ hasText: 'both' });
    await article.getByRole('textbox').first().fill('"left"');
    await page.reload();
    assert.equal(await article.getByRole('textbox').first().inputValue(), '"left"');
    await picture(page, 'inbox');
    const waiting = Number(await page.locator('header .badge').textContent());
    await article.getByRole('button', { name: 'Answer' }).first().click();
    await page.waitForFunction((left) => Number(document.querySelector('header .badge')?.textContent) === left, waiting - 1);
    await article.getByRole('textbox').first().fill('right');
    await article.getByRole('button', { name: 'Answer' }).first().click();
    await article.waitFor({ state: 'detached' });
    await page.context().close();
  },

  async 'an edit shows its dry run, and makes a branch'() {
    const page = await open('t/count?tab=state&at=2');
    await page.getByRole('option').first().waitFor();
    await page.keyboard.press('e');
    const dialog = page.getByRole('dialog');
    await dialog.getByRole('textbox').fill('{\n  "log": [],\n  "n": ten\n}');
    await dialog.getByText(/^line 3: /).waitFor();
    await dialog.getByRole('textbox').fill('{ "n": "ten" }');
    await dialog.getByText(/`n`.*expected i64|expected i64.*`n`/).waitFor();
    await dialog.getByRole('combobox').first().selectOption('one');
    await dialog.getByRole('textbox').fill('{ "n": 10 }');
    await dialog.getByText('Next: two').waitFor();
    await dialog.getByText('15', { exact: true }).waitFor();
    await picture(page, 'edit');
    const before = await page.locator('[role=option].row').count();
    await dialog.getByRole('button', { name: 'Store and run' }).click();
    await page.waitForFunction((before) => document.querySelectorAll('[role=option].row').length >= before + 2, before);
    await page.getByText('done', { exact: true }).waitFor();
    await picture(page, 'branch');
    // The line that was there stays, and the branches are compared.
    const stored = await (await fetch(`${base}/studio/api/threads/count/at/4`)).json();
    assert.equal(stored.channels.find((channel) => channel.key === 'n').preview, '7');
    await page.goto(`${base}/studio/compare?a=count@4&b=count@6`);
    await page.getByText('The same up to #2.').waitFor();
    await page.context().close();
  },

  async 'a replay compares, and gives a test'() {
    const page = await open('t/rename');
    await page.getByRole('option').first().waitFor();
    await page.keyboard.press('r');
    const dialog = page.getByRole('dialog');
    await dialog.getByRole('button', { name: 'Replay', exact: true }).click();
    await dialog.getByText('Nothing differs').waitFor();
    await dialog.getByRole('button', { name: 'as a test' }).click();
    await dialog.getByText('assert_same()').waitFor();
    const [download] = await Promise.all([page.waitForEvent('download'), dialog.getByRole('button', { name: 'Save the case' }).click()]);
    assert.equal(download.suggestedFilename(), 'rename.thread.jsonl');
    await picture(page, 'replay');
    await page.context().close();
  },

  async 'a divergence is named, accepted or rejected, and cases are reviewed'() {
    const page = await open('t/polite');
    await page.getByRole('option').first().waitFor();
    await page.keyboard.press('r');
    const dialog = page.getByRole('dialog');
    await dialog.getByRole('button', { name: 'Replay', exact: true }).click();
    await dialog.getByText(/First difference: superstep 1, after/).waitFor();
    await dialog.getByText('node agent').waitFor();
    await dialog.getByText('/system').first().waitFor();
    await picture(page, 'divergence');
    const saved = async (from, name) => {
      const [download] = await Promise.all([page.waitForEvent('download'), from.getByRole('button', { name, exact: true }).first().click()]);
      return { name: download.suggestedFilename(), mimeType: 'application/jsonl', buffer: readFileSync(await download.path()) };
    };
    const recorded = await saved(dialog, 'Reject');
    const accepted = await saved(dialog, 'Accept');
    await page.goto(`${base}/studio/cases`);
    await page.setInputFiles('input[type=file]', [recorded, { ...recorded, name: 'other.thread.jsonl' }, { ...accepted, name: 'broken.thread.jsonl', buffer: Buffer.from('{}') }]);
    await page.getByText('3 cases: 2 diverged, 1 failed').waitFor();
    await picture(page, 'cases');
    const again = await saved(page, 'Accept');
    await page.getByRole('button', { name: 'Reject' }).click();
    await page.getByText('3 cases: 1 accepted, 1 rejected, 1 failed').waitFor();
    await page.setInputFiles('input[type=file]', [again, { ...accepted, name: 'other.thread.jsonl' }]);
    await page.getByText('3 cases: 2 same, 1 failed').waitFor();
    await page.context().close();
  },

  async 'versions of a message are switched'() {
    const { questions } = await until('chat', 'waits');
    await api('threads/chat/answers', { answers: { [questions[0].id]: 'approve' } });
    const end = (await until('chat', 'done')).line.head;
    const page = await open('t/chat');
    await page.getByText('the tests pass').waitFor();
    await page.getByRole('textbox', { name: 'Message' }).fill('Version 1, please.');
    await page.keyboard.press('Enter');
    await page.getByRole('button', { name: 'Refuse…' }).waitFor();
    const message = page.locator('article.user').last();
    // The question may be shown before the message.
    await message.getByText('Version 1, please.').waitFor();
    await message.getByRole('button', { name: 'Edit' }).click();
    const dialog = page.getByRole('dialog');
    const field = dialog.getByRole('textbox');
    assert.match(await field.inputValue(), /Version 1, please/);
    await field.fill('{ "messages": [{ "role": "user", "content": "Version 2, please." }] }');
    await dialog.getByText('Next: agent').waitFor();
    await dialog.getByRole('button', { name: 'Store and run' }).click();
    await message.getByText('2/2').waitFor();
    for (const nth of [3, 4, 5]) {
      const content = `Version ${nth}, please.`;
      const { checkpoint } = await (await api('threads/chat/update', { at: end, as_node: '__start__', values: { messages: [{ role: 'user', content }] } })).json();
      await api('threads/chat/run', { expected: checkpoint });
      await until('chat', 'waits');
    }
    await message.getByText('5/5').waitFor();
    await message.getByText('Version 5').waitFor();
    await quiet(page);
    await picture(page, 'versions');
    for (const nth of [4, 3, 2, 1]) {
      await message.getByRole('button', { name: 'Older version' }).click();
      await message.getByText(`Version ${nth}, please.`).waitFor();
      await message.getByText(`${nth}/5`).waitFor();
    }
    assert.match(page.url(), /at=/);
    // The first message begins a thread, so that its next version is another one.
    await page.locator('article.user').first().getByRole('button', { name: 'Edit' }).click();
    assert.match(await page.getByRole('dialog').getByRole('textbox', { name: 'Message' }).inputValue(), /^Rename/);
    await page.context().close();
  },

  async 'a run is steered from the chat'() {
    const page = await open('t/chat');
    await page.getByRole('tab', { name: 'Messages' }).waitFor();
    // As if it ran.
    await page.route('**/api/threads/chat', async (route) => {
      const response = await route.fetch();
      const view = await response.json();
      await route.fulfill({ json: { ...view, questions: [], line: { ...view.line, status: 'running', waits: 0 } } });
    });
    await page.reload();
    const field = page.getByRole('textbox', { name: 'Message' });
    await field.fill('Only in src.');
    const [sent] = await Promise.all([page.waitForRequest(/steer$/), field.press('Enter')]);
    assert.deepEqual(sent.postDataJSON(), { text: 'Only in src.' });
    await page.getByText('The run reads it before its next call').waitFor();
    await page.unrouteAll({ behavior: 'ignoreErrors' });
    await page.context().close();
  },

  async 'the state of a subgraph is shown'() {
    const page = await open('t/nested?tab=tasks');
    await page.getByText('called').click();
    await page.locator('details').getByText('euros').waitFor();
    await picture(page, 'subgraph');
    await page.context().close();
  },

  async 'a thread is saved, copied, pruned and deleted'() {
    const page = await open('t/count');
    await page.getByRole('option').first().waitFor();
    await page.getByRole('button', { name: 'More' }).click();
    const dialog = page.getByRole('dialog');
    await picture(page, 'manage');
    await Promise.all([page.waitForEvent('download'), dialog.getByRole('button', { name: 'Save', exact: true }).click()]);
    await dialog.getByRole('textbox', { name: 'Name of the copy' }).fill('count-2');
    await dialog.getByRole('button', { name: 'Copy', exact: true }).click();
    await page.waitForURL(/count-2/);
    await page.getByRole('option').nth(3).waitFor();
    await page.getByRole('button', { name: 'More' }).click();
    await dialog.getByRole('textbox', { name: /that stay/ }).fill('2');
    await dialog.getByRole('checkbox', { name: /with their states/ }).check();
    await dialog.getByRole('button', { name: 'Delete them' }).click();
    await dialog.getByText(/^Deleted \d+ checkpoints?, 2 left/).waitFor();
    assert.equal(await page.locator('[role=option].row').count(), 2);
    await dialog.getByRole('checkbox', { name: /with every checkpoint/ }).check();
    await dialog.getByRole('button', { name: 'Delete', exact: true }).click();
    await page.waitForURL(/threads$/);
    await page.getByRole('row', { name: /rename/ }).waitFor();
    assert.equal(await page.getByRole('row', { name: /count-2/ }).count(), 0);
    await page.context().close();
  },

  async 'who is too late reads why, and keeps the draft'() {
    const page = await open('t/polite', { viewport: { width: 1360, height: 820 } });
    await page.getByRole('button', { name: 'Reply…' }).click();
    await page.getByRole('textbox', { name: /instead/ }).fill('It is done already.');
    // Nothing tells the page that the thread has moved.
    await page.context().route('**/studio/api/**', (route) => (route.request().method() === 'GET' ? route.abort() : route.continue()));
    const { questions } = await (await fetch(`${base}/studio/api/threads/polite`)).json();
    await api('threads/polite/answers', { answers: { [questions[0].id]: 'approve' } });
    await until('polite', 'done');
    await page.getByRole('button', { name: 'Answer', exact: true }).click();
    await page.getByText(/the thread moved to #\d+; nothing was changed/).waitFor();
    assert.equal(await page.getByRole('textbox', { name: /instead/ }).inputValue(), 'It is done already.');
    await page.context().close();
  },

  async 'a run of another program shows within half a second, also after a restart'() {
    const server = urls.stored;
    const page = await open('t/outside', { server });
    await page.getByText('thread `outside` not found').waitFor();
    const rows = (count) => page.waitForFunction((count) => document.querySelectorAll('[role=option].row').length === count, count, { polling: 20 });
    await ask('outside');
    await rows(4);
    const times = [];
    for (let run = 2; run <= 5; run += 1) {
      await ask('outside');
      const from = Date.now();
      await rows(run * 4);
      times.push(Date.now() - from);
    }
    assert(Math.max(...times) < (hasAims ? 500 : 2_000), `${times} ms`);
    console.log(`a run of another program shows after ${times} ms`);
    await ask('restart');
    await ask('outside');
    await rows(24);
    const ids = await page.$$eval('[role=option].row', (all) => all.map((row) => row.id));
    assert.equal(new Set(ids).size, 24);
    await page.getByText('live', { exact: true }).waitFor();
    await page.context().close();
  },

  async 'ten tabs work'() {
    const first = await open('t/count');
    const context = first.context();
    // Browsers hide all tabs of a window but one, which this one does not.
    const show = (page, isHidden) => page.evaluate((isHidden) => {
      Object.defineProperty(document, 'hidden', { configurable: true, get: () => isHidden });
      document.dispatchEvent(new Event('visibilitychange'));
    }, isHidden);
    const pages = [first];
    for (let tab = 1; tab < 10; tab += 1) {
      await show(pages.at(-1), true);
      pages.push(await open('t/count', { context }));
      await pages.at(-1).getByRole('option').first().waitFor();
    }
    const count = await first.locator('[role=option].row').count();
    await api('threads/count/run', { input: { n: 1 } });
    const rows = (page) => page.waitForFunction((count) => document.querySelectorAll('[role=option].row').length === count + 4, count);
    await rows(pages[9]);
    await show(pages[9], true);
    await show(first, false);
    await rows(first);
    await context.close();
  },

  async 'a run of another client shows within half a second, and again after a lost connection'() {
    const page = await open('t/live');
    await page.getByText('thread `live` not found').waitFor();
    const begun = await api('threads', { graph: 'counter', thread: 'live', input: { n: 1 } });
    assert.equal(begun.status, 200);
    await page.waitForFunction(() => document.querySelectorAll('[role=option].row').length === 4);
    const at = Date.now();
    await api('threads/live/run', { input: { n: 1 } });
    await page.waitForFunction(() => document.querySelectorAll('[role=option].row').length === 8);
    assert(Date.now() - at < (hasAims ? 500 : 1_500), `${Date.now() - at} ms`);
    await page.context().setOffline(true);
    await api('threads/live/run', { input: { n: 1 } });
    await until('live', 'done', 12);
    await page.context().setOffline(false);
    await page.waitForFunction(() => document.querySelectorAll('[role=option].row').length === 12, undefined, { timeout: 20_000 });
    const ids = await page.$$eval('[role=option].row', (rows) => rows.map((row) => row.id));
    assert.equal(new Set(ids).size, 12);
    await page.context().close();
  },

  async 'a chat is sent, streamed and approved'() {
    const page = await open('t/rename');
    await page.getByRole('button', { name: 'Run', exact: true }).click();
    await page.getByText('the tests pass').waitFor();
    await page.getByRole('textbox', { name: 'Message' }).fill('Thank you.');
    await page.keyboard.press('Enter');
    await page.getByText('Thank you.').first().waitFor();
    await page.getByRole('button', { name: 'Refuse…' }).waitFor();
    await quiet(page);
    await picture(page, 'chat');
    await page.getByRole('button', { name: 'Refuse…' }).click();
    await page.getByRole('textbox', { name: /Why not/ }).fill('not now');
    await page.getByRole('button', { name: 'Refuse', exact: true }).click();
    await page.getByText('done', { exact: true }).waitFor();
    await page.context().close();
  },

  async 'ten thousand checkpoints are usable at once'() {
    const began = Date.now();
    const page = await open('t/ten-thousand?tab=diff');
    await page.getByRole('option').first().waitFor();
    const usable = Date.now() - began;
    const size = () => page.evaluate(() => document.querySelectorAll('*').length);
    assert(await page.evaluate(() => Number(document.querySelector('[role=option]').getAttribute('aria-setsize'))) > 9_990);
    assert(await size() < 2_000, `${await size()} elements`);
    const frames = await page.evaluate(async () => {
      const list = document.querySelector('[role=listbox]');
      const times = [];
      for (let jump = 0; jump < 60; jump += 1) {
        list.scrollTop = Math.abs(Math.sin(jump)) * list.scrollHeight;
        const from = performance.now();
        await new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
        times.push((performance.now() - from) / 2);
      }
      return times.sort((a, b) => a - b)[57];
    });
    assert(await size() < 2_000, `${await size()} elements`);
    await quiet(page);
    await picture(page, 'long');
    await page.evaluate(() => (document.querySelector('[role=listbox]').scrollTop = 1e9));
    await page.waitForFunction(() => document.getElementById('row-1'));
    const click = Date.now();
    await page.click('#row-2');
    await page.getByText(/#2 against/).waitFor();
    await page.locator('.details section h2').first().waitFor();
    const diff = Date.now() - click;
    // Otherwise the server is not optimized, and shares its cores.
    const aims = hasAims ? [1_000, 50, 300] : [10_000, 100, 15_000];
    assert(usable < aims[0] && frames < aims[1] && diff < aims[2], `usable ${usable} ms, frames ${frames} ms, diff ${diff} ms`);
    console.log(`10,000 checkpoints: usable ${usable} ms, p95 frame ${frames.toFixed(0)} ms, oldest diff ${diff} ms, ${await size()} elements`);
    await page.context().close();
  },

  async 'two hundred nodes are drawn'() {
    const page = await open('t/rows', { colorScheme: 'dark' });
    await page.getByRole('button', { name: /^row_19_9,/ }).waitFor();
    await picture(page, 'wide');
    await page.context().close();
  },

  async 'other servers have their pages'() {
    let page = await open('threads', { server: urls.empty });
    await page.getByText('No threads yet').waitFor();
    await picture(page, 'empty');
    await page.goto(`${urls.empty}/studio/inbox`);
    await page.getByText('Nothing waits for you').waitFor();
    await picture(page, 'inbox-empty');
    await page.goto(`${urls.empty}/studio/nothing`);
    await page.getByText('There is no such page').waitFor();
    await page.context().close();

    page = await open('threads', { server: urls.broken });
    await page.getByRole('row', { name: /rename/ }).click();
    await page.getByText('This thread is damaged.').waitFor();
    await page.getByText(/is the newest checkpoint that can be read/).waitFor();
    await page.getByRole('option').first().waitFor();
    await page.keyboard.press('s');
    await page.getByText('Rename the module').first().waitFor();
    await picture(page, 'damaged');
    assert.equal(await page.getByRole('button', { name: 'Fork' }).count(), 0);
    await page.getByRole('button', { name: 'More' }).click();
    await page.getByRole('checkbox').check();
    await page.getByRole('dialog').getByRole('button', { name: 'Delete', exact: true }).click();
    await page.waitForURL(/threads$/);
    await page.context().close();

    page = await open('t/count', { server: urls.reading });
    await page.getByText('read only').waitFor();
    await page.getByRole('option').first().waitFor();
    for (const name of ['Fork', 'Edit', 'Replay', 'Resume']) assert.equal(await page.getByRole('button', { name }).count(), 0);
    await page.keyboard.press('e');
    assert.equal(await page.getByRole('dialog').count(), 0);
    await page.context().close();
  },

  async 'names and texts of others stay text'() {
    const page = await open('threads');
    await page.getByText('<img src=x onerror=alert(1)>').click();
    await page.getByRole('option').first().waitFor();
    assert.equal(await page.locator('img').count(), 0);
    await page.context().close();
  },

  async 'all is done by keyboard'() {
    const page = await open('threads');
    await page.getByRole('row', { name: /rename/ }).waitFor();
    const tabTo = async (name) => {
      for (let presses = 0; presses < 80; presses += 1) {
        await page.keyboard.press('Tab');
        const text = await page.evaluate(() => document.activeElement?.getAttribute('aria-label') || document.activeElement?.textContent || '');
        if (name.test(text.trim())) return;
      }
      assert.fail(`no Tab leads to ${name}`);
    };
    await page.keyboard.press('/');
    await page.keyboard.type('5');
    await page.keyboard.press('Tab');
    await page.keyboard.press('Control+k');
    const palette = page.getByRole('dialog', { name: 'Go to' });
    await palette.waitFor();
    await page.keyboard.type('both');
    await palette.getByText('both').first().waitFor();
    await page.keyboard.press('Enter');
    await page.waitForURL(/t\/both/);
    await tabTo(/^Checkpoints, newest first/);
    await page.keyboard.press('ArrowDown');
    await page.waitForURL(/at=/);
    await page.keyboard.press('h');
    await page.keyboard.press('t');
    await tabTo(/^agent|^one|^two|^left|^a$|ran \d+ times|did not run/);
    await page.keyboard.press('?');
    await page.getByRole('heading', { name: 'Keys' }).waitFor();
    await page.keyboard.press('Escape');
    await page.keyboard.press('i');
    await page.waitForURL(/inbox/);
    await page.getByRole('article').first().waitFor();
    await tabTo(/^Run$/);
    await page.keyboard.press('g');
    await page.waitForURL(/threads/);
    await page.getByRole('row', { name: /rename/ }).waitFor();
    await page.keyboard.press('j');
    await page.keyboard.press('Enter');
    await page.waitForURL(/\/t\//);
    await page.context().close();
  },

  async 'every control of a thread is reached by keyboard, and shows its focus'() {
    const page = await open('t/chat');
    await quiet(page);
    const names = [];
    const focused = () =>
      page.evaluate(() => {
        const element = document.activeElement;
        if (element === document.body) return null;
        const { outlineStyle } = getComputedStyle(element);
        return { name: element.ariaLabel ?? element.textContent.trim(), isShown: outlineStyle !== 'none', isInDialog: !!element.closest('dialog') };
      });
    for (;;) {
      await page.keyboard.press('Tab');
      const element = await focused();
      // After the last one, or again at the first.
      if (!element || (names.length && element.name === names[0])) break;
      assert(element.isShown, element.name);
      names.push(element.name);
    }
    for (const name of ['Threads', 'Cases', 'Fork', 'Edit', 'Replay', 'Compare', 'More', 'Zoom in', 'Checkpoints, newest first', 'Messages', 'Older version', 'Run', 'Refuse…']) {
      assert(names.includes(name), `${name} is not among ${names}`);
    }
    // A dialog has the focus, and returns it.
    await page.getByRole('button', { name: 'More' }).focus();
    await page.keyboard.press('Enter');
    await page.getByRole('dialog').waitFor();
    for (let presses = 0; presses < 6; presses += 1) {
      const element = await focused();
      assert(element.isInDialog && element.isShown, element.name);
      await page.keyboard.press('Tab');
    }
    await page.keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    assert.equal((await focused()).name, 'More');
    await page.context().close();
  },

  async 'pages are accessible in light and dark'() {
    const { text } = await (await fetch(`${base}/studio/api/threads/polite/case`)).json();
    const dialog = (press) => async (page) => {
      await press(page);
      await page.getByRole('dialog').waitFor();
      await quiet(page);
    };
    for (const path of ['threads', 'inbox', 'cases', 'nothing', 't/missing', 't/rename', 't/rename?tab=state', 't/rename?tab=diff', 't/rename?tab=tasks', 't/rename?tab=raw',
      't/sum?tab=tasks', 't/nested?tab=tasks', 't/rows', 'compare', 'compare?a=count@2&b=count@4']) {
      await accessible(path);
    }
    await accessible('t/ten-thousand');
    await accessible('t/chat');
    await accessible('cases', async (page) => {
      await page.setInputFiles('input[type=file]', { name: 'polite.thread.jsonl', mimeType: 'application/jsonl', buffer: Buffer.from(text) });
      await page.getByText('1 case: 1 diverged').waitFor();
    });
    await accessible('t/polite', async (page) => {
      await page.keyboard.press('r');
      await page.getByRole('dialog').getByRole('button', { name: 'Replay', exact: true }).click();
      await page.getByText(/First difference/).waitFor();
    });
    await accessible('t/count', async (page) => {
      await page.keyboard.press('e');
      await page.getByRole('dialog').getByRole('textbox').fill('{ "n": 1 }');
      await page.getByText(/^Dry run. Next/).waitFor();
    });
    for (const key of ['?', 'Control+k']) await accessible('t/count', dialog((page) => page.keyboard.press(key)));
    await accessible('t/count', dialog((page) => page.getByRole('button', { name: 'More' }).click()));
    await accessible('threads', dialog((page) => page.getByRole('button', { name: 'New' }).click()));
    await accessible('threads', undefined, urls.empty);
    await accessible('inbox', undefined, urls.empty);
    await accessible('threads', undefined, urls.broken);
    await accessible('t/count', undefined, urls.reading);
  },

  async 'a narrow page does not scroll sideways'() {
    for (const path of ['threads', 'inbox', 'cases', 't/rename', 't/rename?tab=state', 't/rename?tab=diff', 't/sum?tab=tasks', 't/nested?tab=tasks', 't/count?tab=raw', 'compare?a=count@2&b=count@4']) {
      const page = await open(path, { viewport: { width: 360, height: 740 }, colorScheme: 'dark' });
      await quiet(page);
      assert(await page.evaluate(() => document.documentElement.scrollWidth) <= 360, path);
      await picture(page, `narrow-${path.replace(/\W+/g, '-')}`);
      if (path === 't/rename') {
        for (const pane of ['graph', 'checkpoints']) {
          await page.getByRole('button', { name: pane, exact: true }).click();
          assert(await page.evaluate(() => document.documentElement.scrollWidth) <= 360, pane);
          await picture(page, `narrow-${pane}`);
        }
        await page.getByRole('button', { name: 'More' }).click();
        await page.getByRole('dialog').waitFor();
        assert(await page.evaluate(() => document.documentElement.scrollWidth) <= 360, 'more');
        await picture(page, 'narrow-more');
      }
      await page.context().close();
    }
  },

  async 'pictures'() {
    if (!screens) return;
    const paths = { threads: 'threads', thread: 't/rename', state: 't/rename?tab=state', diff: 't/rename?tab=diff', tasks: 't/rename?tab=tasks', failed: 't/sum?tab=tasks',
      inbox: 'inbox', compare: 'compare?a=count@4&b=count@6', wide: 't/rows', long: 't/ten-thousand', missing: 't/missing', raw: 't/rename?tab=raw', count: 't/count' };
    for (const colorScheme of ['light', 'dark']) {
      for (const [name, path] of Object.entries(paths)) {
        const page = await open(path, { colorScheme });
        await quiet(page);
        await picture(page, `${colorScheme}-${name}`);
        await page.context().close();
      }
    }
  },
};

for (const [name, step] of Object.entries(steps)) {
  if (process.env.ONLY && !name.includes(process.env.ONLY)) continue;
  try {
    await step();
  } catch (error) {
    fail(`${name}\n${error.stack}`);
  }
}
await browser.close();
process.exitCode = failed ? 1 : 0;
console.log(failed ? `${failed} failed` : 'done');
process.exit();
