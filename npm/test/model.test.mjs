// Models behind the gateway, through the real ai and @ai-sdk/anthropic.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { generateText, isStepCount, streamText, tool } from 'ai';
import { z } from 'zod';
import {
  callableFromSandbox, codeExecutionTool, createAirlockAI, createDeepSpaceAI, forwardSandboxContainer, reuseSandbox,
  sandboxOutputs, sandboxUpload,
} from '@airlock-sandbox/worker';
import { bash, calls, cell, file, made, plain, printed, refuse, says, startGateway, text } from './gateway.mjs';

const uri = '/api/proxy/anthropic/v1/messages';
const sends = [generateText, streamText];

/** Runs one to its end; an error part of a stream fails the test. */
async function run(send, settings) {
  const result = send({ maxRetries: 2, ...settings, ...(send === streamText && { onError: () => {} }) });
  if (send === streamText) {
    for await (const part of result.fullStream) if (part.type === 'error') throw part.error;
  }
  const done = await result;
  return { text: await done.text, steps: await done.steps };
}

for (const send of sends) {
  test(`${send.name}: path, headers and body of an upload that is edited`, async (t) => {
    const g = await startGateway(t, [says('end_turn', 'container_1', bash('srvtoolu_1'), made('srvtoolu_1', 'file_out'), text('Done.'))]);
    const model = createDeepSpaceAI(g.env, 'anthropic', { authToken: 'user.jwt', sandboxScope: 'app' })('claude-sonnet-5');
    const { steps } = await run(send, {
      model, tools: { code_execution: codeExecutionTool() },
      messages: [{ role: 'user', content: [{ type: 'text', text: 'Edit it.' }, sandboxUpload(file('file_in', { mime_type: 'image/png' }))] }],
    });
    assert.deepEqual(sandboxOutputs(steps), { containerId: 'container_1', fileIds: ['file_out'] });
    assert.equal(g.got.length, 1);
    const [{ method, url, headers, body }] = g.got;
    assert.deepEqual([method, url], ['POST', uri]);
    assert.deepEqual(headers, {
      'x-auth-token': 'user.jwt', 'x-app-id': 'app_01', 'x-app-identity-token': 'v1.identity', 'x-deepspace-sandbox-scope': 'app',
      'anthropic-version': '2023-06-01', 'anthropic-beta': 'files-api-2025-04-14',
    });
    assert.deepEqual(JSON.parse(body), {
      model: 'claude-sonnet-5', max_tokens: 64000,
      messages: [{ role: 'user', content: [{ type: 'text', text: 'Edit it.' }, { type: 'container_upload', file_id: 'file_in' }] }],
      tools: [{ type: 'code_execution_20260120', name: 'code_execution' }],
      tool_choice: { type: 'auto' },
      ...(send === streamText && { stream: true }),
    });
  });

  test(`${send.name}: a tool that code in the sandbox calls, in one container`, async (t) => {
    const g = await startGateway(t, [
      says('tool_use', 'container_1', cell('srvtoolu_1'), calls('toolu_1', 'lookup_deals', { quarter: 'Q1' }, 'srvtoolu_1'), calls('toolu_2', 'lookup_deals', { quarter: 'Q2' }, 'srvtoolu_1')),
      says('end_turn', 'container_1', printed('srvtoolu_1', 'Q1\n'), text('Q1 is ahead.')),
    ]);
    const asked = [];
    const lookup_deals = callableFromSandbox(tool({
      description: 'The deals of a quarter', inputSchema: z.object({ quarter: z.string() }),
      execute: async ({ quarter }) => (asked.push(quarter), { quarter, rows: [1, 2] }),
    }));
    const { text: said, steps } = await run(send, {
      model: createAirlockAI(g.env, 'anthropic')('claude-sonnet-5'),
      tools: { code_execution: codeExecutionTool(), lookup_deals },
      stopWhen: isStepCount(5), prepareStep: forwardSandboxContainer, prompt: 'Which quarter is ahead?', maxOutputTokens: 1000,
    });
    assert.equal(said, 'Q1 is ahead.');
    assert.equal(steps.length, 2);
    assert.deepEqual(asked, ['Q1', 'Q2']);
    const [first, second] = g.got.map(({ body }) => JSON.parse(body));
    assert.equal(first.max_tokens, 1000);
    assert.equal(first.container, undefined);
    assert.deepEqual(first.tools[1].allowed_callers, ['direct', 'code_execution_20260120']);
    assert.equal(second.container, 'container_1');
    assert.deepEqual(second.messages.at(-1), { role: 'user', content: ['Q1', 'Q2'].map((quarter, i) => ({
      type: 'tool_result', tool_use_id: `toolu_${i + 1}`, content: JSON.stringify({ quarter, rows: [1, 2] }),
    })) });
    assert.deepEqual(second.messages[1].content.map((b) => b.type), ['server_tool_use', 'tool_use', 'tool_use']);
    // Nobody was named as the payer.
    assert.equal(g.got[1].headers['x-auth-token'], 'owner.jwt');
    assert.equal(g.got[1].headers['x-deepspace-sandbox-scope'], 'user');
  });

  test(`${send.name}: a token function is asked on every attempt`, async (t) => {
    let n = 0;
    const once = says('tool_use', 'container_1', calls('toolu_1', 'look', {}, 'srvtoolu_1'));
    const g = await startGateway(t, [refuse(529, 'overloaded'), once, says('end_turn', 'container_1', text('Done.'))]);
    for (const fresh of [() => `token-${++n}`, async () => `token-${++n}`]) {
      n = 0;
      g.got.length = 0;
      const look = tool({ inputSchema: z.object({}), execute: async () => 'ok' });
      await run(send, {
        model: createDeepSpaceAI(g.env, 'anthropic', { authToken: fresh })('m'), tools: { look }, stopWhen: isStepCount(5), prompt: 'Look.',
      });
      assert.deepEqual(g.got.map(({ headers }) => headers['x-auth-token']), ['token-1', 'token-2', 'token-3']);
    }
  });

  test(`${send.name}: a token function that fails ends the call, nothing is sent`, async (t) => {
    const g = await startGateway(t);
    for (const authToken of [() => { throw new Error('the login server is away'); }, async () => '']) {
      const model = createDeepSpaceAI(g.env, 'anthropic', { authToken })('m');
      await assert.rejects(run(send, { model, prompt: 'Hi', maxRetries: 0 }), /login server is away|empty token/);
    }
    assert.equal(g.got.length, 0);
  });

  test(`${send.name}: reuseSandbox goes on in a saved container`, async (t) => {
    const g = await startGateway(t, [says('end_turn', 'container_1', text('ok')), says('end_turn', null, text('ok'))]);
    const model = createDeepSpaceAI(g.env, 'anthropic')('m');
    await run(send, { model, prompt: 'Go on', providerOptions: reuseSandbox('container_1') });
    await run(send, { model, prompt: 'Begin', providerOptions: reuseSandbox(null) });
    assert.deepEqual(g.got.map(({ body }) => JSON.parse(body).container), ['container_1', undefined]);
  });

  test(`${send.name}: refusals arrive with status and message`, async (t) => {
    const g = await startGateway(t, [refuse(401, 'missing app identity', 'app_identity_missing')]);
    const model = createDeepSpaceAI(g.env, 'anthropic')('m');
    await assert.rejects(run(send, { model, prompt: 'Hi' }), (e) => e.statusCode === 401 && /missing app identity/.test(e.message));
    assert.equal(g.got.length, 1);
  });
}

