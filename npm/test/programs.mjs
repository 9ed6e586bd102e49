// The five programs of ../examples/ts, each run to its end. Who runs them says how a request reaches one (`ask`), what the
// model is told (`prompts`), and whose token the user has.
import assert from 'node:assert/strict';

export const names = ['upload-and-edit', 'download', 'keep-sandbox', 'callable-tool', 'app-scope-job'];

/** In this process: as a Worker's runtime would call them. */
export const inProcess = (env) => async (name, query, init) => {
  const program = (await import(`../.build/examples/${name}.ts`)).default;
  return program.fetch(new Request(`http://app.example/${query}`, init), env);
};

/** In workerd, with the one that test/workerd/worker.ts is. */
export const inWorkerd = (url) => (name, query, init) => fetch(`${url}/${name}${query}`, init);

export async function runProgram(name, { ask, prompts, userToken, plain }) {
  const query = plain ? '?plain' : '';
  const user = { 'x-user-token': userToken };
  const json = async (response) => {
    const body = await response.text();
    assert.equal(response.status, 200, body);
    return JSON.parse(body);
  };
  const form = (more = {}) => {
    const f = new FormData();
    f.append('file', new File(['name,amount\nA,1\nB,2\n'], 'in.csv', { type: 'text/csv' }));
    for (const [k, v] of Object.entries(more)) f.append(k, v);
    return f;
  };
  const edit = async () => json(await ask('upload-and-edit', query, { method: 'POST', headers: user, body: form({ prompt: prompts.edit }) }));

  switch (name) {
    case 'upload-and-edit': {
      const { text, containerId, fileIds } = await edit();
      assert.match(text, /Edited\./);
      assert.match(containerId, /^container_/);
      assert.equal(fileIds.length, 1);
      return;
    }
    case 'download': {
      const { fileIds: [id] } = await edit();
      const at = `?file=${id}`;
      const got = await ask(name, at, { headers: user });
      assert.equal(await got.text(), 'name,amount\nA,1\nB,2\ntotal,3\n');
      assert.match(got.headers.get('content-disposition'), /attachment;.*out\.csv/);
      assert.match(decodeURIComponent(got.headers.get('x-name-and-size')), /^out\.csv \(28 bytes\)$/);
      const { data } = await json(await ask(name, '', { headers: user }));
      assert.ok(data.some((file) => file.id === id && file.downloadable));
      assert.equal((await ask(name, at, { method: 'DELETE', headers: user })).status, 204);
      const gone = await ask(name, at, { headers: user });
      assert.equal(gone.status, 404);
      assert.match(await gone.text(), /Not found/);
      return;
    }
    case 'keep-sandbox': {
      const turn = async (said, saved = { messages: [] }) => json(await ask(name, query, {
        method: 'POST', headers: user,
        body: JSON.stringify({ ...saved, messages: [...saved.messages, { role: 'user', content: said }] }),
      }));
      const first = await turn(prompts.remember);
      const second = await turn(prompts.recall, first);
      assert.match(first.containerId, /^container_/);
      assert.equal(second.containerId, first.containerId);
      assert.match(JSON.stringify(second.messages.at(-1)), /kept for the next turn/);
      return;
    }
    case 'callable-tool': {
      const { text, asked } = await json(await ask(name, query, { method: 'POST', headers: user, body: prompts.compare }));
      assert.deepEqual([...asked].sort(), ['Q1', 'Q2']);
      assert.match(text, /Compared\./);
      return;
    }
    case 'app-scope-job': {
      const { fileId } = await json(await ask(name, '', { method: 'POST', headers: user, body: form() }));
      // The job's request comes from nobody.
      const { text, files } = await json(await ask(name, query, { method: 'POST', body: JSON.stringify({ fileId, prompt: prompts.edit }) }));
      assert.match(text, /Edited\./);
      assert.deepEqual(files, ['out.csv']);
      return;
    }
  }
  assert.fail(`there is no program ${name}`);
}
