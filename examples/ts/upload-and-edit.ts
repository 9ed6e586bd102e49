// A document comes in, the model edits it in a sandbox, the ids of the results go out.
//   POST form: file, prompt → { text, containerId, fileIds }; ?plain waits for the whole answer in place of a stream
import { generateText, isStepCount, streamText } from 'ai';
import { codeExecutionTool, createDeepSpaceAI, forwardSandboxContainer, sandboxFiles, sandboxOutputs, sandboxUpload, type DeepSpaceAIEnv } from '@airlock-sandbox/worker';

export default {
  async fetch(request: Request, env: DeepSpaceAIEnv): Promise<Response> {
    const form = await request.formData();
    const document = form.get('file');
    if (!(document instanceof File)) return new Response('file is missing', { status: 400 });
    // The user who is logged in: he pays, and nobody else sees what is made.
    const authToken = request.headers.get('x-user-token') ?? '';

    const uploaded = await sandboxFiles(env, { authToken }).upload(document, { expiresInSeconds: 3600 });
    const settings = {
      model: createDeepSpaceAI(env, 'anthropic', { authToken })('claude-sonnet-5'),
      tools: { code_execution: codeExecutionTool() },
      stopWhen: isStepCount(20),
      prepareStep: forwardSandboxContainer,
      messages: [{ role: 'user' as const, content: [{ type: 'text' as const, text: String(form.get('prompt')) }, sandboxUpload(uploaded)] }],
    };
    const result = new URL(request.url).searchParams.has('plain') ? await generateText(settings) : streamText(settings);
    return Response.json({ text: await result.text, ...sandboxOutputs(await result.steps) });
  },
};
