// Uploads and downloads.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { SandboxFileError, SANDBOX_SCOPE_HEADER, SANDBOX_SCOPES, sandboxFiles } from '@airlock-sandbox/worker';
import { file, plain, refuse, startGateway } from './gateway.mjs';

const uri = '/api/proxy/anthropic/v1/files';

/** The parts of a form, as the gateway got them. */
const parts = async ({ body, contentType }) => Object.fromEntries(
  await new Response(body, { headers: { 'content-type': contentType } }).formData());

test('upload sends the file, its name and its expiry, and no header of Anthropic', async (t) => {
  const g = await startGateway(t, [plain(200, file('file_1')), plain(200, file('file_2')), plain(200, file('file_3'))]);
  const files = sandboxFiles(g.env, { authToken: async () => 'user.jwt', scope: 'app' });
  const made = await files.upload(new Blob(['a,b\n'], { type: 'text/csv' }), { filename: 'ü "q".csv', expiresInSeconds: 7200 });
  assert.deepEqual(made, file('file_1'));
  await files.upload(new File(['x'], 'named.txt'));
  await files.upload(new File(['x'], 'named.txt'), { filename: 'other.txt' });
  const [first, ...others] = g.got;
  assert.deepEqual([first.method, first.url], ['POST', uri]);
  assert.deepEqual(first.headers, {
    'x-auth-token': 'user.jwt', 'x-app-id': 'app_01', 'x-app-identity-token': 'v1.identity', [SANDBOX_SCOPE_HEADER]: 'app',
  });
  const form = await parts(first);
  assert.equal(form.expires_in_seconds, '7200');
  assert.deepEqual([form.file.type, await form.file.text()], ['text/csv', 'a,b\n']);
  assert.match(first.body, /filename="ü %22q%22\.csv"/);
  assert.deepEqual(await Promise.all(others.map(async (r) => Object.entries(await parts(r)).map(([k, v]) => [k, v.name]))), [[['file', 'named.txt']], [['file', 'other.txt']]]);
});

test('a Blob without a name is refused before anything is sent', async (t) => {
  const g = await startGateway(t);
  await assert.rejects(sandboxFiles(g.env).upload(new Blob(['x'])), (e) => e instanceof SandboxFileError && e.status === 400 && /name/.test(e.message));
  assert.equal(g.got.length, 0);
});

test('get, download, list, delete', async (t) => {
  const g = await startGateway(t, [
    plain(200, file('file_1')),
    plain(200, '%PDF', { 'content-type': 'application/pdf', 'content-disposition': 'attachment; filename="a.pdf"' }),
    plain(200, { data: [file('file_1')], next_page: 'page_2', has_more: true }), plain(200, { data: [] }),
    plain(200, { id: 'file_1', type: 'file_deleted' }),
    plain(200, file('file_1')),
  ]);
  const files = sandboxFiles(g.env);
  assert.deepEqual(await files.get('file_1'), file('file_1'));
  const content = await files.download('file_1');
  assert.deepEqual([content.headers.get('content-type'), content.headers.get('content-disposition')], ['application/pdf', 'attachment; filename="a.pdf"']);
  assert.ok(content.body instanceof ReadableStream);
  assert.equal(await content.text(), '%PDF');
  assert.deepEqual(await files.list({ limit: 7, page: 'page_1.file_1' }), { data: [file('file_1')], next_page: 'page_2' });
  assert.deepEqual(await files.list(), { data: [], next_page: null });
  assert.equal(await files.delete('file_1'), undefined);
  await files.get('file_a?x=1#y');
  assert.deepEqual(g.got.map(({ method, url }) => `${method} ${url}`), [
    `GET ${uri}/file_1`, `GET ${uri}/file_1/content`, `GET ${uri}?limit=7&page=page_1.file_1`, `GET ${uri}`, `DELETE ${uri}/file_1`,
    `GET ${uri}/file_a%3Fx%3D1%23y`,
  ]);
  assert.deepEqual(g.got[0].headers, {
    'x-auth-token': 'owner.jwt', 'x-app-id': 'app_01', 'x-app-identity-token': 'v1.identity', [SANDBOX_SCOPE_HEADER]: 'user',
  });
});

test('no id leads to another path', async (t) => {
  const g = await startGateway(t, [refuse(404, 'Not found')]);
  const files = sandboxFiles(g.env);
  for (const id of ['', '.', '..']) {
    for (const call of [files.get, files.download, files.delete]) await assert.rejects(call(id), { name: 'SandboxFileError', status: 400 });
  }
  assert.equal(g.got.length, 0);
  await assert.rejects(files.get('../messages'), { status: 404 });
  assert.equal(g.got[0].url, `${uri}/..%2Fmessages`);
});

test('refusals of every shape become a SandboxFileError', async (t) => {
  const cases = [
    [refuse(404, 'Not found', 'file_expired'), 404, 'Not found', 'file_expired'],
    [plain(402, { error: 'insufficient_credits' }), 402, 'insufficient_credits', undefined],
    [plain(400, { error: { reason: 'x' } }), 400, '{"reason":"x"}', undefined],
    [plain(502, '<html>'), 502, '<html>', undefined],
    [plain(503, 'null'), 503, 'null', undefined],
    [(res) => { res.writeHead(500, 'Broken'); res.end(); }, 500, 'Broken', undefined],
    [plain(307, '', { location: 'http://127.0.0.1:1' }), 307, 'Temporary Redirect', undefined],
  ];
  const g = await startGateway(t, cases.map(([answer]) => answer));
  for (const [, status, detail, code] of cases) {
    await assert.rejects(sandboxFiles(g.env).get('file_1'), (e) => {
      assert.ok(e instanceof SandboxFileError && e instanceof Error);
      assert.deepEqual([e.name, e.status, e.code, e.message], ['SandboxFileError', status, code, `Sandbox file request failed (${status}): ${detail}`]);
      return true;
    });
  }
});

test('a token function is asked for every request', async (t) => {
  const g = await startGateway(t, [plain(200, { data: [], next_page: null }), plain(200, { data: [], next_page: null })]);
  let n = 0;
  const files = sandboxFiles(g.env, { authToken: () => `token-${++n}` });
  await files.list();
  await files.list();
  assert.deepEqual(g.got.map(({ headers }) => headers['x-auth-token']), ['token-1', 'token-2']);
});

test('what env or an option lacks is said before anything is sent', () => {
  assert.throws(() => sandboxFiles({ APP_OWNER_JWT: 'jwt' }), /API_WORKER/);
  assert.throws(() => sandboxFiles({ API_WORKER_URL: 'http://g' }), /APP_OWNER_JWT/);
  assert.throws(() => sandboxFiles({ API_WORKER_URL: 'http://g', APP_OWNER_JWT: 'jwt' }, { scope: 'team' }), /user or app/);
  assert.deepEqual(SANDBOX_SCOPES, ['user', 'app']);
});
