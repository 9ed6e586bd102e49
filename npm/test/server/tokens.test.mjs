// A turn that outlives its tokens, against a real server whose scripted model takes its time. e2e/programs starts the server.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { generateText, isStepCount, streamText, tool } from 'ai';
import { z } from 'zod';
import { codeExecutionTool, createDeepSpaceAI, forwardSandboxContainer } from '@airlock-sandbox/worker';

const { API_WORKER_URL, DEEPSPACE_APP_ID, APP_IDENTITY_TOKEN, LONG_PROMPT, LOGIN_URL } = process.env;
const env = { API_WORKER_URL, DEEPSPACE_APP_ID, APP_IDENTITY_TOKEN };

test('a turn outlives its tokens if they come from a function', { concurrency: true }, async (t) => {
  const fresh = async () => (await fetch(LOGIN_URL)).text();
  const look = tool({ inputSchema: z.object({}), execute: async () => 'ok' });
  const turn = async (send, authToken) => {
    const result = await send({
      model: createDeepSpaceAI(env, 'anthropic', { authToken })('claude-sonnet-5'), tools: { code_execution: codeExecutionTool(), look },
      stopWhen: isStepCount(5), prepareStep: forwardSandboxContainer, prompt: LONG_PROMPT, ...(send === streamText && { onError: () => {} }),
    });
    return (await result.steps).length;
  };
  await Promise.all([
    t.test('streamed', async () => assert.equal(await turn(streamText, fresh), 2)),
    t.test('plain', async () => assert.equal(await turn(generateText, fresh), 2)),
    t.test('one token has expired by the second request', async () => assert.rejects(turn(generateText, await fresh()), /invalid auth token/)),
  ]);
});
