// What a sandbox made, as a download of the user's browser. An id is nothing for a browser: it gets the bytes from here.
//   GET ?file=ID → the content; DELETE ?file=ID → it is gone, else it stays for good; GET → the user's files
import { sandboxFiles, SandboxFileError, type DeepSpaceAIEnv } from '@airlock-sandbox/worker';

export default {
  async fetch(request: Request, env: DeepSpaceAIEnv): Promise<Response> {
    const files = sandboxFiles(env, { authToken: request.headers.get('x-user-token') ?? '' });
    const query = new URL(request.url).searchParams;
    const id = query.get('file');
    try {
      if (!id) return Response.json(await files.list({ limit: 100, page: query.get('page') }));
      if (request.method === 'DELETE') {
        await files.delete(id);
        return new Response(null, { status: 204 });
      }
      const { filename, size_bytes } = await files.get(id);
      const content = await files.download(id);
      return new Response(content.body, {
        headers: {
          'content-type': content.headers.get('content-type') ?? 'application/octet-stream',
          'content-disposition': content.headers.get('content-disposition') ?? 'attachment',
          'x-name-and-size': encodeURIComponent(`${filename} (${size_bytes} bytes)`),
        },
      });
    } catch (error) {
      if (error instanceof SandboxFileError) return new Response(error.message, { status: error.status });
      throw error;
    }
  },
};
