package guest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// double plays the guest: a hostile one knows the frames as well as we do.
type double struct {
	t    testing.TB
	conn net.Conn
	r    *Reader
	w    *Writer
}

func connect(t testing.TB, opts Options) (*Conn, *double) {
	t.Helper()
	ours, theirs := net.Pipe()
	c := NewConn(ours, opts)
	d := &double{t: t, conn: theirs, r: NewReader(theirs), w: NewWriter(theirs)}
	t.Cleanup(func() {
		theirs.Close()
		c.Close()
	})
	d.expect(TypeHello)
	return c, d
}

func (d *double) expect(want Type) *Frame {
	for {
		f, err := d.r.Read()
		if err != nil {
			d.t.Errorf("double: %v, want %s", err, want)
			return &Frame{}
		}
		if f.Type == TypePing && want != TypePing {
			continue
		}
		if f.Type != want {
			d.t.Errorf("double: got %s, want %s", f.Type, want)
		}
		return f
	}
}

// send may fail: the host has the right to hang up on us.
func (d *double) send(f *Frame) { _ = d.w.Write(f) }

// swallow reads whatever the host says until it hangs up.
func (d *double) swallow() { _, _ = io.Copy(io.Discard, d.conn) }

func TestReadyChecksTheVersion(t *testing.T) {
	t.Parallel()
	c, d := connect(t, Options{})
	d.send(&Frame{Type: TypeReady, N: Version})
	if err := c.Ready(t.Context()); err != nil {
		t.Error(err)
	}
	c, d = connect(t, Options{})
	go d.send(&Frame{Type: TypeReady, N: Version + 1})
	if err := c.Ready(t.Context()); !errors.Is(err, ErrProtocol) {
		t.Errorf("got %v", err)
	}
}

func TestHelloCarriesTheEnvironment(t *testing.T) {
	t.Parallel()
	ours, theirs := net.Pipe()
	c := NewConn(ours, Options{Env: map[string]string{"K": "v\xff"}})
	defer c.Close()
	f, err := NewReader(theirs).Read()
	if err != nil || f.Hello == nil || len(f.Hello.Env) != 1 || string(f.Hello.Env[0]) != "K=v\xff" {
		t.Errorf("got %+v, %v", f, err)
	}
	theirs.Close()
}

// TestThreat16HostileGuestEndsTheConnection: whatever a guest under the code's
// control says, the host neither hangs nor grows, and reports a breach.
func TestThreat16HostileGuestEndsTheConnection(t *testing.T) {
	t.Parallel()
	data := func(id uint64, stream, n int) *Frame {
		return &Frame{Type: TypeData, ID: id, Stream: stream, Payload: bytes.Repeat([]byte("x"), n)}
	}
	tests := []struct {
		name   string
		attack func(d *double, id uint64)
		want   error
	}{
		{"output beyond the window", func(d *double, id uint64) {
			for range 40 {
				d.send(data(id, 1, MaxData))
			}
		}, ErrProtocol},
		{"flood of tiny frames", func(d *double, id uint64) {
			for range Window/FrameCost + 1 {
				d.send(data(id, 1, 1))
			}
		}, ErrProtocol},
		{"more output than the bound", func(d *double, id uint64) {
			d.send(data(id, 1, 60_000))
		}, ErrProtocol},
		{"too much in one frame", func(d *double, id uint64) { d.send(data(id, 1, MaxData+1)) }, ErrProtocol},
		{"unknown stream", func(d *double, id uint64) { d.send(data(id, 3, 1)) }, ErrProtocol},
		{"exit without content", func(d *double, id uint64) { d.send(&Frame{Type: TypeExit, ID: id}) }, ErrProtocol},
		{"cancellation nobody asked for", func(d *double, id uint64) {
			d.send(&Frame{Type: TypeExit, ID: id, Exit: &Exit{Canceled: true}})
		}, ErrProtocol},
		{"answer of another operation", func(d *double, id uint64) { d.send(&Frame{Type: TypeOK, ID: id}) }, ErrProtocol},
		{"frame of the host", func(d *double, id uint64) { d.send(&Frame{Type: TypeExec, ID: id}) }, ErrProtocol},
		{"unknown frame", func(d *double, id uint64) { d.send(&Frame{Type: "own-host", ID: id}) }, ErrProtocol},
		{"negative credit", func(d *double, id uint64) { d.send(&Frame{Type: TypeCredit, ID: id, N: -1}) }, ErrProtocol},
		{"credit without end", func(d *double, id uint64) { d.send(&Frame{Type: TypeCredit, ID: id, N: 1 << 62}) }, ErrProtocol},
		{"oversize", func(d *double, _ uint64) { _, _ = d.conn.Write([]byte{255, 255, 255, 255}) }, ErrProtocol},
		{"truncated", func(d *double, _ uint64) {
			_, _ = d.conn.Write([]byte{0, 0, 1, 0, '{'})
			d.conn.Close()
		}, ErrGone},
		{"silence and hang-up", func(d *double, _ uint64) { d.conn.Close() }, ErrGone},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, d := connect(t, Options{})
			go func() {
				f := d.expect(TypeExec)
				go d.swallow()
				// Unknown ids are late answers and do no harm.
				d.send(data(f.ID+1000, 1, 10))
				d.send(&Frame{Type: TypeExit, ID: 77, Exit: &Exit{}})
				tt.attack(d, f.ID)
			}()
			block := make(chan struct{})
			stdout := writer(func(p []byte) (int, error) { // a consumer that stands still
				if tt.name == "output beyond the window" || tt.name == "flood of tiny frames" {
					<-block
				}
				return len(p), nil
			})
			go func() { <-c.Done(); close(block) }()
			res, err := c.Exec(t.Context(), Command{Shell: "x", Stdout: stdout, OutputBytes: 50_000})
			if !errors.Is(err, tt.want) || res != (Result{}) {
				t.Errorf("got %+v, %v, want %v", res, err, tt.want)
			}
			if !errors.Is(c.Err(), tt.want) {
				t.Errorf("connection: %v", c.Err())
			}
		})
	}
}

