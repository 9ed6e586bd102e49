package direct

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"path"
	"strconv"
	"time"

	"github.com/airlock-sandbox/airlock/internal/container"
	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// ServeExec serves POST /airlock/v1/containers/{id}/exec: events out and exit, or error once output has begun.
func (s *Service) ServeExec(w http.ResponseWriter, r *http.Request, caller tenant.Caller) error {
	var p ExecParams
	if err := wire.ReadJSON(r, wire.MaxJSONBody, &p); err != nil {
		return err
	}
	st := wire.NewStream(w)
	// No sign of life before the sandbox is there: until then an error still has a status of its own.
	begin := func(ctx context.Context) (stop func()) {
		stopPings, unblock := keepAlive(st, cmp.Or(s.Ping, defaultPing)), unblockWrites(ctx, w)
		return func() { stopPings(); unblock() }
	}
	res, err := s.exec(r.Context(), caller, container.ID(r.PathValue("id")), p,
		&eventWriter{stream: "stdout", send: st.Event}, &eventWriter{stream: "stderr", send: st.Event}, begin)
	if err != nil {
		if !st.Started() {
			return err
		}
		// The status is out; the error travels as a frame. If the client is gone nobody reads it.
		return st.Event("error", wire.ErrorBody(r.Context(), err))
	}
	data, err := json.Marshal(exitEvent{
		Code: res.Code, Signal: res.Signal, TimedOut: res.TimedOut, OOM: res.OOM,
		Truncated: res.StdoutDropped+res.StderrDropped > 0, CPUUsec: res.CPU.Microseconds(),
		WallMS: res.Wall.Milliseconds(), MaxRSS: peak(res), LeftRunning: res.LeftRunning,
	})
	if err != nil {
		return err
	}
	return st.Event("exit", data)
}

// peak is the memory of all processes of a command at once; where the kernel did not tell it, that of the largest.
func peak(r sandbox.Result) int64 {
	if r.MemoryPeak > 0 {
		return r.MemoryPeak
	}
	return r.MaxRSS
}

// keepAlive sends a ping whenever a period has passed, so that proxies do not cut a quiet stream. The result ends it and
// waits for its goroutine.
func keepAlive(st *wire.Stream, every time.Duration) (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-end:
				return
			case <-tick.C:
			}
			if st.Event("ping", []byte(`{"type":"ping"}`)) != nil {
				return // the command's own output meets the same error
			}
		}
	}()
	return func() { close(end); <-ended }
}

type exitEvent struct {
	Code        int   `json:"code"`
	Signal      int   `json:"signal"`
	TimedOut    bool  `json:"timed_out"`
	OOM         bool  `json:"oom"`
	Truncated   bool  `json:"truncated"`
	CPUUsec     int64 `json:"cpu_usec"`
	WallMS      int64 `json:"wall_ms"`
	MaxRSS      int64 `json:"max_rss"`
	LeftRunning int   `json:"left_running"`
}

// eventWriter sends what a command writes as out events. Its error, a client that is gone, ends the command.
type eventWriter struct {
	stream string
	send   func(name string, data []byte) error
}

func (e *eventWriter) Write(b []byte) (int, error) {
	data, err := json.Marshal(struct {
		Stream string `json:"stream"`
		Data   []byte `json:"data_base64"`
	}{e.stream, b})
	if err == nil {
		err = e.send("out", data)
	}
	if err != nil {
		return 0, err
	}
	return len(b), nil
}

func filePath(r *http.Request) string { return path.Join("/", r.PathValue("path")) }

func flag(r *http.Request, name string) bool {
	v := r.URL.Query().Get(name)
	return v == "1" || v == "true"
}

// ServeGetFile serves GET /airlock/v1/containers/{id}/files/{path...}, with ?list=1 the entries of a folder.
func (s *Service) ServeGetFile(w http.ResponseWriter, r *http.Request, caller tenant.Caller) error {
	p := filePath(r)
	return s.use(r, caller, false, func(ctx context.Context, m container.Metered) (err error) {
		if flag(r, "list") {
			return s.listFolder(ctx, w, m, p)
		}
		body, info, err := m.Get(ctx, p, guest.GetOptions{AsCode: true, Max: s.maxFile()})
		if err != nil {
			return s.fileError(p, err)
		}
		defer unblockWrites(ctx, w)()
		defer func() { err = errors.Join(err, body.Close()) }()
		hd := w.Header()
		// What code made is never interpreted by a browser under this server's name.
		hd.Set("Content-Type", "application/octet-stream")
		hd.Set("X-Content-Type-Options", "nosniff")
		hd.Set("Content-Disposition", "attachment")
		hd.Set("Content-Length", strconv.FormatInt(info.Size, 10))
		return wire.Send(w, body, info.Size)
	})
}

