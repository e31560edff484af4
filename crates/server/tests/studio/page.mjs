// The page of the studio in a browser: `page.mjs URL CHROMIUM`. Prints `done` at its end. With SCREENS it stores pictures there. ONLY names a step. With
// DIST it takes the files of the page from there, so that a change of the page needs no build of the server.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';

const [, , base, executablePath] = process.argv;
const clients = createRequire(join(process.env.CLIENTS, 'node_modules/'));
const { chromium } = clients('playwright-core');
const axe = readFileSync(clients.resolve('axe-core/axe.min.js'), 'utf8');
const screens = process.env.SCREENS;
const api = (path, body) =>
  fetch(`${base}/studio/api/${path}`, {
    method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body),
  });

const browser = await chromium.launch({ executablePath, args: ['--no-sandbox'] });

async function open(path, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1360, height: 820 }, colorScheme: 'light', bypassCSP: !!options.axe, ...options });
  if (process.env.DIST) {
    await context.route(/\/studio\/\w+\.(js|css)$/, (route) => route.fulfill({ path: join(process.env.DIST, route.request().url().split('/').pop()) }));
  }
  const page = await context.newPage();
  page.setDefaultTimeout(15_000);
  page.on('request', (request) => assert(request.url().startsWith(base) || request.url().startsWith('data:'), `a request to ${request.url()}`));
  page.on('pageerror', (error) => assert.fail(`an error of the page: ${error.message}`));
  page.on('console', (message) => assert(message.type() !== 'error' || /status of 4|ERR_INTERNET_DISCONNECTED/.test(message.text()), message.text()));
  await page.goto(`${base}/studio/${path}`);
  return page;
}

async function picture(page, name) {
  if (screens) await page.screenshot({ path: join(screens, `studio-${name}.png`) });
}

async function accessible(path, colorScheme, then = async () => {}) {
  const page = await open(path, { axe: true, colorScheme });
  await page.waitForTimeout(700);
  // Content that is being read is dimmed.
  await page.waitForFunction(() => !document.querySelector('.isDim'));
  await then(page);
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => window.axe.run(document));
  const found = violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html.slice(0, 140)).slice(0, 3).join(' | ')}`);
  assert.deepEqual(found, [], `${path}, ${colorScheme}`);
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
    await page.waitForFunction(() => document.querySelectorAll('.table a').length === 1);
    await page.getByRole('row', { name: /rename/ }).click();
    await page.waitForURL(/\/t\/rename/);
    await page.context().close();
  },

  async 'a thread has its graph, checkpoints, state, differences and messages'() {
    const page = await open('t/rename');
    await page.getByText('Two places name it:').waitFor();
    await page.getByRole('button', { name: /^agent, ran 1 times/ }).waitFor();
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
    await article.getByRole('button', { name: 'Answer' }).first().click();
    await page.waitForFunction(() => document.querySelector('header .badge')?.textContent === '2');
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
    await dialog.getByRole('textbox').fill('{ "n": "ten" }');
    await dialog.getByText(/expected i64/).waitFor();
    await dialog.getByRole('combobox').first().selectOption('one');
    await dialog.getByRole('textbox').fill('{ "n": 10 }');
    await dialog.getByText('Next: two').waitFor();
    await dialog.getByText('5 → 15').waitFor();
    await picture(page, 'edit');
    const before = await page.locator('[role=option].row').count();
    await dialog.getByRole('button', { name: 'Store and run' }).click();
    await page.waitForFunction((before) => document.querySelectorAll('[role=option].row').length >= before + 2, before);
    await page.getByText('done', { exact: true }).waitFor();
    await picture(page, 'branch');
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
    await picture(page, 'replay');
    await page.context().close();
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
    assert(Date.now() - at < 1_500, `${Date.now() - at} ms`);
    await page.context().setOffline(true);
    await api('threads/live/run', { input: { n: 1 } });
    await page.waitForTimeout(500);
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
    await page.waitForTimeout(400);
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
    await page.waitForTimeout(300);
    await picture(page, 'long');
    await page.evaluate(() => (document.querySelector('[role=listbox]').scrollTop = 1e9));
    await page.waitForFunction(() => document.getElementById('row-1'));
    const click = Date.now();
    await page.click('#row-2');
    await page.getByText(/#2 against/).waitFor();
    await page.locator('.details section h2').first().waitFor();
    const diff = Date.now() - click;
    // The server of the tests is not optimized, and shares its cores.
    assert(usable < 10_000 && frames < 100 && diff < 15_000, `usable ${usable} ms, frames ${frames} ms, diff ${diff} ms`);
    console.log(`10,000 checkpoints: usable ${usable} ms, p95 frame ${frames.toFixed(0)} ms, oldest diff ${diff} ms, ${await size()} elements`);
    await page.context().close();
  },

  async 'two hundred nodes are drawn'() {
    const page = await open('t/rows', { colorScheme: 'dark' });
    await page.getByRole('button', { name: /^row_19_9,/ }).waitFor();
    await picture(page, 'wide');
    await page.context().close();
  },

  async 'pages are accessible in light and dark'() {
    for (const scheme of ['light', 'dark']) {
      for (const path of ['threads', 'inbox', 't/rename', 't/rename?tab=state', 't/rename?tab=diff', 't/rename?tab=tasks', 't/sum?tab=tasks', 'compare?a=count@2&b=count@4']) {
        await accessible(path, scheme);
      }
      await accessible('t/count', scheme, async (page) => {
        await page.keyboard.press('e');
        await page.getByRole('dialog').waitFor();
      });
    }
  },

  async 'a narrow page does not scroll sideways'() {
    for (const path of ['threads', 'inbox', 't/rename', 't/sum?tab=tasks', 'compare?a=count@2&b=count@4']) {
      const page = await open(path, { viewport: { width: 360, height: 740 }, colorScheme: 'dark' });
      await page.waitForTimeout(500);
      assert(await page.evaluate(() => document.documentElement.scrollWidth) <= 360, path);
      if (path === 't/rename') await picture(page, 'narrow');
      await page.context().close();
    }
  },

  async 'pictures'() {
    if (!screens) return;
    for (const [name, path] of [['thread-dark', 't/rename'], ['failed', 't/sum?tab=tasks'], ['compare', 'compare?a=count@4&b=count@6']]) {
      const page = await open(path, { colorScheme: name === 'failed' ? 'light' : 'dark' });
      await page.waitForTimeout(800);
      await picture(page, name);
      await page.context().close();
    }
  },
};

for (const [name, step] of Object.entries(steps)) {
  if (process.env.ONLY && !name.includes(process.env.ONLY)) continue;
  try {
    await step();
  } catch (error) {
    console.error(`FAILED: ${name}`);
    throw error;
  }
}
await browser.close();
console.log('done');
