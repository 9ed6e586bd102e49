// Code in the sandbox asks a tool of the application: it gets the answers and no credential.
//   POST the prompt → { text, asked }
import { generateText, isStepCount, streamText, tool } from 'ai';
import { z } from 'zod';
import { callableFromSandbox, codeExecutionTool, createDeepSpaceAI, forwardSandboxContainer, type DeepSpaceAIEnv } from '@airlock-sandbox/worker';

const deals: Record<string, number[]> = { Q1: [120, 80], Q2: [90] };

export default {
  async fetch(request: Request, env: DeepSpaceAIEnv): Promise<Response> {
    const asked: string[] = [];
    const lookup_deals = callableFromSandbox(tool({
      description: 'The deals of a quarter. Returns JSON: {"quarter": str, "amounts": [int]}.',
      inputSchema: z.object({ quarter: z.enum(['Q1', 'Q2']) }),
      // Here, in the application, with its own checks of what this user may see.
      execute: async ({ quarter }) => {
        asked.push(quarter);
        return { quarter, amounts: deals[quarter] };
      },
    }));
    const settings = {
      model: createDeepSpaceAI(env, 'anthropic', { authToken: request.headers.get('x-user-token') ?? '' })('claude-sonnet-5'),
      tools: { code_execution: codeExecutionTool(), lookup_deals },
      stopWhen: isStepCount(20),
      prepareStep: forwardSandboxContainer,
      prompt: await request.text(),
    };
    const result = new URL(request.url).searchParams.has('plain') ? await generateText(settings) : streamText(settings);
    return Response.json({ text: await result.text, asked });
  },
};
