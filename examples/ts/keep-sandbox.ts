// A conversation whose turns share one sandbox, with its files and variables.
//   POST { messages, containerId? } → { messages, containerId }: both are saved and come back with the next turn
import { generateText, isStepCount, streamText, type ModelMessage } from 'ai';
import { codeExecutionTool, createDeepSpaceAI, forwardSandboxContainer, reuseSandbox, sandboxOutputs, type DeepSpaceAIEnv } from '@airlock-sandbox/worker';

export default {
  async fetch(request: Request, env: DeepSpaceAIEnv): Promise<Response> {
    const { messages, containerId } = (await request.json()) as { messages: ModelMessage[]; containerId?: string | null };
    const authToken = request.headers.get('x-user-token') ?? '';
    const reuse = reuseSandbox(containerId);
    const settings = {
      model: createDeepSpaceAI(env, 'anthropic', { authToken })('claude-sonnet-5'),
      tools: { code_execution: codeExecutionTool() },
      stopWhen: isStepCount(20),
      prepareStep: forwardSandboxContainer,
      messages,
      ...(reuse && { providerOptions: reuse }),
    };
    const result = new URL(request.url).searchParams.has('plain') ? await generateText(settings) : streamText(settings);
    const steps = await result.steps;
    return Response.json({
      messages: [...messages, ...(await result.response).messages],
      containerId: sandboxOutputs(steps).containerId ?? containerId ?? null,
    });
  },
};
