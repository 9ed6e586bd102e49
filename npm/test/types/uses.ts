// Compiled, never run: the types that applications lean on.
import { generateText, streamText, tool, type FilePart, type LanguageModel, type Tool } from 'ai';
import { z } from 'zod';
import {
  callableFromSandbox, codeExecutionTool, createAirlockAI, createDeepSpaceAI, forwardSandboxContainer, reuseSandbox, SANDBOX_SCOPE_HEADER,
  SANDBOX_SCOPES, SandboxFileError, sandboxFiles, sandboxOutputs, sandboxUpload,
  type AuthToken, type DeepSpaceAIEnv, type DeepSpaceAIOptions, type SandboxFile, type SandboxFileList, type SandboxFilesClient,
  type SandboxFilesOptions, type SandboxScope, type SandboxUploadOptions,
} from '@airlock-sandbox/worker';

type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : never;
const same = <A, B>(_: Same<A, B>) => {};

declare const env: DeepSpaceAIEnv;
declare const file: SandboxFile;

same<ReturnType<typeof createDeepSpaceAI>, (modelId: string) => LanguageModel>(true);
same<typeof createAirlockAI, typeof createDeepSpaceAI>(true);
same<ReturnType<typeof codeExecutionTool>, Tool>(true);
same<ReturnType<typeof sandboxUpload>, FilePart>(true);
same<ReturnType<typeof reuseSandbox>, { anthropic: { container: { id: string } } } | undefined>(true);
same<SandboxScope, 'user' | 'app'>(true);
same<(typeof SANDBOX_SCOPES)[number], SandboxScope>(true);
same<typeof SANDBOX_SCOPE_HEADER, 'x-deepspace-sandbox-scope'>(true);
same<AuthToken, string | (() => string | Promise<string>)>(true);

const lookup = tool({ inputSchema: z.object({ q: z.string() }), execute: async ({ q }) => ({ rows: q.length }) });
const callable = callableFromSandbox(lookup);
same<typeof callable, typeof lookup>(true);

const options: DeepSpaceAIOptions = { authToken: async () => 'jwt', sandboxScope: 'app' };
const model = createDeepSpaceAI(env, 'anthropic', options)('claude-sonnet-5');
const streamed = streamText({ model, tools: { code: codeExecutionTool(), callable }, prepareStep: forwardSandboxContainer, prompt: 'Hi', providerOptions: reuseSandbox('container_1') ?? {} });
for await (const part of streamed.stream) if (part.type === 'error') throw part.error;
const plain = await generateText({ model, tools: { callable }, prepareStep: forwardSandboxContainer, messages: [{ role: 'user', content: [sandboxUpload(file)] }] });
const { containerId, fileIds } = sandboxOutputs(plain.steps);
same<typeof containerId, string | null>(true);
same<typeof fileIds, string[]>(true);
sandboxOutputs(await streamed.steps);

const filesOptions: SandboxFilesOptions = { authToken: 'jwt', scope: 'user' };
const upload: SandboxUploadOptions = { filename: 'a.csv', expiresInSeconds: 3600 };
const files: SandboxFilesClient = sandboxFiles(env, filesOptions);
const uploaded: SandboxFile = await files.upload(new Blob(['a']), upload);
const page: SandboxFileList = await files.list({ limit: 10, page: (await files.list()).next_page });
const response: Response = await files.download(page.data[0]?.id ?? uploaded.id);
sandboxUpload({ id: 'file_1', filename: 'a', mime_type: 'text/plain' });
void response;

try {
  await files.delete(uploaded.id);
} catch (error) {
  if (error instanceof SandboxFileError) same<[typeof error.status, typeof error.code], [number, string | undefined]>(true);
}

// A Worker's bindings.
declare const fetcher: { fetch(input: RequestInfo | URL, init?: RequestInit): Promise<Response> };
createDeepSpaceAI({ API_WORKER: fetcher, APP_OWNER_JWT: 'jwt' }, 'anthropic');

// @ts-expect-error a provider the gateway does not have
createDeepSpaceAI(env, 'openai');
// @ts-expect-error a scope there is not
sandboxFiles(env, { scope: 'team' });
// @ts-expect-error a user without a token is not the owner
createDeepSpaceAI(env, 'anthropic', { authToken: null });
