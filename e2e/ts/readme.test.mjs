// The README's snippets, as they are but for the address, the model and the prompt.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { bytes, fence, key, url } from './airlock.mjs';

/** Runs the nth snippet in a folder of its own, which check looks into. */
async function run(n, from, prompt, check) {
  const readme = await readFile('../../README.md', 'utf8');
  const snippet = [...readme.matchAll(/```ts\n([\s\S]*?)```/g)][n][1];
  const script = snippet.replace('http://127.0.0.1:8787', url).replace(from, () => JSON.stringify(prompt));
  assert.ok(script.includes(JSON.stringify(prompt)), 'the prompt was not replaced');
  const dir = await mkdtemp(path.join(process.cwd(), 'node_modules', '.readme-'));
  try {
    await writeFile(path.join(dir, 'report.docx'), bytes);
    await writeFile(path.join(dir, 'snippet.mjs'), script);
    const { stdout } = await promisify(execFile)(process.execPath, ['snippet.mjs'], { cwd: dir, env: { ...process.env, AIRLOCK_KEY: key } });
    await check(dir, stdout);
  } finally {
    await rm(dir, { recursive: true });
  }
}

test('the snippet for the SDK brings back the edited file, beside the given one', async () => {
  const prompt = fence('bash', 'cat "$INPUT_DIR/report.docx" "$INPUT_DIR/report.docx" > "$OUTPUT_DIR/report.docx"');
  await run(0, /'Add a summary[^']*'/, prompt, async (dir) => {
    const [results] = (await readdir(dir)).filter((name) => name.startsWith('results-'));
    const got = await readFile(path.join(dir, results, 'report.docx'));
    assert.ok(got.equals(Buffer.concat([bytes, bytes])), `${got.length} bytes came back`);
    assert.ok((await readFile(path.join(dir, 'report.docx'))).equals(bytes), 'the given file was replaced');
  });
});

test('the snippet for the AI SDK prints the answer', async () => {
  await run(1, /'Which prime[^']*'/, fence('bash', 'echo 10007') + '\nIt is 10007.', (dir, stdout) => {
    assert.match(stdout, /It is 10007\./);
  });
});
