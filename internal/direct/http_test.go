package direct

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/airlock-sandbox/airlock/internal/container"
	"github.com/airlock-sandbox/airlock/internal/container/containertest"
	"github.com/airlock-sandbox/airlock/internal/db"
	"github.com/airlock-sandbox/airlock/internal/db/dbtest"
	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// run gives every test a door to a container of the first caller, on each database.
func run(t *testing.T, f func(t *testing.T, e *containertest.Env, s *Service, c *container.Container)) {
	t.Helper()
	dbtest.Run(t, func(t *testing.T, d *db.DB) {
		e := containertest.New(t, d)
		c, err := e.Create(t.Context(), e.Caller, container.CreateParams{})
		if err != nil {
			t.Fatal(err)
		}
		f(t, e, &Service{Containers: e.Service}, c)
	})
}

// serve puts the routes on a server, for the first caller.
func serve(t *testing.T, e *containertest.Env, s *Service) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	for pattern, h := range map[string]func(http.ResponseWriter, *http.Request, tenant.Caller) error{
		"POST /{id}/exec": s.ServeExec, "GET /{id}/files/{path...}": s.ServeGetFile, "PUT /{id}/files/{path...}": s.ServePutFile,
	} {
		mux.Handle(pattern, wire.Handler(e.Log, func(w http.ResponseWriter, r *http.Request) error { return h(w, r, e.Caller) }))
	}
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	return srv
}

func request(t *testing.T, method, url, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// A ping before the turn is held would send the status 200, and with it take the 429 away.
func TestExecInABusyContainerAnswers429HoweverLongItWaited(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env, s *Service, c *container.Container) {
		s.Ping, e.BusyWait = time.Millisecond, 100*time.Millisecond
		l, err := e.Acquire(t.Context(), e.Caller, c.ID)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Release(t.Context())
		code, body := request(t, "POST", serve(t, e, s).URL+"/"+string(c.ID)+"/exec", `{"command":"true"}`)
		if code != 429 || !strings.Contains(body, container.CodeBusy) {
			t.Errorf("%d %s", code, body)
		}
	})
}

func TestSizeLimitsAreNamedAsTheyAreSet(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env, s *Service, c *container.Container) {
		s.MaxFile = 3 << 10
		e.Limits.Inodes = 20_000
		e.Sh(t, c.ID, "truncate -s 3K fits; truncate -s 4K big; mkdir many; touch many/f{1..10001}")
		url := serve(t, e, s).URL + "/" + string(c.ID) + "/files/workspace/"
		for _, tt := range []struct {
			method, path, body string
			code               int
			names              string
		}{
			{"GET", "fits", "", 200, ""},
			{"GET", "big", "", 413, "limit of 3 KiB"},
			{"PUT", "new", strings.Repeat("x", 4<<10), 413, "limit of 3 KiB"},
			{"GET", "many?list=1", "", 400, "10000 entries"},
		} {
			code, body := request(t, tt.method, url+tt.path, tt.body)
			if code != tt.code || !strings.Contains(body, tt.names) {
				t.Errorf("%s %s: %d %.300s", tt.method, tt.path, code, body)
			}
		}
	})
}

// silent is a client that neither reads nor sends, until a deadline passes.
type silent struct {
	*httptest.ResponseRecorder
	blocked, passed chan struct{}
	once            sync.Once
}

func (s *silent) leave() { s.once.Do(func() { close(s.passed) }) }

func (s *silent) wait() (int, error) {
	close(s.blocked)
	<-s.passed
	return 0, os.ErrDeadlineExceeded
}

func (s *silent) Write([]byte) (int, error) { return s.wait() }

func (s *silent) Read([]byte) (int, error) { return s.wait() }

func (s *silent) SetWriteDeadline(t time.Time) error { return s.SetReadDeadline(t) }

func (s *silent) SetReadDeadline(t time.Time) error {
	if !t.IsZero() && t.Before(time.Now()) {
		s.leave()
	}
	return nil
}

// A silent client holds its turn. A deletion ends that, too.
func TestDeleteDoesNotWaitForASilentClient(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"GET", "PUT", "POST"} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			run(t, func(t *testing.T, e *containertest.Env, s *Service, c *container.Container) {
				e.Sh(t, c.ID, "echo content > f")
				w := &silent{ResponseRecorder: httptest.NewRecorder(), blocked: make(chan struct{}), passed: make(chan struct{})}
				defer w.leave()
				r := httptest.NewRequestWithContext(t.Context(), method, "/", strings.NewReader(`{"command":"echo; sleep 100"}`))
				r.SetPathValue("id", string(c.ID))
				r.SetPathValue("path", "workspace/f")
				serve := s.ServeGetFile
				switch method {
				case "PUT":
					serve, r.Body = s.ServePutFile, io.NopCloser(w)
				case "POST":
					serve = s.ServeExec
				}
				ended := make(chan error, 1)
				go func() { ended <- serve(w, r, e.Caller) }()
				<-w.blocked
				if err := e.Delete(t.Context(), e.Caller, c.ID); err != nil {
					t.Fatal(err)
				}
				if err := <-ended; err == nil {
					t.Error("the request succeeded")
				}
			})
		})
	}
}

// The end of a turn is no deletion: a client that is watched any longer looks gone when the end takes its time, and its
// next request on the connection would be cancelled.
func TestAClientIsWatchedWhileItsTurnLasts(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env, s *Service, c *container.Container) {
		stopped := false
		_, err := s.exec(t.Context(), e.Caller, c.ID, ExecParams{Command: "true"}, io.Discard, io.Discard, func(turn context.Context) func() {
			return func() {
				stopped = true
				if turn.Err() != nil {
					t.Errorf("watched beyond its turn: %v", context.Cause(turn))
				}
			}
		})
		if err != nil || !stopped {
			t.Errorf("stopped %t, %v", stopped, err)
		}
	})
}

// What a client does to its own upload is no fault of the server.
func TestUploadThatBreaksOffIsTheClientsFault(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env, s *Service, c *container.Container) {
		for _, broken := range []error{io.ErrUnexpectedEOF, errors.New("invalid byte in chunk length"), os.ErrDeadlineExceeded} {
			r := httptest.NewRequestWithContext(t.Context(), "PUT", "/", io.MultiReader(strings.NewReader("half"), iotest.ErrReader(broken)))
			r.SetPathValue("id", string(c.ID))
			r.SetPathValue("path", "workspace/half")
			var we *wire.Error
			err := s.ServePutFile(httptest.NewRecorder(), r, e.Caller)
			if !errors.As(err, &we) || we.HTTPStatus() != 400 && we.HTTPStatus() != 408 {
				t.Errorf("%v gave %v", broken, err)
			}
		}
		if out, _ := e.Sh(t, c.ID, "ls -A"); out != "" {
			t.Errorf("left behind: %s", out)
		}
	})
}
