package serve_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
)

// groups answers the calls of cells and remembers what came together.
type groups struct {
	reply func(guest.ToolCall) guest.ToolAnswer // nil: the name and the input

	mu   sync.Mutex
	seen [][]string // name and input, of each call of each group
}

func (s *groups) call(_ context.Context, calls []guest.ToolCall) []guest.ToolAnswer {
	var names []string
	answers := make([]guest.ToolAnswer, 0, len(calls))
	for _, k := range calls {
		names = append(names, k.Name+string(k.Input))
		a := guest.ToolAnswer{Text: k.Name + string(k.Input)}
		if s.reply != nil {
			a = s.reply(k)
		}
		if a.ID == 0 {
			a.ID = k.ID
		}
		answers = append(answers, a)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, names)
	slices.Reverse(answers) // any order will do
	return answers
}

func (s *groups) take() [][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := s.seen
	s.seen = nil
	return seen
}

var toolNames = []string{"echo", "get-rows", "class", "a.b"}

func (s *groups) cell(code string) guest.Cell {
	return guest.Cell{Code: code, Timeout: 20 * time.Second, Tools: toolNames, Call: s.call}
}

func TestCellsCallTools(t *testing.T) {
	t.Parallel()
	allWays(t, testCellsCallTools)
}

// testCellsCallTools runs cells one after the other in one interpreter; groups are what the host must see.
func testCellsCallTools(t *testing.T, w way) {
	g := w.start(t, guest.Options{})
	s := &groups{}
	for _, tt := range []struct {
		name, code, out, err string
		groups               [][]string
	}{
		{"a dict", "await echo({'a': 1})", "'echo{\"a\":1}'\n", "", [][]string{{`echo{"a":1}`}}},
		{"keyword arguments", "await echo(a='é', b=[None, True])", "'echo{\"a\":\"é\",\"b\":[null,true]}'\n", "", [][]string{{`echo{"a":"é","b":[null,true]}`}}},
		{"no argument", "await echo()", "'echo{}'\n", "", [][]string{{`echo{}`}}},
		{"names", "print(await get_rows({}), await tools['get-rows']({}), await tools['class'](x=1), await tools['a.b']())\nsorted(tools)", "get-rows{} get-rows{} class{\"x\":1} a.b{}\n['a.b', 'class', 'echo', 'get-rows']\n", "", [][]string{{"get-rows{}"}, {"get-rows{}"}, {`class{"x":1}`}, {"a.b{}"}}},
		{"together", "import asyncio\nawait asyncio.gather(*[echo(n=n) for n in range(3)], get_rows())", "['echo{\"n\":0}', 'echo{\"n\":1}', 'echo{\"n\":2}', 'get-rows{}']\n", "", [][]string{{`echo{"n":0}`, `echo{"n":1}`, `echo{"n":2}`, "get-rows{}"}}},
		{"tasks that start one after the other", "async def later(n):\n    for i in range(n): await asyncio.sleep(0)\n    return await echo(n=n)\nawait asyncio.gather(*[later(n) for n in (0, 5, 50)]); None", "", "", [][]string{{`echo{"n":0}`, `echo{"n":5}`, `echo{"n":50}`}}},
		{"one after the other", "for n in range(3): print(await echo(n=n))", "echo{\"n\":0}\necho{\"n\":1}\necho{\"n\":2}\n", "", [][]string{{`echo{"n":0}`}, {`echo{"n":1}`}, {`echo{"n":2}`}}},
		{"in asyncio.run", "async def main(): return await echo(n=1)\nprint(asyncio.run(main()))", "echo{\"n\":1}\n", "", [][]string{{`echo{"n":1}`}}},
		{"in asyncio.run inside a cell that awaits", "print(await echo(n=0), asyncio.run(main()), await echo(n=2))", "echo{\"n\":0} echo{\"n\":1} echo{\"n\":2}\n", "", [][]string{{`echo{"n":0}`}, {`echo{"n":1}`}, {`echo{"n":2}`}}},
		{"a task beside an inner loop", "task = asyncio.create_task(echo(n=0))\nawait asyncio.sleep(0)\nprint(asyncio.run(main()))\nprint(await task)", "echo{\"n\":1}\necho{\"n\":0}\n", "", [][]string{{`echo{"n":0}`, `echo{"n":1}`}}},
		{"a loop that is never idle", "done = False\nasync def spin():\n    while not done: await asyncio.sleep(0)\ntask = asyncio.create_task(spin())\nprint(await echo(n=1)); done = True; await task", "echo{\"n\":1}\n", "", [][]string{{`echo{"n":1}`}}},
		{"not awaited", "c = echo(n=1); print(type(c).__name__); c.close()", "coroutine\n", "", nil},
		{"given up before it was sent", "try:\n    await asyncio.wait_for(echo(n=1), 0.001)\nexcept TimeoutError: print('late')\nawait echo(n=2)", "late\n'echo{\"n\":2}'\n", "", [][]string{{`echo{"n":2}`}}},
		{"two dicts", "await echo({}, {})", "", "TypeError: echo takes one dict, or keyword arguments", nil},
		{"no dict", "await echo('a')", "", "TypeError: echo takes one dict, or keyword arguments", nil},
		{"dict and keywords", "await echo({}, a=1)", "", "TypeError: echo takes one dict, or keyword arguments", nil},
		{"no JSON", "await echo(a=object())", "", "TypeError: Object of type object is not JSON serializable", nil},
		{"no number", "await echo(a=float('nan'))", "", "ValueError: Out of range float values", nil},
		{"no text", "await echo(a='\\ud800')", "", "UnicodeEncodeError", nil},
		{"too large", "await echo(a='x' * (1 << 20))", "", "ToolError: the input of echo has 1048584 bytes; the limit is 1048576", nil},
		{"from a thread", "import threading\ndef run():\n    try: asyncio.run(echo())\n    except ToolError as e: print(e)\nthread = threading.Thread(target=run); thread.start(); thread.join()", "echo cannot be called from another thread than that of the cell\n", "", nil},
		{"from a fork", "import os\npid = os.fork()\nif pid == 0:\n    try: asyncio.run(echo())\n    except ToolError as e: print(e, flush=True)\n    os._exit(0)\nos.waitpid(pid, 0)\nawait echo()", "echo cannot be called from another process than that of the cell\n'echo{}'\n", "", [][]string{{"echo{}"}}},
		{"still whole", "await echo({'a': 'x' * ((1 << 20) - 8)}) == 'echo{\"a\":\"' + 'x' * ((1 << 20) - 8) + '\"}'", "True\n", "", [][]string{{`echo{"a":"` + strings.Repeat("x", 1<<20-8) + `"}`}}},
	} {
		o := g.runCell(t, s.cell(tt.code))
		if o.out != tt.out || !strings.Contains(o.err, tt.err) || (tt.err == "") != (o.err == "") || o.StateLost {
			t.Errorf("%s: got %q, code %d, stderr %s\nwant %q, %q", tt.name, o.out, o.Code, o.err, tt.out, tt.err)
		}
		if strings.Contains(o.err, "<tool>") || strings.Contains(o.err, "<string>") {
			t.Errorf("%s: the interpreter's own frames are shown: %s", tt.name, o.err)
		}
		if got := s.take(); fmt.Sprint(got) != fmt.Sprint(tt.groups) {
			t.Errorf("%s: the host saw %.300q, want %.300q", tt.name, fmt.Sprint(got), fmt.Sprint(tt.groups))
		}
	}
	if n := g.processes(t); n != w.resident {
		t.Errorf("%d processes left beside the interpreter", n-w.resident)
	}
}

