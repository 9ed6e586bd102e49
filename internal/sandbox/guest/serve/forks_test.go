package serve_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
)

// drawing prints what must differ between any two interpreters, one a line.
const drawing = `
import os, random, secrets, tempfile, uuid
print('random', random.random())
print('urandom', os.urandom(8).hex())
print('secrets', secrets.token_hex(8))
print('uuid4', uuid.uuid4())
one = uuid.uuid1()
print('uuid1', one)
print('node', uuid.getnode() if uuid.getnode() >> 40 & 1 else random.random())
print('clock_seq', one.clock_seq, one.time)
print('tempfile', next(tempfile._get_candidate_names()))
try:
    import numpy
except ImportError:
    pass
else:
    print('numpy', numpy.random.random())
    print('numpy state', hash(numpy.random.get_state()[1].tobytes()), numpy.random.randint(1 << 60))
    print('default_rng', numpy.random.default_rng().random())
from multiprocessing import process
print('authkey', bytes(process.current_process().authkey).hex())
`

// distinct fails for each line that two drawings share.
func distinct(t *testing.T, drawings ...string) {
	t.Helper()
	seen := map[string]int{}
	for n, d := range drawings {
		lines := strings.Split(strings.TrimSpace(d), "\n")
		if len(lines) < 9 {
			t.Fatalf("drawing %d is short: %q", n, d)
		}
		for _, line := range lines {
			if other, ok := seen[line]; ok {
				t.Errorf("interpreters %d and %d both drew %q", other, n, line)
			}
			seen[line] = n
		}
	}
}

// drawer returns a guest whose fork server has drawn already when it forks.
func drawer(t *testing.T) *guestProcess {
	t.Helper()
	g := start(t, guest.Options{
		Env:     map[string]string{"PYTHONPATH": guest.Home + "/lib"},
		Preload: append([]string{"multiprocessing.process", "drawn"}, forkedWay.preload...),
	})
	g.shell(t, "mkdir lib && cat > lib/drawn.py <<'end'"+drawing+"\nend")
	if err := g.Warm(t.Context()); err != nil {
		t.Fatal(err)
	}
	return g
}

func TestForkedInterpretersDrawDifferentRandomness(t *testing.T) {
	t.Parallel()
	g, other := drawer(t), drawer(t)
	var all []string
	hashes := map[string]string{}
	for name, in := range map[string]*guestProcess{"one": g, "two": other} {
		for range 2 {
			o := in.runCell(t, guest.Cell{Code: drawing, Fresh: true})
			if o.err != "" {
				t.Fatal(o.err)
			}
			all = append(all, o.out)
		}
		all = append(all, in.py(t, drawing).out)
		hashes[name] = in.py(t, "hash('airlock')").out
	}
	distinct(t, all...)
	// Each sandbox executes its own fork server, which draws its own hash seed.
	if hashes["one"] == hashes["two"] {
		t.Errorf("two sandboxes hash alike: %q", hashes["one"])
	}
}

// looks describes an interpreter: what a cell could notice.
const looks = `
import gc, os, resource, signal, sys, threading, site
print(sorted(os.environ.items()))
print(os.getcwd(), os.getuid(), os.getgid(), len(os.getgroups()), oct(os.umask(0o022)))
print(sys.path, sys.argv, sys.flags, sys.executable, sys.getrecursionlimit())
print(sorted(int(f) for f in os.listdir('/proc/self/fd'))[:-1], os.path.exists('/proc/self/fd/1'), os.access('/proc/self/environ', os.R_OK))
print(gc.isenabled(), gc.get_threshold(), threading.active_count(), threading.current_thread().name)
print([(s.name, str(signal.getsignal(s))) for s in signal.Signals if s != signal.SIGINT], signal.pthread_sigmask(signal.SIG_BLOCK, []))
print(os.getsid(0) == os.getpid() == os.getpgid(0), os.getppid(), open('/proc/self/oom_score_adj').read())
print(site.getusersitepackages(), site.ENABLE_USER_SITE, sys.gettrace(), __name__, sorted(n for n in globals() if n[0] != '_' and not hasattr(sys.modules.get(n), '__name__')))
print([resource.getrlimit(r) for r in (resource.RLIMIT_NOFILE, resource.RLIMIT_CORE, resource.RLIMIT_STACK)])
print([l for l in open('/proc/self/status') if l.split(':')[0] in ('NoNewPrivs', 'Seccomp', 'CapEff', 'CapPrm', 'CapInh', 'CapAmb', 'SigIgn', 'SigBlk', 'SigCgt', 'Threads')])
`

