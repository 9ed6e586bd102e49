package serve_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
)

// way is how interpreters come to be: cold, or from the fork server.
type way struct {
	preload []string
	// resident counts the processes that stay between two cells.
	resident int
	// env is how the guest is told that it is gVisor's.
	env []string
}

var forkedWay = way{preload: []string{"asyncio", "random", "uuid", "tempfile", "numpy.random", "no_such_module"}, resident: 2}

// becomingWay is that of gVisor: the fork server becomes the interpreter.
var becomingWay = way{preload: forkedWay.preload, resident: 1, env: []string{groupVar + "=" + os.DevNull}}

// allWays runs a test of cells with each kind of interpreter: there is no
// difference that a cell could tell.
func allWays(t *testing.T, test func(*testing.T, way)) {
	t.Helper()
	for name, w := range map[string]way{"cold": {resident: 1}, "forked": forkedWay, "become": becomingWay} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, w)
		})
	}
}

// start waits for the fork server, if there is to be one.
func (w way) start(tb testing.TB, opts guest.Options) *guestProcess {
	tb.Helper()
	opts.Preload = w.preload
	g := start(tb, opts, w.env...)
	if len(w.preload) > 0 {
		if err := g.Warm(tb.Context()); err != nil {
			tb.Fatalf("fork server: %v", err)
		}
	}
	return g
}

type cellOutcome struct {
	guest.CellResult
	out, err string
}

func (g *guestProcess) runCell(tb testing.TB, cell guest.Cell) cellOutcome {
	tb.Helper()
	o, err := g.tryCell(tb.Context(), cell)
	if err != nil {
		tb.Fatalf("cell: %v", err)
	}
	return o
}

func (g *guestProcess) tryCell(ctx context.Context, cell guest.Cell) (cellOutcome, error) {
	var out, errOut bytes.Buffer
	if cell.Stdout == nil {
		cell.Stdout = &out
	}
	cell.Stderr = &errOut
	res, err := g.Cell(ctx, cell)
	return cellOutcome{res, out.String(), errOut.String()}, err
}

func (g *guestProcess) py(tb testing.TB, code string) cellOutcome {
	tb.Helper()
	return g.runCell(tb, guest.Cell{Code: code, Timeout: 30 * time.Second})
}

func TestCells(t *testing.T) {
	t.Parallel()
	allWays(t, testCells)
}