func TestAnswersReturnOrRaise(t *testing.T) {
	t.Parallel()
	g := start(t, guest.Options{})
	big := strings.Repeat("€", guest.MaxToolAnswer/3)
	s := &groups{reply: func(k guest.ToolCall) guest.ToolAnswer {
		var in struct{ Do string }
		if err := json.Unmarshal(k.Input, &in); err != nil {
			t.Errorf("input %s: %v", k.Input, err)
		}
		switch in.Do {
		case "timeout":
			return guest.ToolAnswer{Text: "no answer of echo within 270 s", Raise: guest.RaiseTimeout}
		case "fail":
			return guest.ToolAnswer{Text: "broken", Raise: guest.RaiseTool}
		case "odd":
			return guest.ToolAnswer{Text: "odd", Raise: "SystemExit"}
		case "big":
			return guest.ToolAnswer{Text: big}
		case "bigger":
			return guest.ToolAnswer{Text: big + "€€"}
		case "binary":
			return guest.ToolAnswer{Text: "a\xffb\n\x00c"}
		case "nothing":
			return guest.ToolAnswer{ID: k.ID + 1000}
		}
		return guest.ToolAnswer{}
	}}
	code := `
import asyncio
for do in 'timeout', 'fail', 'odd', 'nothing', 'bigger':
    try: print(await echo(do=do))
    except TimeoutError as e: print('TimeoutError', e)
    except ToolError as e: print(type(e).__name__, isinstance(e, RuntimeError), e)
print(len(await echo(do='big')), repr(await echo(do='binary')), repr(await echo()))
mixed = await asyncio.gather(echo(do='fail'), echo(do='nothing'), echo(do='binary'), return_exceptions=True)
print(mixed)
try:
    async with asyncio.TaskGroup() as group:
        group.create_task(echo(do='fail'))
except* ToolError as e: print('group', e.exceptions)
await echo(do='timeout')
`
	o := g.runCell(t, s.cell(code))
	want := `TimeoutError no answer of echo within 270 s
ToolError True broken
ToolError True odd
ToolError True no answer has come to this call
ToolError True the answer of echo has 4194309 bytes; the limit is 4194304
1398101 'a�b\n\x00c' ''
[ToolError('broken'), ToolError('no answer has come to this call'), 'a�b\n\x00c']
group (ToolError('broken'),)
`
	if o.out != want || o.Code != 1 {
		t.Errorf("got %s, code %d\nwant %s", o.out, o.Code, want)
	}
	if want := "Traceback (most recent call last):\n  File \"<cell 1>\", line 14, in <module>\n    await echo(do='timeout')\nTimeoutError: no answer of echo within 270 s\n"; o.err != want {
		t.Errorf("stderr %s\nwant %s", o.err, want)
	}
}

