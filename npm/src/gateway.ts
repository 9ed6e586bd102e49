// How a request reaches the gateway: its address, who asks, and from which app.

/** What an app needs to reach its gateway; `airlock app env ID` prints it. */
export interface DeepSpaceAIEnv {
  /** A fetcher inside the process, such as a service binding. It wins over the URL. */
  API_WORKER?: { fetch(url: string, init?: RequestInit): Promise<Response> };
  /** The address of the server. One trailing slash is removed. */
  API_WORKER_URL?: string;
  /** The token of the app's owner, for calls that are given no other. */
  APP_OWNER_JWT?: string;
  DEEPSPACE_APP_ID?: string;
  /** Proves the app. Without it the gateway takes plain model calls only: no code execution, no files. */
  APP_IDENTITY_TOKEN?: string;
}

export const SANDBOX_SCOPES = ['user', 'app'] as const;

/**
 * Who may use what a call creates, files and containers: the subject of the token alone, or every caller of the same app.
 * It never changes who pays, and has no part in using what is there already.
 */
export type SandboxScope = (typeof SANDBOX_SCOPES)[number];

export const SANDBOX_SCOPE_HEADER = 'x-deepspace-sandbox-scope';

/**
 * A JWT, or a function that gives one. The function is asked on every attempt of every request, so that tokens of a
 * minute last through a turn of an hour. What it throws ends the request.
 */
export type AuthToken = string | (() => string | Promise<string>);

/** Sends one request to a path of the gateway, such as `/api/proxy/anthropic/v1/files`, query included. */
export type Send = (path: string, init: RequestInit) => Promise<Response>;

/** Throws if env or an option lacks something; nothing is sent before. */
export function gateway(env: DeepSpaceAIEnv, authToken: AuthToken | undefined, scope: SandboxScope = 'user'): Send {
  const fetchFromGateway = transport(env);
  const token = tokenSource(env, authToken);
  if (!SANDBOX_SCOPES.includes(scope)) {
    throw new Error(`The sandbox scope is ${JSON.stringify(scope)}, not ${SANDBOX_SCOPES.join(' or ')}`);
  }
  const { DEEPSPACE_APP_ID: appId, APP_IDENTITY_TOKEN: identity } = env;
  if (identity && !appId) throw new Error('APP_IDENTITY_TOKEN is set and DEEPSPACE_APP_ID is not');
  return async (path, init) => {
    const headers = new Headers(init.headers);
    // Also what was forwarded from a browser: no header of a request names its app but these.
    for (const name of ['authorization', 'x-api-key', 'x-app-id', 'x-app-identity-token']) headers.delete(name);
    headers.set('x-auth-token', await token());
    headers.set(SANDBOX_SCOPE_HEADER, scope);
    if (identity && appId) {
      headers.set('x-app-id', appId);
      headers.set('x-app-identity-token', identity);
    }
    // fetch takes headers of ours along to another host.
    return fetchFromGateway(path, { ...init, headers, redirect: 'manual' });
  };
}

function transport(env: DeepSpaceAIEnv): Send {
  const base = (env.API_WORKER_URL ?? '').replace(/\/$/, '');
  const worker = env.API_WORKER;
  // A binding needs an absolute URL and does not look at its host.
  if (worker) return (path, init) => worker.fetch((base || 'https://api-worker') + path, init);
  if (!base) throw new Error('Neither API_WORKER nor API_WORKER_URL is set: where is the gateway?');
  return (path, init) => fetch(base + path, init);
}

function tokenSource(env: DeepSpaceAIEnv, authToken: AuthToken | undefined): () => Promise<string> {
  const given = authToken === undefined ? env.APP_OWNER_JWT : authToken;
  if (authToken === undefined && !given) throw new Error('There is no token: pass authToken or set APP_OWNER_JWT');
  // An empty token must not become the owner's: a user who has none is not the owner.
  if (!given) throw new Error('authToken is empty');
  return async () => {
    const token = typeof given === 'function' ? await given() : given;
    if (!token) throw new Error('authToken gave an empty token');
    return token;
  };
}
