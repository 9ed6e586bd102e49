package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
)

// server is the built binary with the scripted model.
type server struct {
	url, key string
	driver   string
	admin    string // the key of its operator
	log      string // the file
	cmd      *exec.Cmd
	client   *http.Client
}

var readyLine = regexp.MustCompile(`url=(\S+)`)

// startServer waits for the line that says where it listens. Settings are more of the environment.
func startServer(ctx context.Context, o options, driver, dir, rootfs string, settings ...string) (*server, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	images := filepath.Dir(filepath.Dir(rootfs))
	cmd := exec.CommandContext(ctx, o.binary, "serve", "--listen", "127.0.0.1:0", "--data", dir, "--upstream", "script")
	cmd.Env = append(os.Environ(), "AIRLOCK_ROOTFS="+images, "AIRLOCK_SANDBOX_ROOTFS="+filepath.Base(filepath.Dir(rootfs)),
		"AIRLOCK_SANDBOX_DRIVER="+driver, "AIRLOCK_SANDBOX_ALLOW_SHARED_KERNEL=true", "AIRLOCK_SANDBOX_RUNSC="+o.runsc, "AIRLOCK_DISK_CROWDED_PERCENT=99.8", "AIRLOCK_DISK_FULL_PERCENT=99.9",
		"AIRLOCK_SANDBOX_POOL="+strconv.Itoa(poolSize), "AIRLOCK_LOG_LEVEL=debug") // for rest
	// The limits are counted, and too far away to refuse what is measured.
	cmd.Env = append(cmd.Env, "AIRLOCK_LIMITS_APP_REQUESTS=100000000", "AIRLOCK_LIMITS_USER_REQUESTS=100000000")
	cmd.Env = append(cmd.Env, settings...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(filepath.Dir(dir), "server.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	m := readyLine.FindStringSubmatch(line)
	if err != nil || m == nil {
		said, _ := os.ReadFile(log.Name()) // for the message only
		return nil, fmt.Errorf("the server said %q: %w: %s", line, errors.Join(err, cmd.Process.Kill(), cmd.Wait()), said)
	}
	s := &server{url: m[1], driver: driver, log: log.Name(), cmd: cmd, client: &http.Client{Timeout: 5 * time.Minute}}
	return s, s.makeKey(ctx, dir)
}

// poolSize is the setting's default.
const poolSize = 2

// rest waits until the pool is full and, where members are continued from one on disk, that is there: a server that makes
// members shares the processors with what is measured.
func (s *server) rest(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*time.Minute, errors.New("the pool does not fill"))
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		b, err := os.ReadFile(s.log)
		if err != nil {
			return err
		}
		if s.full(string(b)) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (s *server) full(log string) bool {
	made, taken, based := 0, 0, 0
	for line := range strings.Lines(log) {
		switch {
		case strings.Contains(line, `msg="pool member ready"`):
			made++
			if strings.Contains(line, "continued=true") {
				based--
			}
		case strings.Contains(line, "pooled=true"):
			taken++
		case strings.Contains(line, `msg="base of the pool ready"`):
			based++
		}
	}
	return made-taken >= poolSize && (s.driver != "gvisor" || based > 0)
}

func (s *server) makeKey(ctx context.Context, dir string) error {
	admin, err := os.ReadFile(filepath.Join(dir, "admin.key"))
	if err != nil {
		return err
	}
	var made struct{ Key string }
	s.admin = strings.TrimSpace(string(admin))
	s.key = s.admin
	if err := s.call(ctx, http.MethodPost, "/airlock/v1/keys", map[string]any{"app": "default"}, &made); err != nil {
		return err
	}
	s.key = made.Key
	return nil
}

func (s *server) stop() error {
	err := s.cmd.Process.Signal(syscall.SIGTERM)
	// A server that was told to stop may say so with its exit code.
	_ = s.cmd.Wait()
	return err
}

func (s *server) do(ctx context.Context, method, path, contentType string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("x-api-key", s.key)
	req.Header.Set("anthropic-version", "2023-06-01")
	if contentType != "" {
		req.Header.Set("content-type", contentType)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 != 2 {
		text, _ := io.ReadAll(resp.Body) // for the message only
		return nil, errors.Join(fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, text), resp.Body.Close())
	}
	return resp, nil
}

func (s *server) call(ctx context.Context, method, path string, in, out any) error {
	b, err := json.Marshal(in)
	if err != nil {
		return err
	}
	resp, err := s.do(ctx, method, path, "application/json", bytes.NewReader(b))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if out == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		return err
	}
	return json.NewDecoder(resp.Body).Decode(out)
}

// serverRows measures a server on the driver of the lab.
func serverRows(ctx context.Context, l *lab, o options) []result {
	s, err := startServer(ctx, o, l.name, filepath.Join(filepath.Dir(l.dir), "server-"+l.name), l.rootfs)
	if err != nil {
		return []result{failed("the rows over HTTP", err)}
	}
	// The server is idle only before it did anything.
	measures := []func(context.Context, *lab, *server, options) ([]result, error){idleServer, overHTTP, oneTurn, parkAndResume}
	if l.name == driverName {
		measures = append(measures, gatewayChecks, upDown)
	}
	var rows []result
	for _, measure := range measures {
		more, err := measure(ctx, l, s, o)
		rows = append(rows, more...)
		if err != nil {
			rows = append(rows, failed("a row over HTTP", err))
		}
	}
	if err := s.stop(); err != nil {
		rows = append(rows, failed("stop the server", err))
	}
	for n := range rows {
		rows[n].Driver = l.name
	}
	return rows
}

// idleServer reads what the server holds and uses while nobody calls it.
func idleServer(ctx context.Context, _ *lab, s *server, _ options) ([]result, error) {
	if err := s.rest(ctx); err != nil {
		return nil, err
	}
	proc := filepath.Join("/proc", strconv.Itoa(s.cmd.Process.Pid))
	before, err := cpuTicks(proc)
	if err != nil {
		return nil, err
	}
	const watched = 10 * time.Second
	<-time.After(watched)
	after, err := cpuTicks(proc)
	if err != nil {
		return nil, err
	}
	status, err := os.ReadFile(filepath.Join(proc, "status"))
	if err != nil {
		return nil, err
	}
	rss := 0.0
	for line := range strings.Lines(string(status)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "VmRSS:" {
			rss, err = strconv.ParseFloat(fields[1], 64)
		}
	}
	// A tick is a hundredth of a second.
	percent := float64(after-before) / watched.Seconds()
	return []result{atMost("idle server, memory", "MiB", rss/1024, 60), atMost("idle server, processor", "%", percent, 0.5)}, err
}

// cpuTicks are user and system time of a process.
func cpuTicks(proc string) (int64, error) {
	b, err := os.ReadFile(filepath.Join(proc, "stat"))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("%s/stat is %q", proc, b)
	}
	user, err1 := strconv.ParseInt(fields[11], 10, 64)
	system, err2 := strconv.ParseInt(fields[12], 10, 64)
	return user + system, errors.Join(err1, err2)
}