func TestForkedInterpreterLooksLikeAColdOne(t *testing.T) {
	t.Parallel()
	opts := guest.Options{Env: map[string]string{"OPENBLAS_NUM_THREADS": "2", "GREETING": "a=b\nc"}}
	cold := start(t, opts).py(t, looks)
	if cold.err != "" || strings.Count(cold.out, "\n") < 9 {
		t.Fatalf("got %q, %s", cold.out, cold.err)
	}
	for name, w := range map[string]way{"forked": forkedWay, "become": becomingWay} {
		was, is := strings.Split(cold.out, "\n"), strings.Split(w.start(t, opts).py(t, looks).out, "\n")
		for n := range was {
			if n >= len(is) || was[n] != is[n] {
				t.Errorf("line %d:\n cold   %s\n %s %s", n, was[n], name, is[min(n, len(is)-1)])
			}
		}
	}
}

func TestForkServerBecomesOneInterpreterAndAnotherFollowsIt(t *testing.T) {
	t.Parallel()
	g := becomingWay.start(t, guest.Options{})
	if n := g.processes(t); n != 1 {
		t.Errorf("%d processes, want one that has imported", n)
	}
	if o := g.py(t, imported+"\nx = 1"); o.out != "True\n" || !o.Started {
		t.Errorf("a warm first cell: %+v", o)
	}
	if n := g.processes(t); n != 1 {
		t.Errorf("%d processes, want the interpreter alone", n)
	}
	if o := g.py(t, "import os; os._exit(0)"); o.Holds {
		t.Errorf("got %+v", o)
	}
	if err := g.Warm(t.Context()); err != nil {
		t.Fatal(err)
	}
	if o := g.py(t, imported); o.out != "True\n" || !o.Started {
		t.Errorf("the next: %+v", o)
	}
}

func TestWhoeverHasBecomeAnInterpreterDrawsRandomnessOfItsOwn(t *testing.T) {
	t.Parallel()
	var all []string
	for range 2 {
		all = append(all, becomingWay.start(t, guest.Options{}).py(t, drawing).out)
	}
	distinct(t, all...)
}

// imported tells whether an interpreter came from the fork server.
const imported = "import sys; print('uuid' in sys.modules)"

func TestFirstCellIsForkedOnlyFromAReadyForkServer(t *testing.T) {
	t.Parallel()
	g := forkedWay.start(t, guest.Options{})
	if o := g.py(t, imported); o.out != "True\n" || !o.Started {
		t.Errorf("a warm first cell: %+v", o)
	}
	// The resident interpreter is the one that the fork server has.
	if o := g.runCell(t, guest.Cell{Code: imported, Fresh: true}); o.out != "False\n" {
		t.Errorf("a second interpreter beside it: %+v", o)
	}
	if o := start(t, guest.Options{}).py(t, imported); o.out != "False\n" {
		t.Errorf("without libraries to preload: %+v", o)
	}
}

func TestColdCellBringsTheForkServerForTheNext(t *testing.T) {
	t.Parallel()
	g := start(t, guest.Options{Preload: forkedWay.preload})
	if o := g.runCell(t, guest.Cell{Code: imported, Fresh: true}); o.out != "False\n" {
		t.Errorf("the first: %+v", o)
	}
	if err := g.Warm(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := g.processes(t); n != 2 {
		t.Errorf("%d processes, want the fork server and its next child", n)
	}
	if o := g.runCell(t, guest.Cell{Code: imported, Fresh: true}); o.out != "True\n" {
		t.Errorf("the second: %+v", o)
	}
}

func TestRestEndsTheForkServerAndKeepsTheState(t *testing.T) {
	t.Parallel()
	g := forkedWay.start(t, guest.Options{})
	g.py(t, "x = 'kept'")
	if err := g.Rest(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := g.processes(t); n != 1 {
		t.Errorf("%d processes at rest, want the interpreter alone", n)
	}
	if o := g.py(t, "print(x)"); o.out != "kept\n" || o.Started || o.StateLost {
		t.Errorf("got %+v", o)
	}
	// Its marker is the interpreter's until that ends.
	o := g.py(t, "import subprocess, os\nsubprocess.Popen(['sleep', '100'])\nos._exit(0)")
	if !o.StateLost {
		t.Errorf("got %+v", o)
	}
	if o := g.py(t, "1"); o.out != "1\n" || !o.Started {
		t.Errorf("got %+v", o)
	}
}

// forkServerPID finds it as code would: it is the Python without a home.
const forkServerPID = `
import os
def server():
    for p in os.listdir('/proc'):
        try:
            if p.isdigit() and int(p) != os.getpid() and b'_airlock_serve' in open('/proc/%s/cmdline' % p, 'rb').read():
                return int(p)
        except OSError:
            pass
`

func TestGuestOutlivesWhatCodeDoesToTheForkServer(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"SIGKILL", "SIGTERM", "SIGINT"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			g := forkedWay.start(t, guest.Options{})
			attack := forkServerPID + "\nimport os, signal\nos.kill(server(), signal." + how + ")\nprint('done')"
			if o := g.run(t, guest.Command{Argv: []string{"python3", "-c", attack}}); o.out != "done\n" {
				t.Fatalf("got %+v", o)
			}
			// Cold, or from the child that waited if that was faster than the news.
			if o := g.py(t, "print('on')"); o.out != "on\n" || o.Code != 0 || o.err != "" || o.StateLost {
				t.Errorf("the cell after it: %+v", o)
			}
			if err := g.Warm(t.Context()); err != nil {
				t.Errorf("a new one: %v", err)
			}
		})
	}
}

