package server

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/airlock-sandbox/airlock/internal/db"
	"github.com/airlock-sandbox/airlock/internal/tenant"
)

// halting is an upstream that streams the beginning of an answer and its end when it is told to go on.
type halting struct{ goOn chan struct{} }

func (h *halting) RoundTrip(r *http.Request) (*http.Response, error) {
	body, w := io.Pipe()
	go func() {
		_, err := io.WriteString(w, sse(frameStart, frameText, frameDelta))
		if err == nil {
			select {
			case <-h.goOn:
				_, err = io.WriteString(w, sse(frameEnd, frameDone, frameStop))
			case <-r.Context().Done():
				err = context.Cause(r.Context())
			}
		}
		w.CloseWithError(err)
	}()
	return &http.Response{
		StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: body, Request: r, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}, nil
}

// leaving is a user with a file of each kind, a container, a record of use and a stream that runs.
type leaving struct {
	*gatewayServer
	u       who
	shared  string // a file that is open to the app
	stream  *bufio.Reader
	halting *halting
}

func startLeaving(t *testing.T, onDelete string) *leaving {
	t.Helper()
	l := &leaving{halting: &halting{goOn: make(chan struct{})}}
	l.gatewayServer = startGateway(t, func(c *Config) { c.UpstreamTransport, c.Users.OnDelete = l.halting, onDelete })
	l.u = l.user(l.a, "u")
	l.put(l.u, "mine.txt", "x")
	l.made(l.a, "u", "user", "made.txt", "x")
	l.shared = l.put(l.u.scoped("app"), "shared.txt", "x")
	l.put(l.user(l.a, "v"), "theirs.txt", "x")
	box := l.space(l.u)
	err := l.parts.db.RunTx(t.Context(), func(ctx context.Context, tx db.Tx) error {
		_, err := tx.NewRaw(`INSERT INTO executions VALUES ('exec_1', ?, ?, 'airlock/u', 'user', 'bash', 'exited', 0, 1, 1, 1, 1, 0, 0)`, box, l.a.id).Exec(ctx)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	resp := l.do("POST", proxy+"/messages", "", strings.NewReader(message(textBlock, `,"stream":true`)),
		"x-auth-token", l.u.token, "x-app-id", l.a.id, "x-app-identity-token", l.a.identity)
	l.stream = bufio.NewReader(resp.Body)
	for line := ""; !strings.Contains(line, "text_delta"); {
		if line, err = l.stream.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

func (l *leaving) rest() string {
	l.t.Helper()
	b, err := io.ReadAll(l.stream)
	if err != nil {
		l.t.Error(err)
	}
	return string(b)
}

// deletes has the admin delete the user.
func (l *leaving) deletes() (out struct {
	Files, Containers int
	Finished          bool
},
) {
	l.t.Helper()
	a := l.call(who{}, "DELETE", "/airlock/v1/users/u?app=a", nil, "x-api-key", l.AdminKey())
	if a.status != 200 {
		l.t.Fatalf("%d %s", a.status, a.body)
	}
	a.decode(l.t, &out)
	return out
}

// count counts the rows of a table that are U's.
func (l *leaving) count(table, where string) int {
	l.t.Helper()
	n, err := l.parts.db.Read().NewSelect().Table(table).Where("owner_app = ? AND owner_user = 'airlock/u'", l.a.id).Where(where).Count(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	return int(n)
}

const (
	liveFiles = "deleted_at IS NULL AND owner_scope = 'user'"
	liveBoxes = "state NOT IN ('deleting', 'deleted')"
)

// gone is what must be true at the end, in whatever way.
func (l *leaving) gone() {
	l.t.Helper()
	if f, c := l.count("files", liveFiles), l.count("containers", liveBoxes); f != 0 || c != 0 {
		l.t.Errorf("%d files and %d containers are left", f, c)
	}
	// What is of the app, of somebody else, and what was written down stays.
	v := l.user(l.a, "v")
	if a := l.call(v, "GET", proxy+"/files", nil); strings.Count(a.body, `"id"`) != 2 || !strings.Contains(a.body, l.shared) {
		l.t.Errorf("of the others' files are left %s", a.body)
	}
	if n := l.count("executions", "1 = 1"); n != 1 {
		l.t.Errorf("%d records of use are left", n)
	}
	for what, a := range map[string]answer{
		"files": l.call(l.u, "GET", proxy+"/files", nil), "a message": l.say(l.u, message(textBlock, "")),
		"a new token": l.call(l.user(l.a, "u"), "GET", proxy+"/files", nil),
	} {
		if a.status != 403 {
			l.t.Errorf("%s after the deletion: %d %s", what, a.status, a.body)
		}
	}
	// In another app it is somebody else.
	if a := l.call(l.user(l.b, "u"), "GET", proxy+"/files", nil); a.status != 200 {
		l.t.Errorf("in another app: %d %s", a.status, a.body)
	}
	a := l.call(who{}, "GET", "/airlock/v1/audit?limit=100&event=user.deleted", nil, "x-api-key", l.AdminKey())
	if !strings.Contains(a.body, "airlock/u") {
		l.t.Errorf("the audit: %s", a.body)
	}
}

func TestS104AUserIsDeletedWhileAStreamRuns(t *testing.T) {
	t.Parallel()
	t.Run("cut", func(t *testing.T) {
		t.Parallel()
		l := startLeaving(t, deleteCuts)
		if out := l.deletes(); out.Files != 2 || out.Containers != 1 {
			t.Errorf("%+v", out)
		}
		close(l.halting.goOn) // nobody waits for it any more
		// The stream ends before its upstream does, and says why.
		if rest := l.rest(); !strings.Contains(rest, "event: error") || !strings.Contains(rest, errUserDeleted.Message) || strings.Contains(rest, "message_stop") {
			t.Errorf("the stream goes on: %s", rest)
		}
		l.gone()
		// What a request that was under way still made goes with the next sweep.
		l.made(l.a, "u", "user", "late.txt", "x")
		if err := l.parts.tenants.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		l.gone()
	})
	t.Run("finish", func(t *testing.T) {
		t.Parallel()
		l := startLeaving(t, deleteWaits)
		if out := l.deletes(); out.Finished || out.Files+out.Containers != 0 {
			t.Errorf("%+v", out)
		}
		if a := l.call(l.u, "GET", proxy+"/files", nil); a.status != 403 {
			t.Errorf("another request: %d %s", a.status, a.body)
		}
		if n := l.count("files", liveFiles); n != 2 {
			t.Errorf("%d files under a running stream", n)
		}
		close(l.halting.goOn)
		if rest := l.rest(); strings.Contains(rest, "event: error") || !strings.Contains(rest, "message_stop") {
			t.Errorf("the stream: %s", rest)
		}
		l.waitLanded()
		if err := l.parts.tenants.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		l.gone()
	})
}

// waitLanded waits until no request of the user is under way: the client sees the end of an answer before the server does.
func (l *leaving) waitLanded() {
	l.t.Helper()
	for l.flights.count(tenant.Caller{AppID: l.a.id, UserID: "airlock/u"}, nil) > 0 {
		runtime.Gosched()
		if l.t.Context().Err() != nil {
			l.t.Fatal("the request does not end")
		}
	}
}

func TestARequestThatIsCutSaysWhy(t *testing.T) {
	t.Parallel()
	l := startLeaving(t, deleteCuts)
	answers := map[string]chan answer{"a message": make(chan answer, 1), "an upload": make(chan answer, 1)}
	body, contentType := form(t, part{"file", "late.txt", "text/plain", strings.Repeat("x", 1<<10)})
	rd, w := io.Pipe()
	go func() { answers["a message"] <- l.say(l.u, message(textBlock, `,"tools":[`+codeTool+`]`)) }()
	go func() {
		answers["an upload"] <- l.call(l.u, "POST", proxy+"/files", io.Reader(rd), "content-type", contentType)
	}()
	if _, err := w.Write(body.Next(body.Len() / 2)); err != nil {
		t.Fatal(err)
	}
	c := tenant.Caller{AppID: l.a.id, UserID: "airlock/u"}
	for l.flights.count(c, nil) < 3 {
		runtime.Gosched()
		if l.t.Context().Err() != nil {
			t.Fatal("the requests do not begin")
		}
	}
	l.deletes()
	close(l.halting.goOn)
	_, err := w.Write(body.Bytes()) // the server need not read it
	w.CloseWithError(err)
	for what, ch := range answers {
		a := <-ch
		if a.status != 403 || a.failure().Error.Message != errUserDeleted.Message {
			t.Errorf("%s: %d %s", what, a.status, a.body)
		}
	}
	l.rest()
	if n := l.count("files", liveFiles); n != 0 {
		t.Errorf("%d files were made", n)
	}
}

// A container on the disk of another server ends there. Fails if the administration is told that nothing is left, or if a turn
// that may end first is cut through a server that does not know of it.
func TestContainerElsewhereOfADeletedUser(t *testing.T) {
	t.Parallel()
	for onDelete, want := range map[string]struct {
		deleted int
		state   string
	}{deleteCuts: {1, "deleting"}, deleteWaits: {0, "active"}} {
		t.Run(onDelete, func(t *testing.T) {
			t.Parallel()
			l := &leaving{gatewayServer: startGateway(t, func(c *Config) { c.Users.OnDelete = onDelete })}
			l.u = l.user(l.a, "u")
			box := l.space(l.u)
			home := func(instance string) {
				err := l.parts.db.RunTx(t.Context(), func(ctx context.Context, tx db.Tx) error {
					_, err := tx.NewRaw(`UPDATE containers SET home = ? WHERE id = ?`, instance, box).Exec(ctx)
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			home("another")
			if out := l.deletes(); out.Finished || out.Containers != want.deleted || l.count("containers", "state = '"+want.state+"'") != 1 {
				t.Errorf("%+v, want %+v", out, want)
			}
			home(l.parts.containers.Instance)
			if err := l.parts.tenants.Sweep(t.Context()); err != nil || l.count("containers", liveBoxes) != 0 {
				t.Errorf("its own server has not deleted it: %v", err)
			}
		})
	}
}
