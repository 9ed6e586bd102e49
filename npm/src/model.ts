import { createAnthropic } from '@ai-sdk/anthropic';
import { defaultSettingsMiddleware, wrapLanguageModel } from 'ai';
import type { LanguageModel } from 'ai';
import { gateway } from './gateway.js';
import type { AuthToken, DeepSpaceAIEnv, SandboxScope } from './gateway.js';

export interface DeepSpaceAIOptions {
  /** Who asks, and pays. Without it the owner of the app. */
  authToken?: AuthToken | undefined;
  /** Who may use the containers and files that the calls create; `user` if not given. */
  sandboxScope?: SandboxScope | undefined;
}

// The provider builds URLs before our fetch sees them; only their path counts.
const placeholder = 'https://gateway.invalid';

/**
 * Models behind the gateway, for every function of `ai`. maxOutputTokens is 64,000 unless a call says otherwise.
 * Throws if env has no address or no token.
 */
export function createDeepSpaceAI(
  env: DeepSpaceAIEnv,
  provider: 'anthropic',
  options: DeepSpaceAIOptions = {},
): (modelId: string) => LanguageModel {
  if (provider !== 'anthropic') throw new Error(`The gateway has no provider ${JSON.stringify(provider)}, only anthropic`);
  const send = gateway(env, options.authToken, options.sandboxScope);
  const anthropic = createAnthropic({
    baseURL: `${placeholder}/api/proxy/anthropic/v1`,
    apiKey: 'placeholder', // deleted before anything is sent
    fetch: (input, init = {}) => {
      const { pathname, search } = new URL(input instanceof Request ? input.url : input);
      return send(pathname + search, init);
    },
  });
  const middleware = defaultSettingsMiddleware({ settings: { maxOutputTokens: 64_000 } });
  return (modelId) => wrapLanguageModel({ model: anthropic(modelId), middleware });
}
