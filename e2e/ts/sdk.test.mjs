// @anthropic-ai/sdk, unchanged.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import Anthropic, { toFile } from '@anthropic-ai/sdk';
import { betaTool } from '@anthropic-ai/sdk/helpers/beta/json-schema';
import { allSubTools, bytes, fence, key, longEdit, model, script, url } from './airlock.mjs';

const client = new Anthropic({ baseURL: url, apiKey: key });
const tools = [{ type: 'code_execution_20260120', name: 'code_execution' }];
const ask = (content, more = {}) => ({ model, max_tokens: 4096, tools, messages: [{ role: 'user', content }], ...more });

const kinds = [
  'text',
  'server_tool_use', 'bash_code_execution_tool_result',
  'server_tool_use', 'text_editor_code_execution_tool_result',
  'server_tool_use', 'text_editor_code_execution_tool_result',
  'server_tool_use', 'text_editor_code_execution_tool_result',
  'server_tool_use', 'code_execution_tool_result',
  'server_tool_use', 'code_execution_tool_result',
  'text',
];

for (const [name, send] of [
  ['plain', (p) => client.messages.create(p)],
  ['streamed', (p) => client.messages.stream(p).finalMessage()],
  ['beta, streamed', (p) => client.beta.messages.stream(p).finalMessage()],
]) {
  test(`all sub-tools, ${name}`, async () => {
    const m = await send(ask(allSubTools));
    assert.deepEqual(m.content.map((b) => b.type), kinds);
    assert.equal(m.stop_reason, 'end_turn');
    assert.match(m.container.id, /^container_/);
    assert.equal(m.content[2].content.stdout.trim(), '2');
    assert.equal(m.content[12].content.stdout.trim(), '42');
  });
}

test('a saved container id keeps files and variables; the blocks go back as they came', async () => {
  const first = await client.messages.create(ask(script(fence('bash', 'echo kept > file.txt'), fence('cell', 'x = 7'))));
  const next = script(fence('bash', 'cat file.txt'), fence('cell', 'x * 6'));
  const second = await client.messages.create({
    ...ask(''),
    container: first.container.id,
    messages: [
      ask(script(fence('bash', 'echo kept > file.txt'), fence('cell', 'x = 7'))).messages[0],
      { role: 'assistant', content: first.content },
      { role: 'user', content: next },
    ],
  });
  assert.equal(second.container.id, first.container.id);
  const [bash, cell] = second.content.filter((b) => b.type.endsWith('_tool_result'));
  assert.equal(bash.content.stdout, 'kept\n');
  assert.equal(cell.content.stdout.trim(), '42');
});

test('upload, edit, download: the same bytes; then delete', async () => {
  const up = await client.files.upload({ file: await toFile(bytes, 'data.bin'), expires_in_seconds: 3600 });
  assert.equal(up.downloadable, false);
  assert.equal(up.size_bytes, bytes.length);
  const m = await client.messages.create(ask([
    { type: 'text', text: fence('bash', 'cp "$INPUT_DIR/data.bin" "$OUTPUT_DIR/same.bin"') },
    { type: 'container_upload', file_id: up.id },
  ]));
  const result = m.content.find((b) => b.type === 'bash_code_execution_tool_result').content;
  assert.equal(result.content.length, 1, JSON.stringify(result));
  const id = result.content[0].file_id;
  const meta = await client.files.retrieveMetadata(id);
  assert.equal(meta.filename, 'same.bin');
  assert.equal(meta.downloadable, true);
  const got = Buffer.from(await (await client.files.download(id)).arrayBuffer());
  assert.ok(got.equals(bytes), `${got.length} bytes came back, ${bytes.length} were sent`);
  await assert.rejects(client.files.download(up.id), (e) => e.status === 400 && e.error.error.details.error_code === 'file_not_downloadable');
  assert.equal((await client.files.delete(id)).type, 'file_deleted');
  await assert.rejects(client.files.retrieveMetadata(id), { status: 404 });
});

test('the list pages through every file once', async () => {
  const made = new Set();
  for (let i = 0; i < 5; i++) made.add((await client.files.upload({ file: await toFile(Buffer.from('x'), `page${i}.txt`) })).id);
  const seen = new Map();
  for await (const f of client.files.list({ limit: 2 })) seen.set(f.id, (seen.get(f.id) ?? 0) + 1);
  for (const id of made) assert.equal(seen.get(id), 1, id);
});

test('the tool runner finishes with its default options', async () => {
  let calls = 0;
  const weather = betaTool({
    name: 'weather',
    description: 'The weather of a city',
    inputSchema: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
    run: ({ city }) => (calls++, `sunny in ${city}`),
  });
  const last = await client.beta.messages.toolRunner(ask(script(
    fence('bash', 'echo one > trail'),
    fence('tool weather', '{"city":"Rome"}'),
    fence('bash', 'echo two >> trail; wc -l < trail'),
    'Finished.',
  ), { tools: [...tools, weather], max_iterations: 6 })).runUntilDone();
  assert.equal(calls, 1);
  assert.equal(last.stop_reason, 'end_turn');
  const result = last.content.find((b) => b.type === 'bash_code_execution_tool_result');
  assert.equal(result.content.stdout, '2\n', 'the last answer did not work in the container of the first');
});

test('45 edits are one step of the tool runner', async () => {
  const last = await client.beta.messages.toolRunner(ask(longEdit(45), { max_iterations: 3 })).runUntilDone();
  assert.equal(last.stop_reason, 'end_turn');
  assert.equal(last.content.filter((b) => b.type === 'bash_code_execution_tool_result').at(-1).content.stdout, '45\n');
});

const codeCalls = { one: ["print(await lookup({'n': 1}))", 'value 1\n'],
  'three together': ["import asyncio\nprint(await asyncio.gather(*[lookup({'n': n}) for n in range(3)]))", "['value 0', 'value 1', 'value 2']\n"],
  'fifty one after another': ["s = 0\nfor n in range(50):\n    s += int((await lookup({'n': n})).split()[1])\nprint(s)", '1225\n'],
  'an error': ["print(await lookup({'n': -1}))\nprint(await lookup({'n': 2}))", /below zero\nvalue 2\n$/] };

for (const [name, [code, want]] of Object.entries(codeCalls)) {
  test(`the tool runner answers code that calls its tools: ${name}`, async () => {
    const lookup = {
      ...betaTool({
        name: 'lookup',
        description: 'Looks a number up',
        inputSchema: { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] },
        run: ({ n }) => {
          if (n < 0) throw new Error('below zero');
          return `value ${n}`;
        },
      }),
      allowed_callers: ['code_execution_20260120'],
    };
    const last = await client.beta.messages.toolRunner(ask(fence('cell', code), { tools: [...tools, lookup] })).runUntilDone();
    assert.equal(last.stop_reason, 'end_turn');
    const { stdout } = last.content.find((b) => b.type === 'code_execution_tool_result').content;
    if (want instanceof RegExp) assert.match(stdout, want);
    else assert.equal(stdout, want);
  });
}
