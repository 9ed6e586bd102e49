import { gateway } from './gateway.js';
import type { AuthToken, DeepSpaceAIEnv, SandboxScope } from './gateway.js';

export interface SandboxFile {
  type: 'file';
  id: string;
  filename: string;
  mime_type: string;
  size_bytes: number;
  /** RFC 3339. */
  created_at: string;
  /** Only what a sandbox made can be downloaded. */
  downloadable?: boolean;
  /** RFC 3339; null for what a sandbox made, which stays until it is deleted. */
  expires_at?: string | null;
}

export interface SandboxFileList {
  data: SandboxFile[];
  /** For `page` of the next call; null on the last page. */
  next_page: string | null;
}

export interface SandboxFilesOptions {
  /** Whose files. Without it those of the app's owner. */
  authToken?: AuthToken | undefined;
  /** Who may use the uploads; it must be the sandboxScope of the calls that are to use them. `user` if not given. */
  scope?: SandboxScope | undefined;
}

export interface SandboxUploadOptions {
  /** The name that code in the sandbox sees; the name of a File if not given. */
  filename?: string | undefined;
  /** An hour (3,600) to 90 days (7,776,000); 30 days if not given. */
  expiresInSeconds?: number | undefined;
}

/** Every method rejects with a SandboxFileError if the gateway refuses, and with what `fetch` throws if it cannot be reached. */
export interface SandboxFilesClient {
  upload(file: Blob, options?: SandboxUploadOptions): Promise<SandboxFile>;
  get(id: string): Promise<SandboxFile>;
  /** The content as a stream, with content-type and content-disposition. */
  download(id: string): Promise<Response>;
  /** One page, newest first: at most `limit` files (1 to 1,000; 20 if not given). */
  list(options?: { limit?: number | undefined; page?: string | null | undefined }): Promise<SandboxFileList>;
  delete(id: string): Promise<void>;
}

/** A refusal of the gateway, or one made here before anything was sent (status 400). */
export class SandboxFileError extends Error {
  readonly status: number;
  /** `error.details.error_code` of the answer, such as `file_expired`. */
  readonly code: string | undefined;

  constructor(status: number, detail: string, code?: string) {
    super(`Sandbox file request failed (${status}): ${detail}`);
    this.name = 'SandboxFileError';
    this.status = status;
    this.code = code;
  }
}

const root = '/api/proxy/anthropic/v1/files';

/** Files of sandboxes. Throws if env has no address or no token. */
export function sandboxFiles(env: DeepSpaceAIEnv, options: SandboxFilesOptions = {}): SandboxFilesClient {
  const send = gateway(env, options.authToken, options.scope);
  const call = async (method: string, path: string, body?: FormData): Promise<Response> => {
    const response = await send(root + path, body ? { method, body } : { method });
    if (!response.ok) throw await refusal(response);
    return response;
  };
  return {
    async upload(file, { filename = (file as Partial<File>).name, expiresInSeconds } = {}) {
      if (!filename) throw new SandboxFileError(400, 'a Blob has no name: pass filename');
      const form = new FormData();
      form.append('file', file, filename);
      if (expiresInSeconds !== undefined) form.append('expires_in_seconds', String(expiresInSeconds));
      return (await call('POST', '', form)).json() as Promise<SandboxFile>;
    },
    async get(id) {
      return (await call('GET', pathOf(id))).json() as Promise<SandboxFile>;
    },
    async download(id) {
      return call('GET', `${pathOf(id)}/content`);
    },
    async list({ limit, page } = {}) {
      const query = new URLSearchParams();
      if (limit !== undefined) query.set('limit', String(limit));
      if (page) query.set('page', page);
      const search = query.size > 0 ? `?${query}` : '';
      const { data, next_page } = (await (await call('GET', search)).json()) as SandboxFileList;
      return { data, next_page: next_page ?? null };
    },
    async delete(id) {
      await (await call('DELETE', pathOf(id))).body?.cancel();
    },
  };
}

/** One segment of a path. `.` and `..` would be taken out of the URL, and lead elsewhere. */
function pathOf(id: string): string {
  if (!id || id === '.' || id === '..') throw new SandboxFileError(400, `${JSON.stringify(id)} is not the id of a file`);
  return `/${encodeURIComponent(id)}`;
}

async function refusal(response: Response): Promise<SandboxFileError> {
  const text = await response.text().catch(() => '');
  let error: unknown;
  try {
    error = (JSON.parse(text) as { error?: unknown } | null)?.error;
  } catch {
    // not JSON: a proxy between us and the gateway
  }
  if (typeof error === 'string') return new SandboxFileError(response.status, error);
  if (typeof error !== 'object' || error === null) {
    return new SandboxFileError(response.status, text || response.statusText || 'no reason was given');
  }
  const { message, details } = error as { message?: unknown; details?: { error_code?: unknown } | null };
  const code = details?.error_code;
  return new SandboxFileError(
    response.status,
    typeof message === 'string' && message ? message : JSON.stringify(error),
    typeof code === 'string' ? code : undefined,
  );
}
