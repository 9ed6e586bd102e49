// Code execution for AI SDK applications behind an Airlock gateway, or one of the same shape. Web APIs only.
export { createDeepSpaceAI, createDeepSpaceAI as createAirlockAI } from './model.js';
export type { DeepSpaceAIOptions } from './model.js';
export { SANDBOX_SCOPE_HEADER, SANDBOX_SCOPES } from './gateway.js';
export type { AuthToken, DeepSpaceAIEnv, SandboxScope } from './gateway.js';
export { callableFromSandbox, codeExecutionTool } from './tools.js';
export { forwardSandboxContainer, reuseSandbox, sandboxUpload } from './container.js';
export { sandboxOutputs } from './outputs.js';
export type { SandboxOutputs } from './outputs.js';
export { SandboxFileError, sandboxFiles } from './files.js';
export type {
  SandboxFile,
  SandboxFileList,
  SandboxFilesClient,
  SandboxFilesOptions,
  SandboxUploadOptions,
} from './files.js';