test('without an identity token the app is not named, the scope is sent all the same', async (t) => {
  const g = await startGateway(t, [says('end_turn', null, text('hi'))]);
  const { APP_IDENTITY_TOKEN, ...env } = g.env;
  await run(generateText, { model: createDeepSpaceAI(env, 'anthropic')('m'), prompt: 'Hi' });
  assert.deepEqual(g.got[0].headers, { 'x-auth-token': 'owner.jwt', 'x-deepspace-sandbox-scope': 'user', 'anthropic-version': '2023-06-01' });
});

test('headers that were forwarded name no app, user or scope', async (t) => {
  const g = await startGateway(t, [says('end_turn', null, text('hi'))]);
  const { APP_IDENTITY_TOKEN, ...env } = g.env;
  await run(generateText, {
    model: createDeepSpaceAI(env, 'anthropic', { authToken: 'user.jwt' })('m'), prompt: 'Hi',
    headers: { 'x-app-id': 'app_evil', 'x-app-identity-token': 'evil', 'x-deepspace-sandbox-scope': 'app', 'x-auth-token': 'evil', authorization: 'Bearer evil', 'x-api-key': 'sk' },
  });
  assert.deepEqual(g.got[0].headers, { 'x-auth-token': 'user.jwt', 'x-deepspace-sandbox-scope': 'user', 'anthropic-version': '2023-06-01' });
});

test('a fetcher in the process wins over the URL', async () => {
  const seen = [];
  const API_WORKER = {
    async fetch(url, init) {
      seen.push([url, init.method, new Headers(init.headers).get('x-auth-token')]);
      return Response.json({ id: 'msg_1', type: 'message', role: 'assistant', model: 'm', content: [text('hi')], stop_reason: 'end_turn', usage: { input_tokens: 1, output_tokens: 1 } });
    },
  };
  for (const API_WORKER_URL of [undefined, 'http://127.0.0.1:1/']) {
    const model = createDeepSpaceAI({ API_WORKER, API_WORKER_URL, APP_OWNER_JWT: 'owner.jwt' }, 'anthropic')('m');
    assert.equal((await run(generateText, { model, prompt: 'Hi' })).text, 'hi');
  }
  assert.deepEqual(seen, [['https://api-worker' + uri, 'POST', 'owner.jwt'], ['http://127.0.0.1:1' + uri, 'POST', 'owner.jwt']]);
});

test('a redirect takes no token along', async (t) => {
  const elsewhere = await startGateway(t);
  const g = await startGateway(t, [plain(307, '', { location: elsewhere.url })]);
  await assert.rejects(run(generateText, { model: createDeepSpaceAI(g.env, 'anthropic')('m'), prompt: 'Hi' }));
  assert.equal(elsewhere.got.length, 0);
});

test('what env or an option lacks is said before anything is sent', () => {
  const env = { API_WORKER_URL: 'https://gateway.example', APP_OWNER_JWT: 'jwt', DEEPSPACE_APP_ID: 'app_01', APP_IDENTITY_TOKEN: 'v1.x' };
  for (const [why, change, provider, options] of [
    [/API_WORKER/, { API_WORKER_URL: undefined }],
    [/API_WORKER/, { API_WORKER_URL: '/' }],
    [/APP_OWNER_JWT/, { APP_OWNER_JWT: undefined }],
    [/DEEPSPACE_APP_ID/, { DEEPSPACE_APP_ID: undefined }],
    [/authToken is empty/, {}, 'anthropic', { authToken: '' }],
    [/authToken is empty/, {}, 'anthropic', { authToken: null }],
    [/"team"/, {}, 'anthropic', { sandboxScope: 'team' }],
    [/"openai"/, {}, 'openai'],
  ]) {
    assert.throws(() => createDeepSpaceAI({ ...env, ...change }, provider ?? 'anthropic', options), why);
  }
  createDeepSpaceAI({ ...env, APP_OWNER_JWT: undefined }, 'anthropic', { authToken: () => 'jwt' });
});
