// The five programs in one Worker: the first segment of the path says which.
import type { DeepSpaceAIEnv } from '@airlock-sandbox/worker';
import appScopeJob from './examples/app-scope-job.ts';
import callableTool from './examples/callable-tool.ts';
import download from './examples/download.ts';
import keepSandbox from './examples/keep-sandbox.ts';
import uploadAndEdit from './examples/upload-and-edit.ts';

const programs: Record<string, { fetch(request: Request, env: DeepSpaceAIEnv): Promise<Response> }> = {
  'upload-and-edit': uploadAndEdit, 'download': download, 'keep-sandbox': keepSandbox, 'callable-tool': callableTool, 'app-scope-job': appScopeJob,
};

export default {
  async fetch(request: Request, env: DeepSpaceAIEnv): Promise<Response> {
    const program = programs[new URL(request.url).pathname.slice(1)];
    if (!program) return new Response('no such program', { status: 404 });
    return program.fetch(request, env).catch((error: unknown) => new Response(String((error as Error)?.stack ?? error), { status: 500 }));
  },
};
