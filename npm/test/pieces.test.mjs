// The pieces that send nothing.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { callableFromSandbox, codeExecutionTool, forwardSandboxContainer, reuseSandbox, sandboxOutputs, sandboxUpload } from '@airlock-sandbox/worker';

const step = (container, ...content) => ({ providerMetadata: container === undefined ? undefined : { anthropic: { container } }, content });
const result = (output, more = {}) => ({ type: 'tool-result', providerExecuted: true, output, ...more });

test('sandboxOutputs: the last container, each file once, in the order in which they appeared', () => {
  const steps = [
    step({ id: 'container_1' },
      result({ type: 'bash_code_execution_result', content: [{ file_id: 'file_b' }, { file_id: 'file_a' }, { file_id: '' }, { file_id: 7 }, { file_id: null }] }),
      result({ deep: [[{ content: { file_id: 'file_c', more: [{ file_id: 'file_b' }] } }]] }),
      { type: 'text', text: '{"file_id":"file_said"}', file_id: 'file_said' },
      { type: 'tool-call', providerExecuted: true, input: { file_id: 'file_input' } },
      result({ file_id: 'file_of_the_app' }, { providerExecuted: undefined }), 'odd', 7),
    step({ id: 'container_2' }, result({ file_id: 'file_d' }), result('{"file_id":"file_text"}'), result(null)),
    step({ id: 9 }), step(null), step(undefined),
  ].map((s) => ({ ...s, content: s.content.filter((c) => c !== null) }));
  assert.deepEqual(sandboxOutputs(steps), { containerId: 'container_2', fileIds: ['file_b', 'file_a', 'file_c', 'file_d'] });
  assert.deepEqual(sandboxOutputs([]), { containerId: null, fileIds: [] });
});

test('forwardSandboxContainer: the newest step that has one', () => {
  const next = (id) => ({ providerOptions: { anthropic: { container: { id } } } });
  assert.deepEqual(forwardSandboxContainer({ steps: [step({ id: 'container_1' }), step({ id: 'container_2' }), step(null), step(undefined)] }), next('container_2'));
  assert.equal(forwardSandboxContainer({ steps: [step(null)] }), undefined);
  assert.equal(forwardSandboxContainer({ steps: [] }), undefined);
});

test('reuseSandbox: nothing without an id', () => {
  assert.deepEqual(reuseSandbox('container_1'), { anthropic: { container: { id: 'container_1' } } });
  for (const id of [undefined, null, '']) assert.equal(reuseSandbox(id), undefined);
});

test('callableFromSandbox: a copy that keeps other options', () => {
  const given = { description: 'd', providerOptions: { other: { a: 1 }, anthropic: { eagerInputStreaming: true } } };
  const copy = callableFromSandbox(given);
  assert.deepEqual(copy, {
    description: 'd',
    providerOptions: { other: { a: 1 }, anthropic: { eagerInputStreaming: true, allowedCallers: ['direct', 'code_execution_20260120'] } },
  });
  assert.equal(given.providerOptions.anthropic.allowedCallers, undefined);
  assert.deepEqual(callableFromSandbox({}).providerOptions, { anthropic: { allowedCallers: ['direct', 'code_execution_20260120'] } });
});

test('codeExecutionTool and sandboxUpload have the shapes of the AI SDK', () => {
  assert.equal(codeExecutionTool().id, 'anthropic.code_execution_20260120');
  assert.deepEqual(sandboxUpload({ id: 'file_1', filename: 'a.pdf', mime_type: 'application/pdf' }), {
    type: 'file', data: { type: 'reference', reference: { anthropic: 'file_1' } }, filename: 'a.pdf', mediaType: 'application/pdf',
    providerOptions: { anthropic: { containerUpload: true } },
  });
});
