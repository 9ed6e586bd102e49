import { anthropic } from '@ai-sdk/anthropic';
import type { Tool } from 'ai';

/** The server tool code_execution_20260120. A container is made only when the model uses it. */
export function codeExecutionTool(): Tool {
  return anthropic.tools.codeExecution_20260120();
}

/**
 * A copy of the tool that code in the sandbox may call too, as an async function. The tool still runs in the application,
 * with its own checks; the sandbox gets the result and no credential.
 */
export function callableFromSandbox<T extends Tool>(tool: T): T {
  const { providerOptions } = tool;
  return {
    ...tool,
    providerOptions: {
      ...providerOptions,
      anthropic: { ...providerOptions?.['anthropic'], allowedCallers: ['direct', 'code_execution_20260120'] },
    },
  };
}