// The names of a cell's functions are its own: the next cell has what was there before.
func TestToolNamesAreOfOneCell(t *testing.T) {
	t.Parallel()
	allWays(t, testToolNamesAreOfOneCell)
}

func testToolNamesAreOfOneCell(t *testing.T, w way) {
	g := w.start(t, guest.Options{})
	s := &groups{}
	for _, tt := range []struct {
		code, out, err string
		plain          bool // without tools
	}{
		{plain: true, code: "echo = 'mine'; tools = 'also mine'\ndef use(): return get_rows({})"},
		{code: "old = echo; print(await echo(), await use(), tools)", out: "echo{} get-rows{} also mine\n"},
		{plain: true, code: "print(echo, tools, 'get_rows' in globals(), ToolError.__name__)", out: "mine also mine False ToolError\n"},
		{plain: true, code: "use()", err: "NameError: name 'get_rows' is not defined"},
		{plain: true, code: "await old()", err: "echo cannot be called: its cell has ended, and this one has no such tool"},
		{code: "print(await old())\ndel tools", out: "echo{}\n"},
		{code: "echo = await echo(); del get_rows; len(tools)", out: "4\n"},
		{plain: true, code: "print(echo, 'tools' in globals())", out: "echo{} False\n"},
		{code: "print(await echo(), await get_rows())", out: "echo{} get-rows{}\n"},
		// What a cell leaves behind calls nothing, in the next cell or between the two.
		{code: "import asyncio\nasync def late():\n    try: print(await echo(late=1))\n    except ToolError as e: print(e)\ntask = asyncio.create_task(late())\nawait asyncio.sleep(0)"},
		{plain: true, code: "await task", out: "the cell ended before the answer came\n"},
		{code: "await asyncio.gather(late(), echo()); None", out: "echo{\"late\":1}\n"},
		{code: "async def start(): global f; f = asyncio.ensure_future(echo(lost=1)); await asyncio.sleep(0)\nasyncio.run(start())\nf.cancelled()", out: "True\n"},
	} {
		cell := s.cell(tt.code)
		if tt.plain {
			cell.Tools, cell.Call = nil, nil
		}
		o := g.runCell(t, cell)
		if o.out != tt.out || !strings.Contains(o.err, tt.err) || (tt.err == "") != (o.err == "") {
			t.Errorf("%s:\ngot %q, stderr %s\nwant %q, %q", tt.code, o.out, o.err, tt.out, tt.err)
		}
	}
	if got := fmt.Sprint(s.take()); strings.Contains(got, "lost") {
		t.Errorf("the host saw %s", got)
	}
	if o := g.runCell(t, guest.Cell{Code: "print('echo' in globals(), await tools['echo']())", Fresh: true, Tools: toolNames, Call: s.call}); o.out != "True echo{}\n" {
		t.Errorf("a fresh cell: %+v", o)
	}
}

