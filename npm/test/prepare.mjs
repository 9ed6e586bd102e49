// What the tests need beside dist: the examples where this package's name leads to it, and all of it as one Worker.
import { cp, mkdir, readdir, rm } from 'node:fs/promises';
import { build } from 'esbuild';

const here = (path) => new URL(`../${path}`, import.meta.url).pathname;

await rm(here('.build'), { recursive: true, force: true });
await mkdir(here('.build'));
await mkdir(here('.build/examples'));
for (const name of await readdir(here('../examples/ts'))) {
  // Without their package.json: below that of this package its own name leads to it.
  if (name.endsWith('.ts')) await cp(here(`../examples/ts/${name}`), here(`.build/examples/${name}`));
}
await cp(here('test/workerd/worker.ts'), here('.build/worker.ts'));
await build({
  entryPoints: [here('.build/worker.ts')],
  outfile: here('.build/worker.js'),
  bundle: true, format: 'esm', target: 'es2022', platform: 'browser', conditions: ['workerd', 'worker', 'browser'], logLevel: 'warning',
});
