// The README's snippet, as it is but for the address and the prompt.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { bytes, fence, key, url } from './airlock.mjs';

test('the snippet of the README brings back the edited file', async () => {
  const readme = await readFile('../../README.md', 'utf8');
  const snippet = readme.match(/```ts\n([\s\S]*?)```/)[1];
  const prompt = fence('bash', 'cat "$INPUT_DIR/report.docx" "$INPUT_DIR/report.docx" > "$OUTPUT_DIR/twice.docx"');
  const script = snippet
    .replace('http://127.0.0.1:8787', url)
    .replace(/'Add a summary[^']*'/, () => JSON.stringify(prompt));
  assert.notEqual(script.includes('summary'), true, 'the prompt was not replaced');
  const dir = await mkdtemp(path.join(process.cwd(), 'node_modules', '.readme-'));
  try {
    await writeFile(path.join(dir, 'report.docx'), bytes);
    await writeFile(path.join(dir, 'snippet.mjs'), script);
    await promisify(execFile)(process.execPath, ['snippet.mjs'], { cwd: dir, env: { ...process.env, AIRLOCK_KEY: key } });
    const got = await readFile(path.join(dir, 'twice.docx'));
    assert.ok(got.equals(Buffer.concat([bytes, bytes])), `${got.length} bytes came back`);
  } finally {
    await rm(dir, { recursive: true });
  }
});