type entry struct {
	Name       string         `json:"name"`
	Path       string         `json:"path"`
	Type       guest.FileType `json:"type"`
	Size       int64          `json:"size"`
	Mode       uint32         `json:"mode"`
	ModifiedAt string         `json:"modified_at"`
}

// maxListed is how many entries one listing of a folder gives.
const maxListed = 10_000

func (s *Service) listFolder(ctx context.Context, w http.ResponseWriter, m container.Metered, p string) error {
	infos, err := m.List(ctx, p, 1, maxListed)
	if errors.Is(err, guest.ErrTooLarge) {
		e := wire.Invalid("path: %s has more than %d entries, which is the most that can be listed", wire.Clip(p, 256), maxListed)
		e.NoRetry, e.Err = true, err
		return e.WithCode("folder_too_large")
	}
	if err != nil {
		return s.fileError(p, err)
	}
	data := make([]entry, 0, len(infos))
	for _, i := range infos {
		name := path.Base(i.Path)
		data = append(data, entry{name, path.Join(p, name), i.Type, i.Size, i.Mode, wire.FormatTime(i.ModTime)})
	}
	return wire.WriteJSON(w, http.StatusOK, map[string]any{"path": p, "data": data})
}

// ServePutFile serves PUT /airlock/v1/containers/{id}/files/{path...}: the body becomes the file, missing folders are made.
func (s *Service) ServePutFile(w http.ResponseWriter, r *http.Request, caller tenant.Caller) error {
	p := filePath(r)
	if r.ContentLength > s.maxFile() {
		return wire.TooLarge("The file is larger than the limit of %s.", wire.FormatSize(s.maxFile()))
	}
	n := &countReader{r: r.Body, max: s.maxFile()}
	err := s.use(r, caller, true, func(ctx context.Context, m container.Metered) error {
		defer unblockReads(ctx, w)()
		return s.fileError(p, m.Put(ctx, p, n, guest.PutOptions{AsCode: true, MkdirAll: true, Mode: 0o644}))
	})
	if err == nil {
		return wire.WriteJSON(w, http.StatusOK, map[string]any{"path": p, "size": n.n})
	}
	if n.over {
		return wire.TooLarge("The file is larger than the limit of %s.", wire.FormatSize(s.maxFile()))
	}
	if _, told := errors.AsType[*wire.Error](err); !told && n.failed != nil && errors.Is(err, n.failed) {
		return wire.BodyError(n.failed)
	}
	return err
}

// ServeDeleteFile serves DELETE /airlock/v1/containers/{id}/files/{path...}; a folder needs ?recursive=1.
func (s *Service) ServeDeleteFile(w http.ResponseWriter, r *http.Request, caller tenant.Caller) error {
	p := filePath(r)
	err := s.use(r, caller, true, func(ctx context.Context, m container.Metered) error {
		return s.fileError(p, m.Remove(ctx, p, guest.RemoveOptions{AsCode: true, All: flag(r, "recursive")}))
	})
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// unblockGrace is how long a client may take to notice that its turn was ended.
const unblockGrace = 2 * time.Second

// unblockWrites ends writes to a client that does not read, soon after ctx has ended: the deletion of a container does not
// wait for it. The result, to be called before the turn ends, takes it back, so that the client can be told why.
func unblockWrites(ctx context.Context, w http.ResponseWriter) (stop func()) {
	return unblock(ctx, w, http.NewResponseController(w).SetWriteDeadline)
}

// unblockReads is the same for reads from a client that does not send.
func unblockReads(ctx context.Context, w http.ResponseWriter) (stop func()) {
	return unblock(ctx, w, http.NewResponseController(w).SetReadDeadline)
}

// unblock closes the connection after a deadline that has passed: net/http takes one of reading for the client's leaving, and
// cancels from then on whatever comes over the same connection.
func unblock(ctx context.Context, w http.ResponseWriter, deadline func(time.Time) error) (stop func()) {
	var timer *time.Timer
	begun, fired := make(chan struct{}), make(chan struct{})
	unwatch := context.AfterFunc(ctx, func() {
		timer = time.AfterFunc(unblockGrace, func() {
			_ = deadline(time.Unix(1, 0)) // writers without deadlines are test recorders
			close(fired)
		})
		close(begun)
	})
	return func() {
		if unwatch() {
			return
		}
		if <-begun; !timer.Stop() {
			<-fired
			_ = deadline(time.Time{})
			w.Header().Set("Connection", "close")
		}
	}
}

var errOver = errors.New("body over the limit")

// countReader counts a body and stops it at a limit.
type countReader struct {
	r      io.Reader
	n, max int64
	over   bool
	failed error // of reading, the end of the body apart
}

func (c *countReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	if c.n > c.max {
		c.over = true
		return 0, errOver
	}
	if err != nil && !errors.Is(err, io.EOF) {
		c.failed = err
	}
	return n, err
}
