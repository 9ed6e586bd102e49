// What all tests here share: the server under test and how to write prompts for the scripted model.
export const url = process.env.AIRLOCK_URL;
export const key = process.env.AIRLOCK_KEY;
if (!url || !key) throw new Error('AIRLOCK_URL and AIRLOCK_KEY are needed; run it through make test');

export const model = 'script';

/** An action of the scripted model. */
export const fence = (info, body) => '```' + info + '\n' + body + '\n```';
export const script = (...lines) => lines.join('\n');
/** n edits, each a sampling round of its own on the server. */
export const longEdit = (n) => script(...Array.from({ length: n }, () => fence('bash', 'echo line >> file && wc -l < file')));

export const bytes = Buffer.from(Array.from({ length: 70_000 }, (_, i) => (i * 7 + (i >> 8)) & 255));

export const allSubTools = script(
  'Let me work.',
  fence('bash', "printf 'one\\ntwo\\n' > notes.txt && wc -l < notes.txt"),
  fence('view notes.txt', ''),
  fence('replace notes.txt', 'two\n=======\n二'),
  fence('create made/new.txt', 'hello'),
  fence('cell', 'x = 40'),
  fence('cell', 'x + 2'),
  'All done.',
);