// testCells runs groups of cells, each group in one interpreter.
func testCells(t *testing.T, w way) {
	type step struct {
		code, out string
		err       string // a part of stderr; "" means that it is empty
		exit      int
	}
	tests := []struct {
		name  string
		steps []step
	}{
		{"state", []step{
			{code: "import math\nx = 41\ndef f(): return x + 1"},
			{code: "f()", out: "42\n"},
			{code: "x = 1; print(f(), math.pi > 3)", out: "2 True\n"},
		}},
		{"echo", []step{
			{code: "1 + 1", out: "2\n"},
			{code: "None"},
			{code: "'a\\nb'", out: "'a\\nb'\n"},
			{code: "_", out: "'a\\nb'\n"},
			{code: "7;"},
			{code: "x = 3"},
			{code: "for i in range(2): i"},
			{code: ""},
			{code: "# only a comment"},
		}},
		{"exceptions", []step{
			{code: "y = 1\ndef g():\n    raise ValueError('bad')\ng()", err: "Traceback (most recent call last):\n  File \"<cell 1>\", line 4, in <module>\n    g()\n", exit: 1},
			{code: "y", out: "1\n"},
			{code: "def broken(:\n", err: "SyntaxError", exit: 1},
			{code: "y += 1; y", out: "2\n"},
			{code: "def r(): return r()\nr()", err: "RecursionError", exit: 1},
			{code: "class E(BaseException): pass\nraise E()", err: "E\n", exit: 1},
			{code: "raise KeyboardInterrupt", err: "KeyboardInterrupt", exit: 1},
			{code: "raise ExceptionGroup('g', [ValueError(1), TypeError(2)])", err: "TypeError: 2", exit: 1},
			{code: "class R:\n    def __repr__(self): raise ValueError('in repr')\nR()", err: "in repr", exit: 1},
			{code: "a = 'x\x00y'", err: "null byte", exit: 1},
			{code: "\xff", err: "UnicodeDecodeError", exit: 1},
			{code: "y", out: "2\n"},
		}},
		{"exit", []step{
			{code: "z = 5; import sys; print('a'); sys.exit(3)", out: "a\n", exit: 3},
			{code: "z; exit()"},
			{code: "quit(7)", exit: 7},
			{code: "sys.exit('why')", err: "why\n", exit: 1},
			{code: "raise SystemExit(257)", exit: 1},
			{code: "z", out: "5\n"},
		}},
		{"await", []step{
			{code: "import asyncio\nasync def f(n):\n    await asyncio.sleep(0.001)\n    return n\nawait f(1)", out: "1\n"},
			{code: "r = await asyncio.gather(*[f(i) for i in range(3)])\nr", out: "[0, 1, 2]\n"},
			{code: "asyncio.run(f(2))", out: "2\n"},
			{code: "await f(0)\nprint(asyncio.run(f(3)))\nawait f(4)", out: "3\n4\n"},
			{code: "loop = asyncio.get_event_loop()\nprint(loop.run_until_complete(f(5)))", out: "5\n"},
			{code: "await f(0); print(asyncio.get_event_loop().run_until_complete(f(6)))", out: "6\n"},
			{code: "async with asyncio.timeout(5):\n    print(await f(7))", out: "7\n"},
			{code: "[await f(i) for i in (8, 9)]", out: "[8, 9]\n"},
			{code: "lock = asyncio.Lock()\nasync with lock: pass\nasync for i in (lambda: None) if False else g() if 'g' in dir() else f(1): pass", err: "TypeError", exit: 1},
			{code: "await f(1)\nraise ValueError('late')", err: "ValueError: late", exit: 1},
			{code: "import sys\nawait f(1)\nsys.exit(4)", exit: 4},
			{code: "async def main():\n    print('in main')\nif __name__ == '__main__':\n    asyncio.run(main())", out: "in main\n"},
			{code: "def sync():\n    return asyncio.run(f(10))\nawait f(0)\nsync()", out: "10\n"},
			{code: "try:\n    asyncio.run(asyncio.wait_for(f(1), 5)) and print('ok')\nfinally:\n    await f(0)", out: "ok\n"},
		}},
		{"streams", []step{
			{code: "import os\nos.write(1, b'raw\\n'); os.write(2, b'rawerr\\n'); print('p')", out: "raw\np\n", err: "rawerr\n"},
			{code: "import subprocess\nsubprocess.run(['echo', 'child'])\nprint('after')", out: "child\nafter\n"},
			{code: "subprocess.run('cat; echo e >&2', shell=True).returncode", out: "0\n", err: "e\n"},
			{code: "input()", err: "EOFError", exit: 1},
			{code: "import sys; sys.stdin.read()", out: "''\n"},
			{code: "sys.stdout.buffer.write(b'\\xff\\x00'); None", out: "\xff\x00"},
			{code: "print('\\udcff é', end='')", out: "\xff é"},
			{code: "sys.stdout.close(); sys.stderr = None"},
			{code: "print('back'); print('err', file=sys.stderr)", out: "back\n", err: "err\n"},
			{code: "sys.stdout = open('/dev/null', 'w'); print('hidden')"},
			{code: "print('seen')", out: "seen\n"},
			{code: "os.close(0); os.close(1); os.close(2); os.closerange(3, 100)"},
			{code: "print('open again')", out: "open again\n"},
			{code: "import threading\nt = threading.Thread(target=lambda: print('thread')); t.start(); t.join()", out: "thread\n"},
			{code: "f = open('/tmp/held', 'w'); f.write('content'); None"},
			{code: "open('/tmp/held').read()", out: "'content'\n"},
		}},
		{"forks", []step{
			{code: "import os\npid = os.fork()\nif pid == 0:\n    print('child')\nelse:\n    os.waitpid(pid, 0); print('parent')", out: "child\nparent\n"},
			{code: "pid = os.fork()\nif pid == 0:\n    raise SystemExit(9)\nos.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])", out: "9\n"},
			{code: "from multiprocessing import Pool\ndef sq(x): return x * x\nwith Pool(2) as p: print(p.map(sq, [1, 2, 3]))", out: "[1, 4, 9]\n"},
			{code: "if os.fork() == 0:\n    while True: pass\nprint('left it')", out: "left it\n"},
			{code: "os.getpid() == os.getpid()", out: "True\n"},
		}},
		{"modules", []step{
			{code: "open('/workspace/helper.py', 'w').write('value = 7'); open('/workspace/json.py', 'w').write('raise Exception'); None"},
			{code: "import helper, sys; helper.value", out: "7\n"},
			{code: "import json, decimal; json.dumps([1])", out: "'[1]'\n"},
			{code: "import pickle, dataclasses\n@dataclasses.dataclass\nclass P:\n    x: int\npickle.loads(pickle.dumps(P(3)))", out: "P(x=3)\n"},
			{code: "import inspect\ndef shown(): return 1\nprint(inspect.getsource(shown))", out: "def shown(): return 1\n\n"},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := w.start(t, guest.Options{})
			for i, s := range tt.steps {
				o := g.py(t, s.code)
				if o.out != s.out || o.Code != s.exit || o.StateLost || o.Started != (i == 0) {
					t.Errorf("cell %d %q:\n got %q, code %d, %+v\nwant %q, code %d\nstderr %s", i+1, s.code, o.out, o.Code, o.CellResult, s.out, s.exit, o.err)
				}
				if !strings.Contains(o.err, s.err) || (s.err == "" && o.err != "") {
					t.Errorf("cell %d %q: stderr %q, want %q in it", i+1, s.code, o.err, s.err)
				}
				if strings.Contains(o.err, "_airlock_main") || strings.Contains(o.err, "<string>") {
					t.Errorf("cell %d: the interpreter's own frames are shown: %s", i+1, o.err)
				}
			}
			if n := g.processes(t); n != w.resident {
				t.Errorf("%d processes left beside the interpreter", n-w.resident)
			}
		})
	}
}