func TestGuestDoesNotWaitForAStoppedForkServer(t *testing.T) {
	t.Parallel()
	g := forkedWay.start(t, guest.Options{})
	attack := forkServerPID + "\nimport os, signal\nos.kill(server(), signal.SIGSTOP)\nprint('done')"
	if o := g.run(t, guest.Command{Argv: []string{"python3", "-c", attack}}); o.out != "done\n" {
		t.Fatalf("got %+v", o)
	}
	for n, want := range []string{"True\n", "False\n"} { // one child was there already
		if o := g.runCell(t, guest.Cell{Code: imported, Fresh: true}); o.out != want || o.Code != 0 || o.err != "" {
			t.Errorf("cell %d: %+v", n, o)
		}
	}
	if err := g.Warm(t.Context()); err != nil {
		t.Errorf("a new one: %v", err)
	}
}

func TestGuestDoesNotWaitForAStoppedOrDeadChild(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"SIGKILL", "SIGSTOP"} {
		g := forkedWay.start(t, guest.Options{})
		// The child has the command line of the fork server and is not its parent's oldest.
		attack := strings.Replace(forkServerPID, "for p in os.listdir('/proc')", "for p in sorted(os.listdir('/proc'), reverse=True, key=lambda p: (len(p), p))", 1) +
			"\nimport os, signal\nos.kill(server(), signal." + how + ")\nprint('done')"
		if o := g.run(t, guest.Command{Argv: []string{"python3", "-c", attack}}); o.out != "done\n" {
			t.Fatalf("got %+v", o)
		}
		if o := g.py(t, imported); o.out != "False\n" || o.Code != 0 || o.err != "" || o.StateLost {
			t.Errorf("%s: %+v", how, o)
		}
	}
}

func TestCodeThatKillsEveryForkServerGetsNoMore(t *testing.T) {
	t.Parallel()
	g := forkedWay.start(t, guest.Options{})
	attack := forkServerPID + "\nimport os\nos.kill(server(), 9)"
	var last error
	for range 10 {
		if last = g.Warm(t.Context()); last != nil {
			break
		}
		g.run(t, guest.Command{Argv: []string{"python3", "-c", attack}})
		if o := g.runCell(t, guest.Cell{Code: "print('on')", Fresh: true}); o.out != "on\n" || o.err != "" {
			t.Errorf("got %+v", o)
		}
	}
	if last == nil || !strings.Contains(last.Error(), "too often") {
		t.Errorf("got %v", last)
	}
	if n := g.processes(t); n != 0 {
		t.Errorf("%d processes", n)
	}
}

// TestForkServerIsClosedToCode: its uid is the code's, its memory and its
// descriptors are not.
func TestForkServerIsClosedToCode(t *testing.T) {
	t.Parallel()
	g := forkedWay.start(t, guest.Options{})
	o := g.run(t, guest.Command{Argv: []string{"python3", "-c", forkServerPID + `
pid = server()
for name in ('mem', 'environ', 'maps', 'fd', 'exe', 'cwd'):
    try:
        path = '/proc/%d/%s' % (pid, name)
        (os.listdir if name == 'fd' else os.readlink if name in ('exe', 'cwd') else open)(path)
        print(name)
    except PermissionError:
        pass
print('end')
`}})
	if o.out != "end\n" {
		t.Errorf("code can reach: %q %q", o.out, o.err)
	}
}

func TestForkServerUsesNothingOfTheWorkspace(t *testing.T) {
	t.Parallel()
	g := start(t, guest.Options{Preload: []string{"pathlib", "random", "bait"}})
	for _, name := range []string{"nt.py", "random.py", "bait.py", "sitecustomize.py", "usercustomize.py", "matplotlib.py"} {
		g.put(t, name, "open('/tmp/eaten-"+name+"', 'w')")
	}
	if err := g.Warm(t.Context()); err != nil {
		t.Fatal(err)
	}
	if o := g.py(t, "import os, random, sys; print('bait' in sys.modules, random.__file__, sorted(os.listdir('/tmp')), sorted(os.listdir('.')))"); strings.Contains(o.out, "eaten") ||
		!strings.HasPrefix(o.out, "False /usr/") || !strings.Contains(o.out, "[] ['bait.py', 'matplotlib.py', 'nt.py', 'random.py', 'sitecustomize.py', 'usercustomize.py']") {
		t.Errorf("got %q %s", o.out, o.err)
	}
}

