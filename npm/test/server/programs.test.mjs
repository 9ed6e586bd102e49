// The five programs against a real server with the scripted model: streamed and not in Node, streamed in workerd.
// e2e/programs starts the server and says where it is.
import { test } from 'node:test';
import { inProcess, inWorkerd, names, runProgram } from '../programs.mjs';
import { startWorkerd } from '../workerd.mjs';

const { API_WORKER_URL, APP_OWNER_JWT, DEEPSPACE_APP_ID, APP_IDENTITY_TOKEN, USER_JWT, PROGRAM_PROMPTS } = process.env;
const env = { API_WORKER_URL, APP_OWNER_JWT, DEEPSPACE_APP_ID, APP_IDENTITY_TOKEN };
const prompts = JSON.parse(PROGRAM_PROMPTS);

for (const name of names) {
  for (const [mode, where] of [['streamed', 'Node'], ['plain', 'Node'], ['streamed', 'workerd']]) {
    test(`${name}, ${mode}, in ${where}`, async (t) => {
      const ask = where === 'Node' ? inProcess(env) : inWorkerd(await startWorkerd(t, env));
      await runProgram(name, { ask, prompts, userToken: USER_JWT, plain: mode === 'plain' });
    });
  }
}
