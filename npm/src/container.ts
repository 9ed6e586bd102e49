import type { FilePart } from 'ai';
import type { SandboxFile } from './files.js';

interface Step {
  readonly providerMetadata?: Record<string, unknown> | undefined;
}

/** The id of the container that a step names, if it does. */
export function containerOf(step: Step): string | undefined {
  const metadata = step.providerMetadata?.['anthropic'] as { container?: { id?: unknown } | null } | undefined;
  const id = metadata?.container?.id;
  return typeof id === 'string' && id !== '' ? id : undefined;
}

/** A prepareStep: the next step goes on in the container of the newest step that has one. */
export function forwardSandboxContainer({ steps }: { steps: ReadonlyArray<Step> }) {
  for (let i = steps.length - 1; i >= 0; i--) {
    const id = containerOf(steps[i]!);
    if (id !== undefined) return { providerOptions: { anthropic: { container: { id } } } };
  }
  return undefined;
}

/** providerOptions that go on in the container of an earlier call, with its files and variables; none without an id. */
export function reuseSandbox(id: string | null | undefined): { anthropic: { container: { id: string } } } | undefined {
  return id ? { anthropic: { container: { id } } } : undefined;
}

/** The part of a user message that puts an uploaded file into the sandbox, whatever its type. */
export function sandboxUpload(file: Pick<SandboxFile, 'id' | 'filename' | 'mime_type'>): FilePart {
  return {
    type: 'file',
    data: { type: 'reference', reference: { anthropic: file.id } },
    filename: file.filename,
    mediaType: file.mime_type,
    providerOptions: { anthropic: { containerUpload: true } },
  };
}
