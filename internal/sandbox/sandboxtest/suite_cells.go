package sandboxtest

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/attack"
)

func cellRules() []rule {
	return []rule{
		{"CellsKeepState", cellState},
		{"CellSaysWhatAnInterpreterSays", cellOutput},
		{"CellAwaits", cellAwait},
		{"CellPastItsTimeIsInterrupted", cellTimeout},
		{"CellThatDiesLosesStateOnly", cellDies},
		{"CellForksAndThreads", cellForks},
	}
}

func cell(t *testing.T, b *Box, code string) (sandbox.CellResult, Output) {
	t.Helper()
	res, out, err := b.Cell(t.Context(), sandbox.Cell{Code: code, Timeout: attack.CommandTime})
	if err != nil {
		t.Fatalf("cell %.80q: %v", code, err)
	}
	return res, out
}

func cellState(t *testing.T, e *Env) {
	b := start(t, e)
	res, _ := cell(t, b, "x = 41\ndef inc(n): return n + 1")
	if !res.Started || res.StateLost {
		t.Errorf("the first cell: %+v", res)
	}
	res, out := cell(t, b, "print(inc(x))")
	wantOutput(t, out, "42\n")
	if res.Started || res.StateLost {
		t.Errorf("the second cell: %+v", res)
	}
	_, fresh, err := b.Cell(t.Context(), sandbox.Cell{Code: "print('x' in globals())", Fresh: true})
	if err != nil {
		t.Fatal(err)
	}
	wantOutput(t, fresh, "False\n")
	_, out = cell(t, b, "x")
	wantOutput(t, out, "41\n")
	_, out, err = b.Cell(t.Context(), sandbox.Cell{Code: "import os; print(os.environ.get('ONLY'), os.getcwd(), os.getuid())", Env: map[string]string{"ONLY": "here"}})
	if err != nil {
		t.Fatal(err)
	}
	wantOutput(t, out, "here /workspace 1000\n")
}

func cellOutput(t *testing.T, e *Env) {
	b := start(t, e)
	for code, want := range map[string]string{
		"1 + 1": "2\n", "None": "", "x = 1": "", "'a'": "'a'\n", "print(1)\n2": "1\n2\n", "import sys; sys.stdout.write('no newline') and None": "no newline",
	} {
		_, out := cell(t, b, code)
		wantOutput(t, out, want)
	}
	_, out := cell(t, b, "print('before')\n1 / 0")
	if out.Stdout != "before\n" || out.Code != 1 || !strings.Contains(out.Stderr, "ZeroDivisionError") || !strings.Contains(out.Stderr, "line 2") {
		t.Errorf("an exception: %v", out)
	}
	_, out = cell(t, b, "def broken(:\n")
	if out.Code != 1 || !strings.Contains(out.Stderr, "SyntaxError") {
		t.Errorf("a syntax error: %v", out)
	}
	_, out = cell(t, b, "raise SystemExit(7)")
	if out.Code != 7 {
		t.Errorf("SystemExit: %v", out)
	}
	_, out = cell(t, b, "import os; os.write(1, b'raw\\xff\\0'); os.system('echo child'); print('end')")
	wantOutput(t, out, "raw\xff\x00child\nend\n")
}

func cellAwait(t *testing.T, e *Env) {
	b := start(t, e)
	_, out := cell(t, b, "import asyncio\nawait asyncio.sleep(0)\nprint('awaited')\nawait asyncio.gather(*[asyncio.sleep(0, n) for n in range(3)])")
	wantOutput(t, out, "awaited\n[0, 1, 2]\n")
	_, out = cell(t, b, "async def main():\n  await asyncio.sleep(0)\n  return 'ran'\nprint(asyncio.run(main()))")
	wantOutput(t, out, "ran\n")
}

func cellTimeout(t *testing.T, e *Env) {
	b := start(t, e)
	cell(t, b, "kept = 1")
	for code, lost := range map[string]bool{
		"print('begun')\nimport time\ntime.sleep(60)":                                           false,
		"print('begun')\nwhile True:\n  try:\n    time.sleep(60)\n  except BaseException: pass": true,
	} {
		res, out, err := b.Cell(t.Context(), sandbox.Cell{Code: "import time\nkept = 1\n" + code, Timeout: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if !res.TimedOut || res.Code != 124 || res.StateLost != lost || !strings.HasPrefix(out.Stdout, "begun\n") || !strings.Contains(out.Stderr, "detection_timeout:") {
			t.Errorf("%q: state lost %t, %v", code, res.StateLost, out)
		}
		_, out = cell(t, b, "'kept' in globals()")
		if want := map[bool]string{true: "False\n", false: "True\n"}[lost]; out.Stdout != want {
			t.Errorf("after %q the state is %q, want %q", code, out.Stdout, want)
		}
	}
}

func cellDies(t *testing.T, e *Env) {
	b := start(t, e, attack.Memory(128*attack.MiB))
	cell(t, b, "x = 1")
	res, out := cell(t, b, "print('begun')\nimport os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
	if !res.StateLost || res.Code != 137 || res.OOM || out.Stdout != "begun\n" {
		t.Errorf("a killed interpreter: %+v, %v", res, out)
	}
	cell(t, b, "x = 1")
	const hog = "y = bytearray(1 << 30)"
	if e.DiesWhole() {
		if _, _, err := b.Cell(t.Context(), sandbox.Cell{Code: hog}); !errors.Is(err, sandbox.ErrOutOfMemory) || b.ExitReason() != sandbox.ExitOOM {
			t.Errorf("memory without end in a cell: %v, the sandbox ended by %q", err, b.ExitReason())
		}
		return
	}
	res, out = cell(t, b, hog)
	if !res.OOM && !strings.Contains(out.Stderr, "MemoryError") {
		t.Errorf("memory without end in a cell: %+v, %v", res, out)
	}
	_, out = cell(t, b, "import ctypes\nprint('on')")
	wantOutput(t, out, "on\n")
}

func cellForks(t *testing.T, e *Env) {
	b := start(t, e)
	_, out := cell(t, b, "import os\npid = os.fork()\nif pid == 0:\n  os._exit(3)\nprint(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))")
	wantOutput(t, out, "3\n")
	// A child that returns from the cell must not speak for its parent.
	_, out = cell(t, b, "import os\npid = os.fork()\nif pid: os.waitpid(pid, 0); print('parent')")
	if out.Code != 0 || !strings.HasSuffix(out.Stdout, "parent\n") {
		t.Errorf("a child that falls through: %v", out)
	}
	_, out = cell(t, b, "import threading\nth = threading.Thread(target=lambda: print('thread'))\nth.start(); th.join()")
	wantOutput(t, out, "thread\n")
	_, out = cell(t, b, "import subprocess\nsubprocess.Popen(['sleep', '1000'])\nprint('left')")
	if !strings.HasSuffix(out.Stdout, "left\n") {
		t.Errorf("a child in the background: %v", out)
	}
	if out := sh(t, b, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"); strings.Contains(out.Stdout, "sleep 1000") {
		t.Errorf("the cell's child outlived it: %v", out)
	}
}
