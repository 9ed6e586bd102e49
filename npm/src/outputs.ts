import { containerOf } from './container.js';

export interface SandboxOutputs {
  /** The last container of the steps, null if no code ran. */
  containerId: string | null;
  /** The files that the sandbox made, each once, in the order in which they appeared. */
  fileIds: string[];
}

/** What the steps of `generateText`, or `await` of those of `streamText`, left behind. */
export function sandboxOutputs(
  steps: ReadonlyArray<{ providerMetadata?: Record<string, unknown> | undefined; content: ReadonlyArray<unknown> }>,
): SandboxOutputs {
  let containerId: string | null = null;
  const fileIds = new Set<string>();
  for (const step of steps) {
    containerId = containerOf(step) ?? containerId;
    for (const part of step.content) {
      // Results of tools that the server ran. A file id elsewhere is something the model said.
      const { type, providerExecuted, output } = part as { type?: unknown; providerExecuted?: unknown; output?: unknown };
      if (type === 'tool-result' && providerExecuted === true) collect(output, fileIds);
    }
  }
  return { containerId, fileIds: [...fileIds] };
}

function collect(value: unknown, found: Set<string>): void {
  if (typeof value !== 'object' || value === null) return;
  for (const [key, member] of Object.entries(value)) {
    if (key === 'file_id' && typeof member === 'string' && member !== '') found.add(member);
    else collect(member, found);
  }
}