func TestCodeWithItsOwnPythonSettingsStartsCold(t *testing.T) {
	t.Parallel()
	for _, path := range []string{".local/lib/python3/site-packages", "matplotlibrc", ".config/matplotlib/matplotlibrc"} {
		g := forkedWay.start(t, guest.Options{})
		g.shell(t, "mkdir -p "+path)
		if o := g.py(t, imported); o.out != "False\n" {
			t.Errorf("with %s: %+v", path, o)
		}
	}
}

func TestForkServerWithAThreadIsNotUsed(t *testing.T) {
	t.Parallel()
	g := start(t, guest.Options{Preload: []string{"threaded"}, Env: map[string]string{"PYTHONPATH": guest.Home + "/lib"}})
	g.shell(t, "mkdir lib && echo 'import _thread, time; _thread.start_new_thread(time.sleep, (100,))' > lib/threaded.py")
	if err := g.Warm(t.Context()); err == nil {
		t.Error("a fork server with a thread is ready")
	}
	if o := g.py(t, "print('on')"); o.out != "on\n" {
		t.Errorf("got %+v", o)
	}
}

func TestForkedCellsLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	g := forkedWay.start(t, guest.Options{})
	round := func() {
		for _, code := range []string{
			"import subprocess; subprocess.Popen(['setsid', 'sleep', '100']); subprocess.Popen(['sleep', '100'])",
			"import os\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        while True: pass",
			"import os; os.kill(os.getpid(), 9)",
		} {
			g.runCell(t, guest.Cell{Code: code, Fresh: true, Timeout: 20 * time.Second})
			// The fork server and, as soon as it has forked it, its next child.
			n := 0
			for range 100 {
				if n = g.processes(t); n == 2 {
					break
				}
			}
			if n != 2 {
				t.Errorf("%d processes after %q", n, code)
			}
		}
	}
	round()
	before := openFiles(t, g)
	for range 5 {
		round()
	}
	// One for the child that waits, if it has been announced.
	if after := openFiles(t, g); after > before+1 {
		t.Errorf("%d descriptors, %d before", after, before)
	}
	if o := g.runCell(t, guest.Cell{Code: imported, Fresh: true}); o.out != "True\n" {
		t.Errorf("the fork server is gone: %+v", o)
	}
}

// TestEndOfAForkedInterpreterIsLikeThatOfAColdOne: it does not free what it has not made, and nobody notices.
func TestEndOfAForkedInterpreterIsLikeThatOfAColdOne(t *testing.T) {
	t.Parallel()
	code := `
import atexit, sys, threading, time
class Noisy:
    def __init__(self, name): self.name = name
    def __del__(self): print('del', self.name)
open('/workspace/mine.py', 'w').write("held = [open('/tmp/held', 'w')]\nheld[0].write('unflushed')\n")
import mine
sys.modules['mine'].noisy = Noisy('in a module')
one = Noisy('a global')
loop = Noisy('in a cycle'); loop.self = loop
inner = [open('/tmp/inner', 'w')]; inner[0].write('also unflushed')
atexit.register(lambda: print('atexit'))
atexit.register(lambda: 1 / 0)
threading.Thread(target=lambda: (time.sleep(0.3), print('thread'))).start()
sys.stdout.write('no newline ')
sys.exit(7)
`
	var looks []string
	for _, w := range []way{{}, forkedWay} {
		g := w.start(t, guest.Options{})
		o := g.runCell(t, guest.Cell{Code: code, Fresh: true})
		if o.Code != 7 || !strings.HasPrefix(o.out, "no newline thread\natexit\n") || !strings.Contains(o.err, "ZeroDivisionError") {
			t.Errorf("got %+v", o)
		}
		lines := strings.Split(o.out, "\n")
		slices.Sort(lines)
		files := g.shell(t, "cat /tmp/held /tmp/inner")
		looks = append(looks, strings.Join(lines, "\n")+files.out)
	}
	if looks[0] != looks[1] || !strings.Contains(looks[0], "unflushedalso unflushed") {
		t.Errorf("cold\n%s\nforked\n%s", looks[0], looks[1])
	}
}

// BenchmarkFreshCell is the price of an interpreter.
func BenchmarkFreshCell(b *testing.B) {
	for name, w := range map[string]way{"cold": {}, "forked": forkedWay} {
		b.Run(name, func(b *testing.B) {
			g := w.start(b, guest.Options{})
			for b.Loop() {
				if o := g.runCell(b, guest.Cell{Code: "1", Fresh: true}); o.out != "1\n" {
					b.Fatal(fmt.Sprint(o))
				}
			}
		})
	}
}