// TestThreat55CallsOfToolsAreBounded: in number, at one time and in size, each with an exception in the code, which goes on.
func TestThreat55CallsOfToolsAreBounded(t *testing.T) {
	t.Parallel()
	g := start(t, guest.Options{})
	s := &groups{reply: func(k guest.ToolCall) guest.ToolAnswer { return guest.ToolAnswer{Text: fmt.Sprint(len(k.Input))} }}
	code := `
import asyncio, collections
async def many(n, size):
    got = await asyncio.gather(*[echo(a='x' * size) for _ in range(n)], return_exceptions=True)
    return dict(collections.Counter(str(g) for g in got))
print(await many(100, 1))
print(await many(9, 1 << 20 - 1))
total = collections.Counter()
for _ in range(60): total.update(await many(60, 1))
print(dict(total))
print('on')
`
	o := g.runCell(t, s.cell(code))
	want := `{'9': 64, '64 calls of tools may wait at one time, and as many do': 36}
{'524296': 9}
{'9': 927, 'a cell may make 1000 calls of tools, and this one has': 2673}
on
`
	if o.out != want || o.Code != 0 {
		t.Errorf("got %s, code %d, stderr %s\nwant %s", o.out, o.Code, o.err, want)
	}
	n := 0
	for _, group := range s.take() {
		n += len(group)
	}
	if n != guest.MaxToolCalls {
		t.Errorf("the host saw %d calls, want %d", n, guest.MaxToolCalls)
	}
	// Another cell may make as many again.
	o = g.runCell(t, s.cell("print(await many(20, (1 << 20) - 8))"))
	if want := "{'1048576': 8, 'the inputs of all calls that wait have over 8388608 bytes together': 12}\n"; o.out != want {
		t.Errorf("got %s, stderr %s\nwant %s", o.out, o.err, want)
	}
}

// forge says what its interpreter would not, over the interpreter's own stream.
const forge = `
import json, os, socket, stat, struct
def forge(body=b'', **head):
    for fd in range(200, 210):
        try:
            if not stat.S_ISSOCK(os.fstat(fd).st_mode): continue
        except OSError: continue
        head = json.dumps({'cell': this, **head}).encode() + b'\n'
        s = socket.socket(fileno=os.dup(fd))
        s.sendall(struct.pack('>I', len(head) + len(body)) + head + body)
        s.close()
`

