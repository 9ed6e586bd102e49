// workerd, the runtime of Cloudflare Workers, without any of its compatibility flags for Node.
import { spawn } from 'node:child_process';
import { mkdtemp, rm, writeFile, copyFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import path from 'node:path';

// The bundle holds `ai`, which looks at its own address.
const config = (env) => `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [
    (name = "main", worker = (
      modules = [(name = "worker.js", esModule = embed "worker.js")],
      compatibilityDate = "2026-10-01",
      bindings = [${Object.entries(env).map(([name, text]) => `(name = "${name}", text = ${JSON.stringify(text)})`).join(', ')}],
    )),
    # The gateway of the tests is on loopback, which the default keeps out.
    (name = "internet", network = (allow = ["private"])),
  ],
  sockets = [(name = "http", address = "127.0.0.1:0", http = (), service = "main")],
);
`;

/** Starts one that has env as its bindings; the promise gives its address. */
export async function startWorkerd(t, env) {
  const dir = await mkdtemp(path.join(tmpdir(), 'airlock-workerd-'));
  t.after(() => rm(dir, { recursive: true, force: true }));
  await copyFile(new URL('../.build/worker.js', import.meta.url), path.join(dir, 'worker.js'));
  await writeFile(path.join(dir, 'config.capnp'), config(env));
  const { default: bin } = createRequire(import.meta.url)('workerd');
  const child = spawn(bin, ['serve', '--control-fd=3', path.join(dir, 'config.capnp')], { stdio: ['ignore', 'inherit', 'inherit', 'pipe'] });
  const ended = new Promise((resolve) => child.once('exit', resolve));
  t.after(async () => { child.kill('SIGKILL'); await ended; });
  const port = await new Promise((resolve, reject) => {
    let said = '';
    child.stdio[3].on('data', (chunk) => {
      said += chunk;
      const event = said.split('\n').filter(Boolean).map((line) => { try { return JSON.parse(line); } catch { return {}; } }).find((e) => e.event === 'listen');
      if (event) resolve(event.port);
    });
    child.once('error', reject);
    ended.then((code) => reject(new Error(`workerd ended with ${code}`)));
  });
  return `http://127.0.0.1:${port}`;
}
