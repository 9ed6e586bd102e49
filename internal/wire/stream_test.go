package wire_test

import (
	"bufio"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/airlock-sandbox/airlock/internal/wire"
)

func TestStreamFrames(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	s := wire.NewStream(w)
	if s.Started() || w.Header().Get("Content-Type") != "" {
		t.Error("started before the first frame; an error could no longer have its status")
	}
	for _, e := range []struct{ name, data string }{{"ping", `{"type": "ping"}`}, {"x", "two\nlines"}, {"", "no name"}, {"y", "a\r\nb\rc"}} {
		if err := s.Event(e.name, []byte(e.data)); err != nil {
			t.Fatal(err)
		}
	}
	want := "event: ping\ndata: {\"type\": \"ping\"}\n\nevent: x\ndata: two\ndata: lines\n\ndata: no name\n\nevent: y\ndata: a\ndata: b\ndata: c\n\n"
	if got := w.Body.String(); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	for k, v := range map[string]string{"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache", "X-Accel-Buffering": "no"} {
		if w.Header().Get(k) != v {
			t.Errorf("%s: %q", k, w.Header().Get(k))
		}
	}
	if err := s.Event("a\nb", nil); err == nil {
		t.Error("a name with a line break was written")
	}
}

func TestEachFrameArrivesAtOnce(t *testing.T) {
	t.Parallel()
	next := make(chan struct{})
	url := serve(t, wire.Handler(quiet, func(w http.ResponseWriter, _ *http.Request) error {
		s := wire.NewStream(w)
		for range 3 {
			if err := s.Event("e", []byte("{}")); err != nil {
				return err
			}
			<-next
		}
		return nil
	}))
	r, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(res.Body)
	for range 3 {
		for _, want := range []string{"event: e\n", "data: {}\n", "\n"} {
			if got, err := in.ReadString('\n'); err != nil || got != want {
				t.Fatalf("got %q, %v", got, err)
			}
		}
		next <- struct{}{} // only now may the handler go on
	}
	if _, err := in.ReadByte(); err != io.EOF {
		t.Errorf("after the last frame: %v", err)
	}
	if err := res.Body.Close(); err != nil {
		t.Error(err)
	}
}

func TestPingsAndEventsNeverMixInOneFrame(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	s := wire.NewStream(w)
	var wg sync.WaitGroup
	for _, name := range []string{"a", "b", "c"} {
		wg.Go(func() {
			for range 200 {
				if err := s.Event(name, []byte(strings.Repeat(name, 50))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	frames := strings.Split(strings.TrimSuffix(w.Body.String(), "\n\n"), "\n\n")
	if len(frames) != 600 {
		t.Errorf("%d frames", len(frames))
	}
	for _, f := range frames {
		name := strings.TrimPrefix(strings.SplitN(f, "\n", 2)[0], "event: ")
		if f != "event: "+name+"\ndata: "+strings.Repeat(name, 50) {
			t.Fatalf("frame %q", f)
		}
	}
}

type brokenWriter struct{ http.ResponseWriter }

func (brokenWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestStreamKeepsItsError(t *testing.T) {
	t.Parallel()
	s := wire.NewStream(brokenWriter{httptest.NewRecorder()})
	first := s.Event("a", nil)
	if first == nil {
		t.Fatal("no error")
	}
	if again := s.Event("a", nil); again != first { //nolint:errorlint // the very same error is promised
		t.Errorf("got %v, want %v", again, first)
	}
}