// container has a sandbox, and the pool has its next member.
func (s *server) container(ctx context.Context) (string, error) {
	var made struct{ ID string }
	if err := s.call(ctx, http.MethodPost, "/airlock/v1/containers", map[string]any{}, &made); err != nil {
		return "", err
	}
	if err := s.call(ctx, http.MethodPost, "/airlock/v1/containers/"+made.ID+"/exec", map[string]any{"command": "true"}, nil); err != nil {
		return "", err
	}
	return made.ID, s.rest(ctx)
}

// overHTTP compares `container exec` with the engine path in one loop.
func overHTTP(ctx context.Context, l *lab, s *server, o options) ([]result, error) {
	id, err := s.container(ctx)
	if err != nil {
		return nil, err
	}
	sb, err := l.driver.Create(ctx, l.spec(nil))
	if err != nil {
		return nil, err
	}
	medians, err := interleave(4*o.rounds,
		candidate{"engine", func() (time.Duration, error) {
			start := time.Now()
			_, err := sb.Exec(ctx, sandbox.Command{Argv: echo})
			return time.Since(start), err
		}},
		candidate{"http", func() (time.Duration, error) {
			start := time.Now()
			err := s.call(ctx, http.MethodPost, "/airlock/v1/containers/"+id+"/exec", map[string]any{"argv": echo}, nil)
			return time.Since(start), err
		}},
	)
	if err := errors.Join(err, sb.Destroy(ctx)); err != nil {
		return nil, err
	}
	row := atMost("command over HTTP, beyond the engine path", "ms", medians["http"]-medians["engine"], 1.5)
	row.Note = fmt.Sprintf("%.2f ms over HTTP, %.2f ms in the engine", medians["http"], medians["engine"])
	return []result{row}, s.call(ctx, http.MethodDelete, "/airlock/v1/containers/"+id, nil, nil)
}

func turn(container, script string) map[string]any {
	return map[string]any{
		"model": "script", "max_tokens": 1024, "container": container,
		"tools":    []any{map[string]any{"type": "code_execution_20250825", "name": "code_execution"}},
		"messages": []any{map[string]any{"role": "user", "content": script}},
	}
}

// turnBudget is in milliseconds by driver, for a turn and for a call that parks it.
var turnBudget = map[string]float64{"native": 5, "gvisor": 15}

