package serve_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"testing"

	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
	"github.com/airlock-sandbox/airlock/internal/sandbox/guest/serve"
)

// serveHere runs a guest in this process, which is enough while no code is
// started, and returns the host's end.
func serveHere(tb testing.TB) (net.Conn, <-chan error) {
	tb.Helper()
	ours, theirs := net.Pipe()
	done := make(chan error, 1)
	go func() {
		err := serve.Run(theirs)
		theirs.Close()
		done <- err
	}()
	tb.Cleanup(func() { ours.Close() })
	return ours, done
}

func TestHostThatBreaksTheFramingEndsTheGuest(t *testing.T) {
	t.Parallel()
	put := &guest.Frame{Type: guest.TypePut, ID: 1, File: &guest.FileSpec{Path: []byte("/no-such-folder/f")}}
	cell := &guest.Frame{Type: guest.TypeCell, ID: 1, Cell: &guest.CellSpec{Code: 10}}
	tests := []struct {
		name   string
		frames []*guest.Frame
		raw    []byte
		want   error
	}{
		{name: "end between frames"},
		{name: "end inside a frame", raw: []byte{0, 0, 0, 9, '{'}},
		{name: "oversize", raw: binary.BigEndian.AppendUint32(nil, guest.MaxFrame+1), want: guest.ErrProtocol},
		{name: "no JSON", raw: []byte{0, 0, 0, 2, 'x', '\n'}, want: guest.ErrProtocol},
		{name: "unknown type", frames: []*guest.Frame{{Type: "shutdown", ID: 1}}, want: guest.ErrProtocol},
		{name: "frame of the guest", frames: []*guest.Frame{{Type: guest.TypeExit, ID: 1}}, want: guest.ErrProtocol},
		{name: "other version", frames: []*guest.Frame{{Type: guest.TypeHello, Hello: &guest.Hello{Version: 99}}}, want: guest.ErrProtocol},
		{name: "hello without content", frames: []*guest.Frame{{Type: guest.TypeHello}}, want: guest.ErrProtocol},
		{name: "exec without content", frames: []*guest.Frame{{Type: guest.TypeExec, ID: 1}}, want: guest.ErrProtocol},
		{name: "get without path", frames: []*guest.Frame{{Type: guest.TypeGet, ID: 1}}, want: guest.ErrProtocol},
		{name: "no id", frames: []*guest.Frame{{Type: guest.TypeSync}}, want: guest.ErrProtocol},
		{name: "id used twice", frames: []*guest.Frame{cell, cell}, want: guest.ErrProtocol},
		{name: "more code than announced", frames: []*guest.Frame{cell, {Type: guest.TypeCode, ID: 1, Payload: make([]byte, 11)}}, want: guest.ErrProtocol},
		{name: "empty code", frames: []*guest.Frame{cell, {Type: guest.TypeCode, ID: 1}}, want: guest.ErrProtocol},
		{name: "code without bound", frames: []*guest.Frame{{Type: guest.TypeCell, ID: 1, Cell: &guest.CellSpec{Code: 1 << 40}}}, want: guest.ErrProtocol},
		{name: "negative code", frames: []*guest.Frame{{Type: guest.TypeCell, ID: 1, Cell: &guest.CellSpec{Code: -1}}}, want: guest.ErrProtocol},
		{name: "credit without end", frames: []*guest.Frame{cell, {Type: guest.TypeCredit, ID: 1, N: 1 << 62}}, want: guest.ErrProtocol},
		{name: "negative credit", frames: []*guest.Frame{cell, {Type: guest.TypeCredit, ID: 1, N: -1}}, want: guest.ErrProtocol},
		{name: "too much in one frame", frames: []*guest.Frame{cell, {Type: guest.TypeData, ID: 1, Payload: make([]byte, guest.MaxData+1)}}, want: guest.ErrProtocol},
		{name: "unknown ids are late words", frames: []*guest.Frame{
			{Type: guest.TypeData, ID: 9, Payload: []byte("x")}, {Type: guest.TypeCancel, ID: 9}, {Type: guest.TypeCredit, ID: 9, N: 1 << 62}, {Type: guest.TypeCode, ID: 9}, put, {Type: guest.TypePing, ID: 3},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			conn, done := serveHere(t)
			go discard(conn)
			w := guest.NewWriter(conn)
			for _, f := range tt.frames {
				_ = w.Write(f) // it may hang up on us
			}
			_, _ = conn.Write(tt.raw)
			if !errors.Is(tt.want, guest.ErrProtocol) {
				conn.Close()
			}
			if err := <-done; !errors.Is(err, tt.want) || (tt.want == nil && err != nil) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
}

func TestHostThatOverrunsTheWindowEndsTheGuest(t *testing.T) {
	t.Parallel()
	g := launchRaw(t)
	if err := g.w.Write(&guest.Frame{Type: guest.TypeExec, ID: 1, Exec: &guest.ExecSpec{Argv: [][]byte{[]byte("sleep"), []byte("100")}, Stdin: true, Output: 100}}); err != nil {
		t.Fatal(err)
	}
	var err error
	for range 2 * guest.Window / guest.MaxData {
		if err = g.w.Write(&guest.Frame{Type: guest.TypeData, ID: 1, Payload: make([]byte, guest.MaxData)}); err != nil {
			break
		}
	}
	if werr := g.cmd.Wait(); werr == nil {
		t.Error("the guest ended as if all was well")
	}
	if !bytes.Contains(g.stderr.Bytes(), []byte("window overrun")) {
		t.Errorf("stderr: %s (write: %v)", g.stderr, err)
	}
}

func TestFullInputQueueDoesNotStopTheGuest(t *testing.T) {
	t.Parallel()
	g := start(t, guest.Options{})
	done := make(chan error, 1)
	go func() {
		_, err := g.Exec(t.Context(), guest.Command{Shell: "until [ -e /tmp/go ]; do sleep 0.01; done", Stdin: endless{}})
		done <- err
	}()
	for range 20 {
		if err := g.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	g.shell(t, "touch /tmp/go")
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// FuzzHost throws bytes at a guest. Frames that would start code are left out:
// this one has no sandbox around it.
func FuzzHost(f *testing.F) {
	var b bytes.Buffer
	w := guest.NewWriter(&b)
	for _, fr := range []*guest.Frame{
		{Type: guest.TypeHello, Hello: &guest.Hello{Version: guest.Version}},
		{Type: guest.TypePing, ID: 1},
		{Type: guest.TypeCell, ID: 2, Cell: &guest.CellSpec{Code: 5}},
		{Type: guest.TypeCredit, ID: 2, N: 5},
		{Type: guest.TypeData, ID: 2, Payload: []byte("abc")},
	} {
		if err := w.Write(fr); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, in []byte) {
		if !harmless(in) {
			return
		}
		conn, done := serveHere(t)
		go discard(conn)
		_, _ = conn.Write(in)
		conn.Close()
		<-done //nolint:errcheck // any end is right; not to end is wrong
	})
}

// harmless is true if no frame in it starts a process or touches a file.
func harmless(in []byte) bool {
	r := guest.NewReader(bytes.NewReader(in))
	for {
		f, err := r.Read()
		if err != nil {
			return true
		}
		switch f.Type {
		case guest.TypeExec, guest.TypePut, guest.TypeGet, guest.TypeStat, guest.TypeList, guest.TypeMkdir, guest.TypeRemove, guest.TypeSync:
			return false
		case guest.TypeCell:
			// It would start Python as soon as its code is complete.
			return f.Cell != nil && f.Cell.Code > 1<<20
		}
	}
}
