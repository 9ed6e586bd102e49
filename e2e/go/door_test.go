package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// door stands before a server and does to its clients what networks and operators do. Each client comes by a path of its own,
// /NAME/v1/…, and its tools may ask at /NAME/door/late or /NAME/door/kill for what is to happen before they answer.
type door struct {
	url   string
	lossy bool // connections are lost
	all   int  // clients that are to ask before anything happens

	t      *testing.T
	mu     sync.Mutex
	server *another
	asked  int            // calls of late and kill
	killed chan struct{}  // closed when the next server serves
	seen   map[string]int // continuations by client
	lost   map[string]int
}

func newDoor(t *testing.T, a *another, clients int) *door {
	t.Helper()
	d := &door{t: t, server: a, all: clients, killed: make(chan struct{}), seen: map[string]int{}, lost: map[string]int{}}
	s := httptest.NewServer(d)
	t.Cleanup(s.Close)
	d.url = s.URL
	return d
}

func (d *door) at() *another {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.server
}

func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	client, path, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	var err error
	switch path {
	case "door/late":
		err = d.late(r.Context())
	case "door/kill":
		err = d.kill(r.Context())
	default:
		r.URL.Path = "/" + path
		err = d.pass(w, r, client)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// pass hands a request on. A lossy door loses each continuation once: by turns as soon as the server has it, and when the answer
// is complete.
func (d *door) pass(w http.ResponseWriter, r *http.Request, client string) error {
	target, err := url.Parse(d.at().url)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	to := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(target) }}
	early, loses := d.loses(client, string(body))
	if !loses {
		to.ServeHTTP(w, r)
		return nil
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	if early {
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { cancel() }})
	}
	to.ErrorHandler = func(http.ResponseWriter, *http.Request, error) {}
	func() {
		defer func() { _ = recover() }() // the proxy's way to say that an answer was cut off
		to.ServeHTTP(httptest.NewRecorder(), r.WithContext(ctx))
	}()
	panic(http.ErrAbortHandler)
}

func (d *door) loses(client, body string) (early, loses bool) {
	if !d.lossy || !strings.Contains(body, `"tool_result"`) {
		return false, false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.seen[client]
	d.seen[client]++
	if n%2 == 1 {
		return false, false // the repeat
	}
	d.lost[client]++
	return n%4 == 0, true
}

// late returns when the calls of all clients have waited too long.
func (d *door) late(ctx context.Context) error {
	d.mu.Lock()
	d.asked++
	d.mu.Unlock()
	return d.until(ctx, func() bool {
		b, err := os.ReadFile(d.at().log)
		d.mu.Lock()
		defer d.mu.Unlock()
		return err == nil && d.asked == d.all && strings.Count(string(b), "parked cell went on by itself") >= d.all
	})
}

// kill returns when the server was killed, after the calls of all clients wait, and another one serves on the same data.
func (d *door) kill(ctx context.Context) error {
	d.mu.Lock()
	d.asked++
	last := d.asked == d.all
	d.mu.Unlock()
	if last {
		go func() {
			d.server.end(d.t, syscall.SIGKILL)
			next, err := launch(d.server.data, d.server.settings...)
			if err != nil {
				d.t.Error(err)
				return
			}
			next.key = d.server.key
			d.t.Cleanup(func() { next.end(d.t, syscall.SIGTERM) })
			d.mu.Lock()
			d.server = next
			d.mu.Unlock()
			close(d.killed)
		}()
	}
	select {
	case <-d.killed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(doorLimit):
		return fmt.Errorf("%d of %d clients came", d.asked, d.all)
	}
}

// doorLimit is far beyond what anything takes: a client that fails must not leave the others waiting.
const doorLimit = 2 * time.Minute

func (d *door) until(ctx context.Context, reached func() bool) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	limit := time.NewTimer(doorLimit)
	defer limit.Stop()
	for !reached() {
		select {
		case <-tick.C:
		case <-limit.C:
			return errors.New("it never happened")
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