func TestCellEnvironmentIsOfOneCell(t *testing.T) {
	t.Parallel()
	allWays(t, testCellEnvironmentIsOfOneCell)
}

func testCellEnvironmentIsOfOneCell(t *testing.T, w way) {
	g := w.start(t, guest.Options{Env: map[string]string{"OPENBLAS_NUM_THREADS": "1"}})
	code := "import os; print(os.environ.get('OUTPUT_DIR'), os.environ.get('ONCE'), os.environ['HOME'], os.environ['OPENBLAS_NUM_THREADS'], os.getcwd())"
	o := g.runCell(t, guest.Cell{Code: code, Env: map[string]string{"OUTPUT_DIR": "/files/output/a", "ONCE": "1"}})
	if o.out != "/files/output/a 1 /workspace 1 /workspace\n" {
		t.Errorf("got %+v", o)
	}
	o = g.runCell(t, guest.Cell{Code: code, Env: map[string]string{"OUTPUT_DIR": "/files/output/b"}})
	if o.out != "/files/output/b None /workspace 1 /workspace\n" {
		t.Errorf("got %+v", o)
	}
}

func TestFreshCellSharesNothing(t *testing.T) {
	t.Parallel()
	allWays(t, testFreshCellSharesNothing)
}

func testFreshCellSharesNothing(t *testing.T, w way) {
	g := w.start(t, guest.Options{})
	g.py(t, "x = 1")
	o := g.runCell(t, guest.Cell{Code: "import atexit\natexit.register(lambda: print('bye'))\nf = open('/tmp/f', 'w'); f.write('unflushed')\nprint('x' in globals())\nimport sys; sys.exit(6)", Fresh: true})
	if o.out != "False\nbye\n" || o.Code != 6 || !o.Started || o.StateLost || o.err != "" {
		t.Errorf("got %+v", o)
	}
	if o := g.py(t, "print(x, open('/tmp/f').read())"); o.out != "1 unflushed\n" || o.Started {
		t.Errorf("got %+v", o)
	}
	o = g.runCell(t, guest.Cell{Code: "import subprocess\nsubprocess.Popen(['sleep', '100'])\nprint(1)", Fresh: true})
	if o.out != "1\n" || o.Code != 0 {
		t.Errorf("got %+v", o)
	}
	o = g.runCell(t, guest.Cell{Code: "print('up')\nwhile True: pass", Fresh: true, Timeout: 4 * time.Second})
	if !o.TimedOut || o.Code != 124 || !strings.Contains(o.err, "\ndetection_timeout: the cell ran longer than 4 s") || o.StateLost || o.out != "up\n" {
		t.Errorf("got %+v", o)
	}
	want := w.resident
	if w.env != nil {
		want++ // whoever will be the next interpreter imports already
	}
	if n := g.processes(t); n != want {
		t.Errorf("%d processes left beside the interpreter", n-want)
	}
}

func TestCellPastItsTimeIsInterruptedAndKeepsState(t *testing.T) {
	t.Parallel()
	allWays(t, testCellPastItsTimeIsInterruptedAndKeepsState)
}

