package attack

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
)

func toolThreats() []Threat {
	return []Threat{
		{55, "ToolCallsWithoutEnd", "limits on count, size and lifetime; error raised inside Python", inBox(toolCalls, Memory(1<<30))},
	}
}

// toolHost stands for a server that answers tools. It notes what should not have reached it.
type toolHost struct {
	mu    sync.Mutex
	calls int
	wrong []string
}

var toolsOffered = []string{"echo", "get-rows"}

func (h *toolHost) call(_ context.Context, calls []sandbox.ToolCall) []sandbox.ToolAnswer {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls += len(calls)
	if len(calls) > guest.MaxToolPending {
		h.wrong = append(h.wrong, fmt.Sprintf("%d calls at once", len(calls)))
	}
	var answers []sandbox.ToolAnswer
	for _, k := range calls {
		if !slices.Contains(toolsOffered, k.Name) || !guest.ValidToolInput(k.Input) || len(k.Input) > guest.MaxToolInput {
			h.wrong = append(h.wrong, fmt.Sprintf("%.40q with %.40q", k.Name, k.Input))
		}
		answers = append(answers, sandbox.ToolAnswer{ID: k.ID, Text: "answer"})
	}
	return answers
}

// seen is how many calls have come since it was last asked, and an error if one of them should not have.
func (h *toolHost) seen(f *findings) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	f.want(h.wrong == nil, "the host was given %q", h.wrong)
	n := h.calls
	h.calls, h.wrong = 0, nil
	return n
}

func (h *toolHost) run(ctx context.Context, b *Box, code string) (Output, error) {
	_, out, err := b.Cell(ctx, sandbox.Cell{Code: code, Timeout: CommandTime, Tools: toolsOffered, Call: h.call})
	return out, err
}

// callWithoutEnd makes 10,000 calls and some that are too large.
const callWithoutEnd = `
import asyncio, collections
seen = collections.Counter()
for n in range(200):
    got = await asyncio.gather(*[echo(n=n) for _ in range(50)], return_exceptions=True)
    seen.update(str(g) if type(g) is str else type(g).__name__ for g in got)
print(sorted(seen.items()))
`

const callTooLarge = `
for size in 1 << 20, 100 << 20:
    try: print(await echo(a='x' * size))
    except ToolError as e: print('limit is 1048576' in str(e))
got = await asyncio.gather(*[echo(n=n) for n in range(1000)], return_exceptions=True)
print(got.count('answer'))
`

// callTooLate goes on to call when its cell has ended: with the functions, from a thread and a child, and by forging what
// the interpreter says.
const callTooLate = `
import json, os, socket, stat, struct, threading, time
def forge(cell, body=b'{}', **head):
    for fd in range(200, 210):
        try:
            if not stat.S_ISSOCK(os.fstat(fd).st_mode): continue
            s = socket.socket(fileno=os.dup(fd))
        except OSError: continue
        head = json.dumps({'cell': cell, **head}).encode() + b'\n'
        s.sendall(struct.pack('>I', len(head) + len(body)) + head + body)
        s.close()
def forges():
    while True:
        for cell in range(12):
            forge(cell, t='call', call=1, name='delete-everything')
            forge(cell, b'[]', t='call', call=1, name='echo')
            forge(cell, b'{' * 2000, t='call', call=1, name='echo')
        time.sleep(0.005)
def calls(echo=echo, get_rows=get_rows):
    while True:
        for call in echo, get_rows:
            try: asyncio.run(call())
            except ToolError as e: open('refused', 'w').write(str(e))
        time.sleep(0.005)
threading.Thread(target=forges, daemon=True).start()
if os.fork() == 0:
    os.setsid()
    calls()
threading.Thread(target=calls, daemon=True).start()
`

func toolCalls(ctx context.Context, b *Box, f *findings) error {
	h := &toolHost{}
	before := liveHeap()
	out, err := h.run(ctx, b, callWithoutEnd)
	if err != nil {
		return err
	}
	f.want(out.Stdout == "[('ToolError', 9000), ('answer', 1000)]\n" && out.Code == 0, "10,000 calls: %v", out)
	n := h.seen(f)
	f.want(n == guest.MaxToolCalls, "%d of 10,000 calls reached the host", n)
	if out, err = h.run(ctx, b, callTooLarge); err != nil {
		return err
	}
	f.want(out.Stdout == "True\nTrue\n64\n" && out.Code == 0, "calls that are too large or too many: %v", out)
	n = h.seen(f)
	f.want(n == guest.MaxToolPending, "%d of 1,002 calls reached the host", n)
	grown := int64(liveHeap()) - int64(before)
	f.want(grown < 16<<20, "the server's memory grew by %d bytes", grown)
	return lateCalls(ctx, b, h, f)
}

// lateCalls also shows that a cell which does not know of tools, and one that does, run beside whoever calls too late.
func lateCalls(ctx context.Context, b *Box, h *toolHost, f *findings) error {
	out, err := h.run(ctx, b, callTooLate)
	if err != nil {
		return err
	}
	f.want(out.Code == 0, "the cell that goes on to call: %v", out)
	if _, err := b.Sh(ctx, "rm -f refused"); err != nil {
		return err
	}
	refused := Eventually(ctx, CommandTime, func() (bool, error) {
		out, err := b.Sh(ctx, "cat refused 2>/dev/null")
		return out.Stdout != "", err
	})
	f.want(refused == nil, "no call after the end of the cell was refused: %v", refused)
	_, out, err = b.Cell(ctx, sandbox.Cell{Code: "'echo' in globals()", Timeout: CommandTime})
	f.want(err == nil && out.Stdout == "False\n", "the next cell: %v, %v", out, err)
	n := h.seen(f)
	f.want(n == 0, "%d calls reached the host after their cell", n)
	ctx, cancel := context.WithTimeout(ctx, CommandTime+10*time.Second)
	defer cancel()
	_, err = h.run(ctx, b, "await echo()")
	h.seen(f)
	return err
}
