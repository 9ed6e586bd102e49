// ai and @ai-sdk/anthropic, unchanged.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createAnthropic, forwardAnthropicContainerIdFromLastStep } from '@ai-sdk/anthropic';
import { generateText, isStepCount, streamText, tool, uploadFile } from 'ai';
import { z } from 'zod';
import { allSubTools, bytes, fence, key, longEdit, model, script, url } from './airlock.mjs';

const anthropic = createAnthropic({ baseURL: `${url}/v1`, apiKey: key });
const code_execution = anthropic.tools.codeExecution_20260120();
const base = { model: anthropic(model), tools: { code_execution }, stopWhen: isStepCount(20) };

const outputs = (r) => r.steps.flatMap((s) => s.toolResults).map((t) => t.output);

test('all sub-tools, generateText', async () => {
  const r = await generateText({ ...base, prompt: allSubTools });
  assert.equal(r.finishReason, 'stop');
  assert.deepEqual(outputs(r).map((o) => o.type), [
    'bash_code_execution_result',
    'text_editor_code_execution_view_result',
    'text_editor_code_execution_str_replace_result',
    'text_editor_code_execution_create_result',
    'code_execution_result',
    'code_execution_result',
  ]);
  assert.equal(outputs(r)[5].stdout.trim(), '42');
});

test('all sub-tools, streamText: no error part', async () => {
  const r = streamText({ ...base, prompt: allSubTools });
  const bad = [];
  for await (const part of r.fullStream) if (part.type === 'error' || part.type === 'tool-error') bad.push(part);
  assert.deepEqual(bad, []);
  const inputs = (await r.steps).flatMap((s) => s.toolCalls).map((c) => c.input.type);
  assert.equal(inputs[0], 'bash_code_execution');
});

test('forwardAnthropicContainerIdFromLastStep keeps one container over steps with a client tool', async () => {
  const weather = tool({
    description: 'The weather of a city',
    inputSchema: z.object({ city: z.string() }),
    execute: async ({ city }) => `sunny in ${city}`,
  });
  for (const send of [generateText, streamText]) {
    const r = send({
      ...base,
      tools: { code_execution, weather },
      prepareStep: forwardAnthropicContainerIdFromLastStep,
      prompt: script(
        fence('bash', 'echo one > trail'), fence('tool weather', '{"city":"Rome"}'),
        fence('bash', 'echo two >> trail'), fence('tool weather', '{"city":"Oslo"}'),
        fence('bash', 'cat trail | wc -l'), 'Finished.',
      ),
    });
    const done = await r;
    const steps = await done.steps;
    const ids = steps.map((s) => s.providerMetadata?.anthropic?.container?.id);
    assert.equal(steps.length, 3, send.name);
    assert.equal(new Set(ids).size, 1, `${send.name}: ${ids}`);
    assert.match(ids[0], /^container_/);
    const last = steps.at(-1).toolResults.at(-1).output;
    assert.equal(last.stdout.trim(), '2', send.name);
  }
});

test('a saved container id is used on the next turn', async () => {
  const first = await generateText({ ...base, prompt: fence('bash', 'echo kept > file.txt') });
  const id = first.steps.at(-1).providerMetadata.anthropic.container.id;
  const second = await generateText({
    ...base,
    messages: [
      { role: 'user', content: fence('bash', 'echo kept > file.txt') },
      ...first.response.messages,
      { role: 'user', content: fence('bash', 'cat file.txt') },
    ],
    providerOptions: { anthropic: { container: { id } } },
  });
  assert.equal(outputs(second).at(-1).stdout, 'kept\n');
  assert.equal(second.steps.at(-1).providerMetadata.anthropic.container.id, id);
});

test('upload into the container, output out of it, the same bytes; metadata; delete', async () => {
  const files = anthropic.files();
  const { providerReference } = await uploadFile({ api: files, data: bytes, filename: 'data.bin', mediaType: 'application/octet-stream' });
  const r = await generateText({
    ...base,
    messages: [{
      role: 'user',
      content: [
        { type: 'text', text: fence('bash', 'cp "$INPUT_DIR/data.bin" "$OUTPUT_DIR/same.bin"') },
        {
          type: 'file', mediaType: 'application/octet-stream',
          data: { type: 'reference', reference: providerReference },
          providerOptions: { anthropic: { containerUpload: true } },
        },
      ],
    }],
  });
  const made = outputs(r)[0];
  assert.equal(made.content.length, 1, JSON.stringify(made));
  const file = { anthropic: made.content[0].file_id };
  const meta = await files.getFileMetadata({ file });
  assert.equal(meta.filename, 'same.bin');
  assert.equal(meta.byteSize, bytes.length);
  const download = await files.downloadFile({ file });
  const got = Buffer.from(await new Response(download.content).arrayBuffer());
  assert.ok(got.equals(bytes));
  await files.deleteFile({ file });
  await assert.rejects(files.getFileMetadata({ file }));
});

test('45 edits finish under isStepCount(20)', async () => {
  const r = await generateText({ ...base, prompt: longEdit(45) });
  assert.equal(r.finishReason, 'stop');
  assert.equal(outputs(r).length, 45);
  assert.equal(outputs(r).at(-1).stdout, '45\n');
});

const codeCalls = { one: ["print(await lookup({'n': 1}))", 'value 1\n', 1],
  'three together': ["import asyncio\nprint(await asyncio.gather(*[lookup({'n': n}) for n in range(3)]))", "['value 0', 'value 1', 'value 2']\n", 3],
  'fifty one after another': ["s = 0\nfor n in range(50):\n    s += int((await lookup({'n': n})).split()[1])\nprint(s)", '1225\n', 50],
  'an error': ["print(await lookup({'n': -1}))\nprint(await lookup({'n': 2}))", /below zero[^]*value 2\n$/, 2] };

for (const [name, [code, want, calls]] of Object.entries(codeCalls)) {
  for (const send of [generateText, streamText]) {
    test(`code calls tools with allowedCallers, ${send.name}: ${name}`, async () => {
      let called = 0;
      const lookup = tool({
        description: 'Looks a number up',
        inputSchema: z.object({ n: z.number().int() }),
        execute: async ({ n }) => {
          called += 1;
          if (n < 0) throw new Error('below zero');
          return `value ${n}`;
        },
        providerOptions: { anthropic: { allowedCallers: ['code_execution_20260120'] } },
      });
      const done = await send({
        ...base, tools: { code_execution, lookup }, stopWhen: isStepCount(60),
        prepareStep: forwardAnthropicContainerIdFromLastStep, prompt: fence('cell', code),
      });
      const steps = await done.steps;
      assert.equal(await done.finishReason, 'stop');
      assert.equal(called, calls);
      const { stdout } = steps.flatMap((s) => s.toolResults).map((r) => r.output).find((o) => o?.type === 'code_execution_result');
      if (want instanceof RegExp) assert.match(stdout, want);
      else assert.equal(stdout, want);
    });
  }
}
