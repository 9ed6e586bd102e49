// The five programs against the recording gateway: in Node, and in workerd, which has web APIs alone. The same programs run
// against a real server in ./server.
import assert from 'node:assert/strict';
import { readdir, readFile } from 'node:fs/promises';
import { test } from 'node:test';
import { bash, calls, cell, file, made, plain, printed, refuse, says, startGateway, text } from './gateway.mjs';
import { inProcess, inWorkerd, names, runProgram } from './programs.mjs';
import { startWorkerd } from './workerd.mjs';

const uploaded = plain(200, file('file_in', { filename: 'in.csv', mime_type: 'text/csv', downloadable: false }));
const out = file('file_out', { filename: 'out.csv', size_bytes: 28 });
const edited = says('end_turn', 'container_1', bash('srvtoolu_1'), made('srvtoolu_1', 'file_out'), text('Edited.'));
const answers = {
  'upload-and-edit': [uploaded, edited],
  'download': [
    uploaded, edited, plain(200, out),
    plain(200, 'name,amount\nA,1\nB,2\ntotal,3\n', { 'content-type': 'text/csv', 'content-disposition': `attachment; filename="out.csv"` }),
    plain(200, { data: [out], next_page: null }), plain(200, { id: 'file_out', type: 'file_deleted' }), refuse(404, 'Not found'),
  ],
  'keep-sandbox': [says('end_turn', 'container_1', text('ok')), says('end_turn', 'container_1', text('kept for the next turn'))],
  'callable-tool': [
    says('tool_use', 'container_1', cell('srvtoolu_1'), calls('toolu_1', 'lookup_deals', { quarter: 'Q1' }, 'srvtoolu_1'), calls('toolu_2', 'lookup_deals', { quarter: 'Q2' }, 'srvtoolu_1')),
    says('end_turn', 'container_1', printed('srvtoolu_1', 'Q1\n'), text('Compared.')),
  ],
  'app-scope-job': [uploaded, uploaded, edited, plain(200, out)],
};
const prompts = { edit: 'Add a total.', remember: 'Remember.', recall: 'Recall.', compare: 'Compare.' };

/** Token and scope of each request, and the container of messages: who paid, who may use it, where it went on. */
const wanted = {
  'upload-and-edit': ['user.jwt user', 'user.jwt user'],
  'download': Array(7).fill('user.jwt user'),
  'keep-sandbox': ['user.jwt user', 'user.jwt user container_1'],
  'callable-tool': ['user.jwt user', 'user.jwt user container_1'],
  'app-scope-job': ['user.jwt app', 'owner.jwt app', 'owner.jwt app', 'owner.jwt app'],
};
const seen = ({ headers, url, body }) => [
  headers['x-auth-token'], headers['x-deepspace-sandbox-scope'], ...(url.endsWith('/messages') && JSON.parse(body).container ? [JSON.parse(body).container] : []),
].join(' ');

for (const name of names) {
  for (const mode of ['streamed', 'plain']) {
    for (const where of ['Node', 'workerd']) {
      test(`${name}, ${mode}, in ${where}`, async (t) => {
        const g = await startGateway(t, answers[name]);
        const ask = where === 'Node' ? inProcess(g.env) : inWorkerd(await startWorkerd(t, g.env));
        await runProgram(name, { ask, prompts, userToken: 'user.jwt', plain: mode === 'plain' });
        assert.deepEqual(g.got.map(seen), wanted[name]);
        for (const { url, body } of g.got) if (url.endsWith('/messages')) assert.equal(!!JSON.parse(body).stream, mode === 'streamed');
      });
    }
  }
}

test('each program names the package in one line', async () => {
  const folder = new URL('../.build/examples/', import.meta.url);
  const files = (await readdir(folder)).filter((f) => f.endsWith('.ts'));
  assert.deepEqual(files.sort(), names.map((n) => `${n}.ts`).sort());
  for (const f of files) {
    const lines = (await readFile(new URL(f, folder), 'utf8')).split('\n');
    assert.equal(lines.filter((line) => /airlock/i.test(line)).length, 1, `${f}: moving from the package it replaces changes the import line only`);
  }
});