// TestThreat55ForgedCallsReachNobody: the host sees only calls that a cell could have made itself.
func TestThreat55ForgedCallsReachNobody(t *testing.T) {
	t.Parallel()
	g := start(t, guest.Options{})
	s := &groups{}
	o := g.runCell(t, s.cell(forge+`
this = 1
import asyncio
forge(b'{}', t='call', call=5, name='no-such-tool')
forge(b'{}', t='call', call=5, name='')
forge(b'[]', t='call', call=5, name='echo')
forge(b'{"a":', t='call', call=5, name='echo')
forge(b'{}{}', t='call', call=5, name='echo')
forge(b'{"a":"\xff"}', t='call', call=5, name='echo')
forge(b'{"a":"' + b'x' * (1 << 20) + b'"}', t='call', call=5, name='echo')
forge(b'{}', t='call', call=5, name='echo', cell=7)
forge(t='answer', last=True)
forge(t='answer', call=1)
print(await echo(n=1))
# A number that is taken: it deceives only whoever forges it.
forge(b'{"forged":1}', t='call', call=3, name='echo')
print(await asyncio.gather(echo(n=2), echo(n=3)))
for n in range(2000): forge(b'{}', t='call', call=n, name='get-rows')
print('on')
`))
	if !strings.HasPrefix(o.out, "echo{\"n\":1}\n['echo{\"n\":2}', ") || !strings.HasSuffix(o.out, "on\n") || o.StateLost {
		t.Errorf("got %+v", o)
	}
	got := s.take()
	if len(got) != 2 || fmt.Sprint(got[0]) != `[echo{"n":1}]` || fmt.Sprint(got[1]) != `[echo{"forged":1} echo{"n":2} echo{"n":3}]` {
		t.Errorf("the host saw %q", got)
	}
	// Groups without end: the host is given what the limits allow and not more.
	o = g.runCell(t, s.cell(`
this = 2
for n in range(3000):
    forge(b'{}', t='call', call=n, name='echo')
    forge(t='wait')
print(await echo(n=1))
`))
	if o.StateLost {
		t.Errorf("got %+v", o)
	}
	calls := 0
	for _, group := range s.take() {
		calls += len(group)
	}
	if calls > guest.MaxToolCalls {
		t.Errorf("the host saw %d calls", calls)
	}
	if o := g.runCell(t, s.cell("await echo(n=1)")); o.out != "'echo{\"n\":1}'\n" {
		t.Errorf("the next cell: %+v", o)
	}
}

// TestThreat55GuestCountsTheCallsOfACellItself: the host would take one call too many for a guest that has been taken over, and
// let it go with all that it holds. Fails if the guest carries more than a cell may make.
func TestThreat55GuestCountsTheCallsOfACellItself(t *testing.T) {
	t.Parallel()
	g := start(t, guest.Options{})
	s := &groups{}
	o := g.runCell(t, s.cell(forge+`
this, kept = 1, 5
import asyncio
for _ in range(20): await asyncio.gather(*[echo(n=n) for n in range(50)])
for n in range(10): forge(b'{}', t='call', call=n, name='echo')
forge(t='wait')
await asyncio.sleep(0.3) # what the guest carries is on its way then
print('on')
`))
	if o.out != "on\n" || o.StateLost {
		t.Errorf("got %+v", o)
	}
	calls := 0
	for _, group := range s.take() {
		calls += len(group)
	}
	if calls != guest.MaxToolCalls {
		t.Errorf("the host saw %d calls", calls)
	}
	if o := g.runCell(t, s.cell("print(kept)")); o.out != "5\n" {
		t.Errorf("the next cell: %+v", o)
	}
}

// The clock of a cell stands still while the host has its calls, and only then.
func TestTimeLimitStandsStillWhileToolsAreCalled(t *testing.T) {
	t.Parallel()
	g := start(t, guest.Options{})
	s := &groups{}
	hold := make(chan struct{})
	slow := func(ctx context.Context, calls []guest.ToolCall) []guest.ToolAnswer {
		timer := time.NewTimer(2500 * time.Millisecond)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			close(hold)
		}
		return s.call(ctx, calls)
	}
	const limit = 2 * time.Second
	o := g.runCell(t, guest.Cell{Code: "await echo()", Timeout: limit, Tools: toolNames, Call: slow})
	if o.TimedOut || o.Code != 0 || o.out != "'echo{}'\n" || o.Waited < limit || o.Waited > o.Wall {
		t.Errorf("got %+v", o)
	}
	// An answer that the code does not look at does not stop the clock.
	s.reply = func(guest.ToolCall) guest.ToolAnswer {
		return guest.ToolAnswer{Text: strings.Repeat("x", guest.MaxToolAnswer)}
	}
	o = g.runCell(t, guest.Cell{Code: "import asyncio, time\nx = 1\ntask = asyncio.create_task(echo())\nawait asyncio.sleep(0.1)\ntime.sleep(100)", Timeout: limit, Tools: toolNames, Call: s.call})
	if !o.TimedOut || o.StateLost {
		t.Errorf("got %+v", o)
	}
	o = g.runCell(t, guest.Cell{Code: "x, len(await echo())", Timeout: 20 * time.Second, Tools: toolNames, Call: s.call})
	if o.out != "(1, 4194304)\n" {
		t.Errorf("got %+v", o)
	}
	// A cell that ends without its answers ends the Call.
	o = g.runCell(t, guest.Cell{Code: "task = asyncio.create_task(echo())\nawait asyncio.sleep(0.1)\nprint('end')", Timeout: limit, Tools: toolNames, Call: slow})
	<-hold
	if o.out != "end\n" || o.Code != 0 || o.TimedOut || o.StateLost {
		t.Errorf("got %+v", o)
	}
}

