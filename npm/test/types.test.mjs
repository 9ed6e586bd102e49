// What is built is typed as promised, and is for every runtime with web APIs.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { test } from 'node:test';
import { promisify } from 'node:util';

const root = new URL('..', import.meta.url).pathname;

test('tsc --strict takes every program, the uses in test/types and the program of the README', async (t) => {
  const [, program] = (await readFile(`${root}/README.md`, 'utf8')).match(/^```ts\n([^]*?)^```$/m);
  const given = `import type { DeepSpaceAIEnv } from '@airlock-sandbox/worker';
declare const env: DeepSpaceAIEnv, authToken: string, document: Blob, save: (content: unknown) => Promise<void>;\n`;
  t.after(() => rm(`${root}/test/types/readme.ts`));
  await writeFile(`${root}/test/types/readme.ts`, given + program);
  const { stdout } = await promisify(execFile)('node_modules/.bin/tsc', ['-p', 'test/types'], { cwd: root }).catch((e) => e);
  assert.equal(stdout, '');
});

test('dist imports the two peers and itself, and knows nothing of Node', async () => {
  const files = (await readdir(`${root}/dist`)).filter((f) => f.endsWith('.js'));
  assert.ok(files.includes('index.js'));
  for (const f of files) {
    const source = (await readFile(`${root}/dist/${f}`, 'utf8')).replace(/\/\*[^]*?\*\/|\/\/.*/g, '');
    for (const [, name] of source.matchAll(/(?:from|import|require)\s*\(?\s*['"]([^'"]+)['"]/g)) {
      assert.match(name, /^(ai|@ai-sdk\/anthropic|\.\/[a-z]+\.js)$/, f);
    }
    assert.doesNotMatch(source, /\b(process|Buffer|__dirname|__filename|setImmediate|globalThis|global|node:)\b/, f);
  }
});

test('what is published is the build, its types and the README', async () => {
  const pkg = JSON.parse(await readFile(`${root}/package.json`, 'utf8'));
  assert.deepEqual(Object.keys(pkg.peerDependencies).sort(), ['@ai-sdk/anthropic', 'ai']);
  assert.equal(pkg.dependencies, undefined);
  assert.deepEqual(pkg.files, ['dist']);
  const lock = await readFile(`${root}/package-lock.json`, 'utf8');
  assert.doesNotMatch(lock, /https?:\/\/[^"]*\.tgz/, 'the lock file names a registry');
  assert.match(await readFile(`${root}/README.md`, 'utf8'), new RegExp(`helper ${pkg.version.split('.').slice(0, 2).join('\\.')}\\b`), 'the README promises for another version');
});
