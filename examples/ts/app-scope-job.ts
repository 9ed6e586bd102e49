// A user hands in a document; a job that outlives his visit works on it, and the owner of the app pays.
//   POST form: file → { fileId }                          the user, who is logged in
//   POST { fileId, prompt } → { text, files: [names] }    the job, without any user
import { generateText, isStepCount, streamText } from 'ai';
import { codeExecutionTool, createDeepSpaceAI, forwardSandboxContainer, sandboxFiles, sandboxOutputs, sandboxUpload, type DeepSpaceAIEnv } from '@airlock-sandbox/worker';

export default {
  async fetch(request: Request, env: DeepSpaceAIEnv): Promise<Response> {
    if (request.headers.get('content-type')?.startsWith('multipart/form-data')) {
      const document = (await request.formData()).get('file');
      if (!(document instanceof File)) return new Response('file is missing', { status: 400 });
      const authToken = request.headers.get('x-user-token') ?? '';
      // With user scope the job could not see it.
      const { id } = await sandboxFiles(env, { authToken, scope: 'app' }).upload(document);
      return Response.json({ fileId: id });
    }

    const { fileId, prompt } = (await request.json()) as { fileId: string; prompt: string };
    const files = sandboxFiles(env, { scope: 'app' });
    const settings = {
      model: createDeepSpaceAI(env, 'anthropic', { sandboxScope: 'app' })('claude-sonnet-5'),
      tools: { code_execution: codeExecutionTool() },
      stopWhen: isStepCount(20),
      prepareStep: forwardSandboxContainer,
      messages: [{ role: 'user' as const, content: [{ type: 'text' as const, text: prompt }, sandboxUpload(await files.get(fileId))] }],
    };
    const result = new URL(request.url).searchParams.has('plain') ? await generateText(settings) : streamText(settings);
    const { fileIds } = sandboxOutputs(await result.steps);
    // What is to stay belongs into the storage of the application; here it is only named.
    const made = await Promise.all(fileIds.map((id) => files.get(id)));
    return Response.json({ text: await result.text, files: made.map((file) => file.filename) });
  },
};