func TestCellIsCanceledWhileItsToolIsCalled(t *testing.T) {
	t.Parallel()
	allWays(t, testCellIsCanceledWhileItsToolIsCalled)
}

func testCellIsCanceledWhileItsToolIsCalled(t *testing.T, w way) {
	g := w.start(t, guest.Options{})
	g.py(t, "x = 1")
	ctx, cancel := context.WithCancelCause(t.Context())
	o, err := g.tryCell(ctx, guest.Cell{Code: "try: await echo()\nfinally: x = 2", Tools: toolNames, Call: func(ctx context.Context, _ []guest.ToolCall) []guest.ToolAnswer {
		cancel(errTest)
		<-ctx.Done()
		return nil
	}})
	if !errors.Is(err, errTest) || !o.Canceled || o.StateLost {
		t.Errorf("got %+v, %v", o, err)
	}
	if o := g.py(t, "x"); o.out != "2\n" {
		t.Errorf("got %+v", o)
	}
	if n := g.processes(t); n != w.resident {
		t.Errorf("%d processes left beside the interpreter", n-w.resident)
	}
}

// A cell that dies, or closes its stream, while it waits ends the Call, and the next cell runs.
func TestInterpreterDiesWhileItsToolIsCalled(t *testing.T) {
	t.Parallel()
	g := start(t, guest.Options{})
	s := &groups{}
	wait := func(ctx context.Context, _ []guest.ToolCall) []guest.ToolAnswer {
		<-ctx.Done()
		return nil
	}
	for _, code := range []string{
		"import asyncio, os\nasync def die(): await asyncio.sleep(0.1); os._exit(3)\nawait asyncio.gather(echo(), die())",
		"import asyncio, os\nasync def cut(): await asyncio.sleep(0.1); os.closerange(3, 1000)\nawait asyncio.gather(echo(), cut())",
		"import asyncio, os\nif os.fork() == 0:\n    import time; time.sleep(100)\nasync def die(): await asyncio.sleep(0.1); os._exit(3)\nawait asyncio.gather(echo(), die())",
	} {
		o := g.runCell(t, guest.Cell{Code: code, Timeout: 20 * time.Second, Tools: toolNames, Call: wait})
		if !o.StateLost || o.TimedOut {
			t.Errorf("%s: got %+v", code, o)
		}
		if o := g.runCell(t, s.cell("await echo()")); o.out != "'echo{}'\n" {
			t.Errorf("after %s: got %+v", code, o)
		}
	}
}

// The end of the fork server, which comes before a freeze, is not the end of what a cell has started.
func TestRestSparesTheCellThatWaits(t *testing.T) {
	t.Parallel()
	g := forkedWay.start(t, guest.Options{})
	code := "import subprocess\nchild = subprocess.Popen(['sleep', '100'])\nawait echo()\nchild.poll(); print(child.returncode); child.kill(); child.wait(); None"
	o := g.runCell(t, guest.Cell{Code: code, Timeout: 20 * time.Second, Tools: toolNames, Call: func(ctx context.Context, calls []guest.ToolCall) []guest.ToolAnswer {
		if err := g.Rest(ctx); err != nil {
			t.Error(err)
		}
		return []guest.ToolAnswer{{ID: calls[0].ID}}
	}})
	if o.out != "None\n" || o.Code != 0 {
		t.Errorf("got %+v", o)
	}
	if n := g.processes(t); n != 1 {
		t.Errorf("%d processes, want the interpreter alone", n)
	}
}