func testCellPastItsTimeIsInterruptedAndKeepsState(t *testing.T, w way) {
	g := w.start(t, guest.Options{})
	g.py(t, "import asyncio, subprocess, threading, time\nx = 'kept'")
	for _, code := range []string{
		"print('partial', end='')\nwhile True: pass",
		"import time; print('partial', end=''); time.sleep(100)",
		"import asyncio; print('partial', end=''); await asyncio.sleep(100)",
		"import asyncio; print('partial', end=''); asyncio.run(asyncio.sleep(100))",
		"import asyncio; print('partial', end=''); await asyncio.sleep(0); asyncio.run(asyncio.sleep(100))",
		"import subprocess; print('partial', end=''); subprocess.run(['sleep', '100'])",
		"import threading; print('partial', end=''); threading.Event().wait()",
		"try:\n    print('partial', end='')\n    while True: pass\nexcept KeyboardInterrupt: pass",
	} {
		o := g.runCell(t, guest.Cell{Code: code, Timeout: 1500 * time.Millisecond})
		if !o.TimedOut || o.Code != 124 || o.Canceled || o.StateLost || o.out != "partial" {
			t.Errorf("%s: got %+v", code, o)
		}
		lines := strings.Split(strings.TrimSpace(o.err), "\n")
		if last := lines[len(lines)-1]; last != "detection_timeout: the cell ran longer than 1.5 s and was interrupted; variables are kept" {
			t.Errorf("%s: last line %q", code, last)
		}
	}
	if o := g.py(t, "x"); o.out != "'kept'\n" || o.Started || o.err != "" {
		t.Errorf("got %+v", o)
	}
	if n := g.processes(t); n != w.resident {
		t.Errorf("%d processes left beside the interpreter", n-w.resident)
	}
}

func TestCellThatDoesNotYieldLosesItsInterpreter(t *testing.T) {
	t.Parallel()
	allWays(t, testCellThatDoesNotYieldLosesItsInterpreter)
}

func testCellThatDoesNotYieldLosesItsInterpreter(t *testing.T, w way) {
	g := w.start(t, guest.Options{})
	g.py(t, "x = 1")
	o := g.runCell(t, guest.Cell{Code: "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('partial')\nwhile True: pass", Timeout: time.Second})
	if !o.TimedOut || o.Code != 124 || !o.StateLost || o.out != "partial\n" || !strings.Contains(o.err, "detection_timeout: ") || !strings.Contains(o.err, "variables are lost") {
		t.Errorf("got %+v", o)
	}
	if o := g.py(t, "'x' in dir()"); o.out != "False\n" || !o.Started || o.StateLost || o.err != "" {
		t.Errorf("got %+v", o)
	}
}

func TestInterpreterThatDiesIsReplacedAndTold(t *testing.T) {
	t.Parallel()
	allWays(t, testInterpreterThatDiesIsReplacedAndTold)
}

func testInterpreterThatDiesIsReplacedAndTold(t *testing.T, w way) {
	g := w.start(t, guest.Options{})
	tests := []struct {
		code         string
		exit, signal int
	}{
		{"import os; print('a'); os._exit(5)", 5, 0},
		{"import os; print('a', flush=True); os.kill(os.getpid(), 11)", 139, 11},
		{"import os; print('a', flush=True); os.kill(os.getpid(), 9)", 137, 9},
		{"import os; print('a', flush=True)\npid = os.fork()\nif pid == 0:\n    import time; time.sleep(100)\nos._exit(5)", 5, 0},
	}
	for _, tt := range tests {
		o := g.py(t, tt.code)
		if o.out != "a\n" || o.Code != tt.exit || o.Signal != tt.signal || !o.StateLost || o.Holds || !strings.Contains(o.err, "all variables are lost") {
			t.Errorf("%s: got %+v", tt.code, o)
		}
		if o := g.py(t, "print('b')"); o.out != "b\n" || !o.Started || o.StateLost || !o.Holds || o.err != "" {
			t.Errorf("after %s: got %+v", tt.code, o)
		}
	}
	// Killed between two cells, by a command.
	g.shell(t, "kill -9 -1")
	o := g.py(t, "print('c')")
	if o.out != "c\n" || !o.Started || !o.StateLost || !o.Holds || !strings.HasPrefix(o.err, "the Python interpreter ended after the last cell") {
		t.Errorf("got %+v", o)
	}
}

func TestCellThatClosesItsChannelIsEnded(t *testing.T) {
	t.Parallel()
	allWays(t, testCellThatClosesItsChannelIsEnded)
}

func testCellThatClosesItsChannelIsEnded(t *testing.T, w way) {
	g := w.start(t, guest.Options{})
	o := g.py(t, "import os; os.closerange(3, 1000); import time; time.sleep(100)")
	if o.Code != 137 || !o.StateLost {
		t.Errorf("got %+v", o)
	}
	o = g.py(t, "import os\nfor fd in range(190, 260):\n    try: os.write(fd, b'\\xff' * 100)\n    except OSError: pass\nimport time; time.sleep(100)")
	if o.Code != 137 || !o.StateLost {
		t.Errorf("garbage on the channel: got %+v", o)
	}
	if o := g.py(t, "1"); o.out != "1\n" {
		t.Errorf("got %+v", o)
	}
}

