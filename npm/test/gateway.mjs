// A gateway that keeps what it was sent and answers from a list, one answer after the other.
import { createServer } from 'node:http';

/** Starts one for a test. env is what an app would have; got are the requests, body as text. */
export async function startGateway(t, answers = []) {
  const got = [];
  const server = createServer(async (req, res) => {
    const chunks = [];
    for await (const chunk of req) chunks.push(chunk);
    const { authorization, 'content-type': contentType, ...headers } = req.headers;
    const request = {
      method: req.method, url: req.url, contentType, body: Buffer.concat(chunks).toString(),
      headers: Object.fromEntries(Object.entries({ ...headers, ...(authorization && { authorization }) })
        .filter(([name]) => /^(x-|anthropic-|authorization)/.test(name))),
    };
    got.push(request);
    (answers[got.length - 1] ?? refuse(418, 'the test has no answer for this request'))(res, request);
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.after(() => new Promise((resolve) => { server.closeAllConnections(); server.close(resolve); }));
  const url = `http://127.0.0.1:${server.address().port}`;
  return {
    url, got,
    env: { API_WORKER_URL: `${url}/`, APP_OWNER_JWT: 'owner.jwt', DEEPSPACE_APP_ID: 'app_01', APP_IDENTITY_TOKEN: 'v1.identity' },
  };
}

export const plain = (status, body, headers = {}) => (res) => {
  res.writeHead(status, { 'content-type': 'application/json', ...headers });
  res.end(typeof body === 'string' ? body : JSON.stringify(body));
};

const kinds = { 400: 'invalid_request_error', 401: 'authentication_error', 404: 'not_found_error', 529: 'overloaded_error' };
export const refuse = (status, message, code) => plain(status, {
  type: 'error', error: { type: kinds[status], message, ...(code && { details: { error_code: code } }) }, request_id: 'req_1',
}, { 'retry-after-ms': '1' });

export const file = (id, more = {}) => ({
  type: 'file', id, filename: 'a.txt', mime_type: 'text/plain', size_bytes: 1, created_at: '2026-11-30T00:00:00Z', expires_at: null, downloadable: true, ...more,
});

/** A message of these blocks, as a stream if one was asked for; inputs come as one delta, as the server sends them. */
export const says = (stop, container, ...blocks) => (res, request) => {
  const message = { id: 'msg_1', type: 'message', role: 'assistant', model: 'm', stop_sequence: null };
  const end = { stop_reason: stop, stop_sequence: null, container: container ? { id: container, expires_at: '2026-12-01T00:00:00Z', skills: null } : null };
  if (!JSON.parse(request.body).stream) {
    return plain(200, { ...message, ...end, content: blocks, usage: { input_tokens: 1, output_tokens: 1 } })(res);
  }
  res.writeHead(200, { 'content-type': 'text/event-stream' });
  const event = (type, rest) => res.write(`event: ${type}\ndata: ${JSON.stringify({ type, ...rest })}\n\n`);
  event('message_start', { message: { ...message, content: [], stop_reason: null, usage: { input_tokens: 1, output_tokens: 0 } } });
  for (const [index, block] of blocks.entries()) {
    const { input, text, ...rest } = block;
    event('content_block_start', { index, content_block: { ...rest, ...(input && { input: {} }), ...(text !== undefined && { text: '' }) } });
    if (input) event('content_block_delta', { index, delta: { type: 'input_json_delta', partial_json: JSON.stringify(input) } });
    if (text) event('content_block_delta', { index, delta: { type: 'text_delta', text } });
    event('content_block_stop', { index });
  }
  event('message_delta', { delta: end, usage: { output_tokens: 1 } });
  event('message_stop', {});
  res.end();
};

export const text = (text) => ({ type: 'text', text });
export const bash = (id, command = 'ls') => ({ type: 'server_tool_use', id, name: 'bash_code_execution', input: { command }, caller: { type: 'direct' } });
export const made = (id, ...files) => ({
  type: 'bash_code_execution_tool_result', tool_use_id: id,
  content: {
    type: 'bash_code_execution_result', stdout: '', stderr: '', return_code: 0,
    content: files.map((file_id) => ({ type: 'bash_code_execution_output', file_id })),
  },
});
export const cell = (id, code = 'await lookup_deals({})') => ({ type: 'server_tool_use', id, name: 'code_execution', input: { code }, caller: { type: 'direct' } });
export const printed = (id, stdout) => ({ type: 'code_execution_tool_result', tool_use_id: id, content: { type: 'code_execution_result', stdout, stderr: '', return_code: 0, content: [] } });
/** A call of a tool of the application by code in the sandbox. */
export const calls = (id, name, input, by) => ({ type: 'tool_use', id, name, input, caller: { type: 'code_execution_20260120', tool_id: by } });
