// The TypeScript SDK's tool runner and the AI SDK, unchanged, while a tool is late, connections are lost between request and
// answer, and the server is killed. Run by ../go, whose door stands before the servers; all clients go through it at once.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import Anthropic from '@anthropic-ai/sdk';
import { betaTool } from '@anthropic-ai/sdk/helpers/beta/json-schema';
import { createAnthropic, forwardAnthropicContainerIdFromLastStep } from '@ai-sdk/anthropic';
import { generateText, isStepCount, streamText, tool } from 'ai';
import { z } from 'zod';

const env = (name) => process.env[name] ?? assert.fail(`${name} is needed; run it through make test`);
const fence = (info, body) => '```' + info + '\n' + body + '\n```';
const prompt = (code) => [fence('cell', code), fence('bash', 'echo goes on')].join('\n');
const schema = { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] };

const faults = {
  late: ["try:\n    await lookup({'n': 1})\nexcept TimeoutError as e:\n    print(e)", "Calling tools ['lookup'] timed out after 10 seconds.\n", 1, 'door/late'],
  killed: ["print(await lookup({'n': 1}))", 'unavailable', 1, 'door/kill'],
  lost: ["import time\nseen = []\nfor n in range(2):\n    seen.append(await lookup({'n': n}))\n    time.sleep(0.05)\nprint(seen)", "['value 0', 'value 1']\n", 2],
};

/** What a client's tool does: whatever the door does before it answers. */
const lookup = (base, before, calls) => async ({ n }) => {
  calls.push(n);
  if (before) {
    const r = await fetch(`${base}/${before}`, { method: 'POST' });
    assert.ok(r.ok, await r.text());
  }
  return `value ${n}`;
};

async function sdk(base, key, code, before) {
  const calls = [];
  const client = new Anthropic({ baseURL: base, apiKey: key });
  const run = {
    ...betaTool({ name: 'lookup', description: 'Looks a number up', inputSchema: schema, run: lookup(base, before, calls) }),
    allowed_callers: ['code_execution_20260120'],
  };
  const last = await client.beta.messages.toolRunner({
    model: 'script', max_tokens: 4096, messages: [{ role: 'user', content: prompt(code) }],
    tools: [{ type: 'code_execution_20260120', name: 'code_execution' }, run],
  }).runUntilDone();
  const { content } = last.content.find((b) => b.type === 'code_execution_tool_result');
  const bash = last.content.find((b) => b.type === 'bash_code_execution_tool_result').content;
  return { calls, finish: last.stop_reason, printed: content.error_code ?? content.stdout, after: bash.stdout };
}

const ai = (send) => async (base, key, code, before) => {
  const calls = [];
  const anthropic = createAnthropic({ baseURL: `${base}/v1`, apiKey: key });
  const done = await send({
    model: anthropic('script'), prompt: prompt(code), stopWhen: isStepCount(20), prepareStep: forwardAnthropicContainerIdFromLastStep,
    tools: {
      code_execution: anthropic.tools.codeExecution_20260120(),
      lookup: tool({
        description: 'Looks a number up', inputSchema: z.object({ n: z.number().int() }), execute: lookup(base, before, calls),
        providerOptions: { anthropic: { allowedCallers: ['code_execution_20260120'] } },
      }),
    },
  });
  const parts = (await done.steps).flatMap((s) => s.content);
  const outputs = parts.filter((p) => p.type === 'tool-result' || p.type === 'tool-error').map((p) => p.output ?? p.error);
  const cell = outputs.find((o) => o?.type?.startsWith('code_execution'));
  const bash = outputs.find((o) => o?.type === 'bash_code_execution_result');
  return { calls, finish: (await done.finishReason) === 'stop' ? 'end_turn' : await done.finishReason, printed: cell?.errorCode ?? cell?.stdout ?? parts, after: bash?.stdout };
};

const clients = { ts: sdk, 'ai-generateText': ai(generateText), 'ai-streamText': ai(streamText) };

test('every client with every fault', { concurrency: true }, async (t) => {
  const all = [];
  for (const [fault, [code, want, calls, before]] of Object.entries(faults)) {
    for (const [name, run] of Object.entries(clients)) {
      all.push(t.test(`${fault}, ${name}`, async () => {
        const got = await run(`${env(`${fault.toUpperCase()}_URL`)}/${name}`, env(`${fault.toUpperCase()}_KEY`), code, before);
        assert.deepEqual({ ...got, calls: got.calls.length }, { calls, finish: 'end_turn', printed: want, after: 'goes on\n' });
      }));
    }
  }
  await Promise.all(all);
});