func TestCanceledCellIsInterrupted(t *testing.T) {
	t.Parallel()
	allWays(t, testCanceledCellIsInterrupted)
}

func testCanceledCellIsInterrupted(t *testing.T, w way) {
	g := w.start(t, guest.Options{})
	g.py(t, "x = 1")
	ctx, cancel := context.WithCancelCause(t.Context())
	o, err := g.tryCell(ctx, guest.Cell{Code: "import subprocess\nsubprocess.Popen(['sleep', '100'])\nprint('up')\nwhile True: pass", Stdout: onWrite(func() { cancel(errTest) })})
	if !errors.Is(err, errTest) || !o.Canceled || o.TimedOut || o.StateLost {
		t.Errorf("got %+v, %v", o, err)
	}
	if o := g.py(t, "x"); o.out != "1\n" {
		t.Errorf("got %+v", o)
	}
	if n := g.processes(t); n != w.resident {
		t.Errorf("%d processes left beside the interpreter", n-w.resident)
	}
}

func TestCellsWaitForEachOtherAndCommandsDoNot(t *testing.T) {
	t.Parallel()
	allWays(t, testCellsWaitForEachOtherAndCommandsDoNot)
}

func testCellsWaitForEachOtherAndCommandsDoNot(t *testing.T, w way) {
	g := w.start(t, guest.Options{})
	up := make(chan struct{})
	var once sync.Once
	first := make(chan cellOutcome, 1)
	go func() {
		o, err := g.tryCell(t.Context(), guest.Cell{Code: "import os, time\nprint('up', flush=True)\nwhile not os.path.exists('/tmp/go'): time.sleep(0.01)\nn = 1", Stdout: onWrite(func() { once.Do(func() { close(up) }) })})
		if err != nil {
			t.Error(err)
		}
		first <- o
	}()
	<-up
	second := make(chan cellOutcome, 1)
	go func() {
		o, err := g.tryCell(t.Context(), guest.Cell{Code: "n"})
		if err != nil {
			t.Error(err)
		}
		second <- o
	}()
	// One that waits for its turn can be given up without harm.
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := g.tryCell(ctx, guest.Cell{Code: "n = 100"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if o := g.shell(t, "touch /tmp/go"); o.Code != 0 {
		t.Errorf("got %+v", o)
	}
	if o := <-first; o.Code != 0 {
		t.Errorf("got %+v", o)
	}
	if o := <-second; o.out != "1\n" {
		t.Errorf("got %+v", o)
	}
}

func TestOutputBetweenCellsGoesNowhere(t *testing.T) {
	t.Parallel()
	allWays(t, testOutputBetweenCellsGoesNowhere)
}

func testOutputBetweenCellsGoesNowhere(t *testing.T, w way) {
	g := w.start(t, guest.Options{})
	g.py(t, "import threading, time, os\nstop = False\ndef noise():\n    while not stop: os.write(1, b'noise' * 1000)\nthreading.Thread(target=noise, daemon=True).start()")
	g.shell(t, "sleep 0.2")
	o := g.py(t, "stop = True; time.sleep(0.1); print('mine')")
	if !strings.HasSuffix(o.out, "mine\n") || o.Code != 0 {
		t.Errorf("got %d bytes, %+v", len(o.out), o.CellResult)
	}
}

func TestHugeCellOutputKeepsHeadAndTail(t *testing.T) {
	t.Parallel()
	allWays(t, testHugeCellOutputKeepsHeadAndTail)
}

func testHugeCellOutputKeepsHeadAndTail(t *testing.T, w way) {
	g := w.start(t, guest.Options{})
	o := g.runCell(t, guest.Cell{Code: "print('begin')\nprint('x' * 20_000_000)\nprint('end')", OutputBytes: 10_000})
	if !strings.HasPrefix(o.out, "begin\nxxx") || !strings.HasSuffix(o.out, "xxx\nend\n") || len(o.out) > 10_100 || o.StdoutDropped < 19_000_000 {
		t.Errorf("got %d bytes, %+v", len(o.out), o.CellResult)
	}
	big := "s = '" + strings.Repeat("y", 10<<20) + "'\nlen(s)"
	if o := g.py(t, big); o.out != "10485760\n" {
		t.Errorf("10 MiB cell: got %+v", o.CellResult)
	}
}