// oneTurn is a Messages request with one command, beyond that command.
func oneTurn(ctx context.Context, l *lab, s *server, o options) ([]result, error) {
	id, err := s.container(ctx)
	if err != nil {
		return nil, err
	}
	request := turn(id, "```bash\necho hi\n```\n")
	medians, err := interleave(2*o.rounds,
		candidate{"command", func() (time.Duration, error) {
			start := time.Now()
			err := s.call(ctx, http.MethodPost, "/airlock/v1/containers/"+id+"/exec", map[string]any{"command": "echo hi"}, nil)
			return time.Since(start), err
		}},
		candidate{"turn", func() (time.Duration, error) {
			start := time.Now()
			err := s.call(ctx, http.MethodPost, "/v1/messages", request, nil)
			return time.Since(start), err
		}},
	)
	if err != nil {
		return nil, err
	}
	row := atMost("one code execution turn, beyond its command", "ms", medians["turn"]-medians["command"], turnBudget[l.name])
	row.Note = fmt.Sprintf("%.2f ms the turn, %.2f ms the command over HTTP; the scripted model's two answers are in it", medians["turn"], medians["command"])
	return []result{row}, nil
}

const fileSize = 32 << 20

// upDown compares with a plain Go server on the same disk. Throughput of
// files that are new each time, so that nothing is answered from a hash.
func upDown(ctx context.Context, l *lab, s *server, o options) ([]result, error) {
	plainURL, stopPlain, err := plainServer(ctx, filepath.Dir(l.dir))
	if err != nil {
		return nil, err
	}
	rounds := max(3, o.rounds/5)
	up, err := interleave(rounds,
		candidate{"plain", func() (time.Duration, error) { return upload(ctx, plainURL+"/", "") }},
		candidate{"airlock", func() (time.Duration, error) { return upload(ctx, s.url+"/v1/files", s.key) }},
	)
	if err != nil {
		return nil, errors.Join(err, stopPlain())
	}
	id, err := s.output(ctx)
	if err != nil {
		return nil, errors.Join(err, stopPlain())
	}
	down, err := interleave(rounds,
		candidate{"plain", func() (time.Duration, error) { return download(ctx, plainURL+"/", "") }},
		candidate{"airlock", func() (time.Duration, error) { return download(ctx, s.url+"/v1/files/"+id+"/content", s.key) }},
	)
	if err := errors.Join(err, stopPlain()); err != nil {
		return nil, err
	}
	rate := func(ms float64) float64 { return fileSize / (1 << 20) / (ms / 1000) }
	return []result{
		ratioAtLeast("upload 32 MiB", "MiB/s", rate(up["airlock"]), rate(up["plain"]), 0.8, "plain Go server with fsync"),
		ratioAtLeast("download 32 MiB", "MiB/s", rate(down["airlock"]), rate(down["plain"]), 0.8, "plain Go server"),
	}, nil
}

// output makes one file of that size in a container, since uploads cannot be
// downloaded.
func (s *server) output(ctx context.Context) (string, error) {
	id, err := s.container(ctx)
	if err != nil {
		return "", err
	}
	request := turn(id, "```bash must\nhead -c "+strconv.Itoa(fileSize)+" /dev/urandom > $OUTPUT_DIR/out.bin\n```\n")
	var answer json.RawMessage
	if err := s.call(ctx, http.MethodPost, "/v1/messages", request, &answer); err != nil {
		return "", err
	}
	m := regexp.MustCompile(`"file_id":\s*"([^"]+)"`).FindSubmatch(answer)
	if m == nil {
		return "", fmt.Errorf("no output file in %s", answer)
	}
	return string(m[1]), nil
}

var uploads int

func upload(ctx context.Context, url, key string) (time.Duration, error) {
	uploads++
	content := bytes.Repeat([]byte(fmt.Sprintf("%016d", uploads)), fileSize/16)
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	part, err := form.CreateFormFile("file", "bench.bin")
	if err != nil {
		return 0, err
	}
	if _, err := part.Write(content); err != nil {
		return 0, err
	}
	if err := form.Close(); err != nil {
		return 0, err
	}
	return transfer(ctx, http.MethodPost, url, key, form.FormDataContentType(), &body, 0)
}

func download(ctx context.Context, url, key string) (time.Duration, error) {
	return transfer(ctx, http.MethodGet, url, key, "", nil, fileSize)
}

// transfer makes one request and reads the whole answer.
func transfer(ctx context.Context, method, url, key, contentType string, body io.Reader, atLeast int64) (time.Duration, error) {
	s := &server{key: key, client: &http.Client{Timeout: 5 * time.Minute}}
	start := time.Now()
	resp, err := s.do(ctx, method, url, contentType, body)
	if err != nil {
		return 0, err
	}
	n, err := io.Copy(io.Discard, resp.Body)
	took := time.Since(start)
	if n < atLeast {
		err = errors.Join(err, fmt.Errorf("%s %s: %d of %d bytes came", method, url, n, atLeast))
	}
	return took, errors.Join(err, resp.Body.Close())
}