func TestOutOfMemoryIsToldByWhatTheKernelCounted(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		kills  int64 // during the call
		unseen bool
		exit   Exit
		want   bool
	}{
		{"killed and counted", 1, false, Exit{Code: 137, Signal: 9}, true},
		{"a shell tells of its child", 1, false, Exit{Code: 137}, true},
		{"killed by somebody else", 0, false, Exit{Code: 137, Signal: 9}, false},
		{"another process was killed", 1, false, Exit{Code: 3}, false},
		{"its end tells nothing", 1, true, Exit{Code: 0}, true},
		{"nothing was killed", 0, true, Exit{Code: 0}, false},
		{"the time limit outranks it", 1, true, Exit{Code: 124, TimedOut: true}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var kills atomic.Int64
			c, d := connect(t, Options{OOMCount: kills.Load, OOMUnseen: tt.unseen})
			go func() {
				f := d.expect(TypeExec)
				go d.swallow()
				kills.Add(tt.kills)
				d.send(&Frame{Type: TypeExit, ID: f.ID, Exit: &tt.exit})
			}()
			res, err := c.Exec(t.Context(), Command{Shell: "x", Timeout: time.Minute})
			if err != nil || res.OOM != tt.want || res.OOM && res.Code != 137 {
				t.Errorf("got %+v, %v", res, err)
			}
		})
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

func TestHostileFileAnswersAreRefused(t *testing.T) {
	t.Parallel()
	entry := func(path string, typ FileType) string { return `{"path":"` + path + `","type":"` + string(typ) + `"}` }
	list := func(c *Conn) error { _, err := c.List(context.Background(), "/d", 1, 2); return err }
	get := func(c *Conn) error {
		r, _, err := c.Get(context.Background(), "/f", GetOptions{Max: 10})
		if err != nil {
			return err
		}
		defer r.Close()
		_, err = io.ReadAll(r)
		return err
	}
	data := func(s string) *Frame { return &Frame{Type: TypeData, Payload: []byte(s)} }
	info := &Frame{Type: TypeInfo, Entry: &Entry{Type: TypeFile, Path: []byte("/f")}}
	tests := []struct {
		name string
		do   func(c *Conn) error
		say  []*Frame
	}{
		{"endless list", list, []*Frame{data(strings.Repeat(entry("L2E=", TypeFile), 3))}},
		{"relative entry", list, []*Frame{data(entry("Li4vYQ==", TypeFile))}},
		{"entry with NUL", list, []*Frame{data(entry("L2EAYg==", TypeFile))}},
		{"no entries", list, []*Frame{data("!!")}},
		{"bytes missing", get, []*Frame{info, data("abc"), {Type: TypeOK, N: 4}}},
		{"more than asked for", get, []*Frame{info, data("0123456789a")}},
		{"info twice", get, []*Frame{info, info}},
		{"info of a folder", get, []*Frame{{Type: TypeInfo, Entry: &Entry{Type: TypeDir}}}},
		{"no info", get, []*Frame{data("abc")}},
		{"empty stat", func(c *Conn) error { _, err := c.Stat(context.Background(), "/f", StatOptions{}); return err }, []*Frame{{Type: TypeOK}}},
		{"put of another size", func(c *Conn) error {
			return c.Put(context.Background(), "/f", strings.NewReader("abc"), PutOptions{})
		}, []*Frame{{Type: TypeOK, N: 2}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, d := connect(t, Options{})
			go func() {
				f, err := d.r.Read()
				if err != nil {
					t.Error(err)
					return
				}
				go d.swallow()
				for _, s := range tt.say {
					g := *s
					g.ID = f.ID
					d.send(&g)
				}
			}()
			if err := tt.do(c); !errors.Is(err, ErrProtocol) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestUnresponsiveGuestsAreGivenUp(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		pongs bool
		cmd   Command
		stop  time.Duration // cancel the context after this
		after time.Duration
	}{
		{"silent", false, Command{Shell: "x"}, 0, 30 * time.Second},
		{"does not end what timed out", true, Command{Shell: "x", Timeout: time.Minute}, 0, 67 * time.Second},
		{"does not end what was canceled", true, Command{Shell: "x"}, time.Second, 8 * time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, d := connect(t, Options{})
				go func() {
					for {
						f, err := d.r.Read()
						if err != nil {
							return
						}
						if f.Type == TypePing && tt.pongs {
							d.send(&Frame{Type: TypePong, ID: f.ID})
						}
					}
				}()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tt.stop > 0 {
					time.AfterFunc(tt.stop, cancel)
				}
				began := time.Now()
				_, err := c.Exec(ctx, tt.cmd)
				if !errors.Is(err, ErrGone) || !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("got %v", err)
				}
				if d := time.Since(began); d < tt.after || d > tt.after+5*time.Second {
					t.Errorf("given up after %v, want %v", d, tt.after)
				}
			})
		})
	}
}

func TestLongQuietCommandIsNotGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, d := connect(t, Options{})
		go func() {
			began := time.Now()
			id := d.expect(TypeExec).ID
			for time.Since(began) < time.Hour {
				f := d.expect(TypePing)
				d.send(&Frame{Type: TypePong, ID: f.ID})
			}
			d.send(&Frame{Type: TypeExit, ID: id, Exit: &Exit{Code: 4}})
		}()
		res, err := c.Exec(t.Context(), Command{Shell: "x"})
		if err != nil || res.Code != 4 {
			t.Errorf("got %+v, %v", res, err)
		}
	})
}

func TestGuestThatDoesNotReadIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, d := connect(t, Options{})
		_ = d
		err := c.Put(t.Context(), "/f", endlessReader{}, PutOptions{})
		if !errors.Is(err, ErrGone) || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

type endlessReader struct{}

func (endlessReader) Read(p []byte) (int, error) { return len(p), nil }

func TestFinalFrameBeforeTheHangUpCounts(t *testing.T) {
	t.Parallel()
	c, d := connect(t, Options{})
	go func() {
		id := d.expect(TypeExec).ID
		d.send(&Frame{Type: TypeData, ID: id, Stream: 1, Payload: []byte("out")})
		d.send(&Frame{Type: TypeExit, ID: id, Exit: &Exit{Code: 3}})
		d.conn.Close()
	}()
	var out bytes.Buffer
	res, err := c.Exec(t.Context(), Command{Shell: "x", Stdout: &out})
	if err != nil || res.Code != 3 || out.String() != "out" {
		t.Errorf("got %+v, %v, %q", res, err, out.String())
	}
}

func TestExecThatEndedByItselfIsNotCanceled(t *testing.T) {
	t.Parallel()
	c, d := connect(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		id := d.expect(TypeExec).ID
		cancel()
		d.expect(TypeCancel)
		d.send(&Frame{Type: TypeExit, ID: id, Exit: &Exit{Code: 5}})
	}()
	res, err := c.Exec(ctx, Command{Shell: "x"})
	if !errors.Is(err, context.Canceled) || res.Code != 5 || res.Canceled {
		t.Errorf("got %+v, %v", res, err)
	}
}

func TestCloseEndsAllCalls(t *testing.T) {
	t.Parallel()
	c, d := connect(t, Options{})
	go d.swallow()
	var wg sync.WaitGroup
	calls := []func() error{
		func() error {
			_, err := c.Exec(t.Context(), Command{Shell: "x", Stdin: strings.NewReader("in")})
			return err
		},
		func() error { _, err := c.Cell(t.Context(), Cell{Code: "x"}); return err },
		func() error { _, _, err := c.Get(t.Context(), "/f", GetOptions{}); return err },
		func() error { return c.Put(t.Context(), "/f", endlessReader{}, PutOptions{}) },
		func() error { _, err := c.List(t.Context(), "/f", 1, 1); return err },
		func() error { return c.Ready(t.Context()) },
	}
	for _, call := range calls {
		wg.Go(func() {
			if err := call(); !errors.Is(err, ErrGone) {
				t.Errorf("got %v", err)
			}
		})
	}
	for range 10 {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
	if err := c.Ping(t.Context()); !errors.Is(err, ErrGone) {
		t.Errorf("got %v", err)
	}
}

func TestErrorsCarryPathAndMatchSentinels(t *testing.T) {
	t.Parallel()
	c, d := connect(t, Options{})
	go func() {
		id := d.expect(TypeStat).ID
		d.send(&Frame{Type: TypeFault, ID: id, Fault: &Fault{Kind: ErrNotExist.Error(), Detail: "no such file or directory"}})
	}()
	_, err := c.Stat(t.Context(), "/a/b", StatOptions{})
	var e *Error
	if !errors.Is(err, ErrNotExist) || !errors.As(err, &e) || err.Error() != "stat /a/b: no such file or directory" {
		t.Errorf("got %v", err)
	}
	if got := (&Error{Op: "get", Err: ErrIsDir}).Error(); got != "get: is a directory" {
		t.Errorf("got %q", got)
	}
	if got := (&Error{Op: "get"}).Error(); got != "get" {
		t.Errorf("got %q", got)
	}
}
