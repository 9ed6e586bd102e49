package messages

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/airlock-sandbox/airlock/internal/claude"
	"github.com/airlock-sandbox/airlock/internal/container"
)

// The numbers in the names are those of what the gateway promises.

// A model that was misled has the sandbox look for secrets and for a way out.
func TestS83WhatAMisledModelTriesFindsNothing(t *testing.T) {
	t.Parallel()
	w := newWhole(t)
	neighbour := w.ask(t, "", "```bash\necho 'the neighbour has this' > neighbours-file; sleep 0.1\n```").At("container", "id").Str()
	var l net.ListenConfig
	gateway, err := l.Listen(t.Context(), "tcp", "127.0.0.1:0") // stands for the server's own socket
	if err != nil {
		t.Fatal(err)
	}
	defer gateway.Close()
	port := gateway.Addr().(*net.TCPAddr).Port
	m := w.ask(t, "", fencedCell(fmt.Sprintf(`import glob, os, socket
print(sorted(os.environ))
def read(p):
    try:
        with open(p, 'rb') as f: return f.read(1 << 20)
    except OSError: return b''
seen = b''.join(read(p) for p in glob.glob('/proc/[0-9]*/environ') + glob.glob('/proc/[0-9]*/cmdline') + glob.glob('/proc/[0-9]*/mountinfo'))
print([w for w in (%q, %q, 'neighbour', 'postgres', 'sk-airlock', 'AIRLOCK_') if w.encode() in seen])
print([os.path.join(d, n) for top in ('/home', '/root', '/files', '/workspace', '/tmp', '/mnt', '/srv', '/var') for d, _, names in os.walk(top) for n in names if 'neighbour' in n])
for host, port in [('127.0.0.1', %d), ('169.254.169.254', 80), ('10.0.0.1', 443), ('1.1.1.1', 53)]:
    try: socket.create_connection((host, port), timeout=3); print('reached', host)
    except OSError as e: pass
try: print('resolved', socket.gethostbyname('example.com'))
except OSError: pass
for p in glob.glob('/run/*.sock') + glob.glob('/var/run/*.sock') + glob.glob('/tmp/*.sock'): print('socket', p)`, w.env.Dir, neighbour, port)))
	lines := strings.Split(strings.TrimSpace(stdout(t, m)), "\n")
	if len(lines) != 3 || lines[1] != "[]" || lines[2] != "[]" || strings.Contains(lines[0], "AIRLOCK") || strings.Contains(lines[0], "KEY") || strings.Contains(lines[0], "TOKEN") {
		t.Errorf("it found %q", lines)
	}
}

// aborting is a client that goes away at the first write with a word, which it does not take any more.
type aborting struct {
	*httptest.ResponseRecorder
	at   string
	gone func()
	cut  bool
}

func (a *aborting) Write(p []byte) (int, error) {
	if a.cut = a.cut || strings.Contains(string(p), a.at); a.cut {
		a.gone()
		return 0, net.ErrClosed
	}
	return a.ResponseRecorder.Write(p)
}

// Clients that go away before any byte, in the middle, and right before message_stop. Fails if a turn, a share, a sandbox or a
// process of theirs is left; that no goroutine is, the whole package checks at its end.
func TestS87AbortsLeaveNothing(t *testing.T) {
	t.Parallel()
	w := newWhole(t)
	w.env.BusyWait, w.env.PerApp = -1, 1
	box := w.ask(t, "", "```bash\ntrue\n```").At("container", "id").Str()
	for n := range 100 {
		ctx, cancel := context.WithCancel(t.Context())
		a := &aborting{ResponseRecorder: httptest.NewRecorder(), at: []string{"event", "_tool_result", "message_stop"}[n%3], gone: cancel}
		command := "echo x >> f"
		if n%10 == 1 {
			command = "sleep 1000 & " + command
		}
		body := script(box, "```bash\n"+command+"\n```")
		body.Set("stream", claude.NewBool(true))
		_ = w.Create(a, httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/messages", strings.NewReader(body.Text())), w.env.Caller)
		cancel()
		if !a.cut {
			t.Fatalf("round %d was not cut: %s", n, a.Body)
		}
	}
	// Those that were cut before any byte ran nothing; the share and the turn are free, and no process is left.
	got := strings.Fields(stdout(t, w.ask(t, box, "```bash\nwc -l < f; cat /proc/[0-9]*/comm | grep -c sleep || true\n```")))
	if len(got) != 2 || got[0] != "66" || got[1] != "0" {
		t.Errorf("lines and processes: %v", got)
	}
	if w.env.LiveCount() != 1 || w.env.ParkedCount() != 0 {
		t.Errorf("%d sandboxes, %d parked", w.env.LiveCount(), w.env.ParkedCount())
	}
	if err := w.env.Delete(t.Context(), w.env.Caller, container.ID(box)); err != nil {
		t.Error(err)
	}
	if w.env.LiveCount() != 0 {
		t.Errorf("%d sandboxes are left", w.env.LiveCount())
	}
}

// stamped notes when something is written.
type stamped struct {
	*httptest.ResponseRecorder
	at []time.Time
}

func (s *stamped) Write(p []byte) (int, error) {
	s.at = append(s.at, time.Now())
	return s.ResponseRecorder.Write(p)
}

// A call of a quarter of an hour, on a clock that the test has: whole it completes, and as a stream it is never silent for long.
func TestS90LongCallsCompleteAndTheirStreamsPing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, stream := range []string{"", `,"stream":true`} {
			b := newBench(t, says("tool_use", bashCall(0, "toolu_01a", "make")), says("end_turn", evText(0, "made")))
			b.PingEvery = 0 // the default
			b.boxes.results = []*claude.Node{bashResult("built")}
			b.boxes.during = func(context.Context) error { <-time.After(15 * time.Minute); return nil }
			began := time.Now()
			w := &stamped{ResponseRecorder: httptest.NewRecorder()}
			b.handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/messages", strings.NewReader(body(stream, ""))))
			if took := time.Since(began); w.Code != 200 || took < 15*time.Minute || !strings.Contains(w.Body.String(), "built") {
				t.Errorf("%d after %v: %s", w.Code, took, w.Body)
			}
			if stream == "" {
				continue
			}
			last := w.at[0]
			for _, at := range w.at {
				if at.Sub(last) > 10*time.Second {
					t.Errorf("silent for %v", at.Sub(last))
				}
				last = at
			}
			if n := strings.Count(w.Body.String(), "event: ping"); n < 89 {
				t.Errorf("%d pings", n)
			}
		}
	})
}
