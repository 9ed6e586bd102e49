package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/airlock-sandbox/airlock/internal/server/servertest"
)

const (
	diskBytes   = 6 << 30
	memoryBytes = 4 << 30
	poolSize    = 2
)

// world is the machine as the server under test sees it.
type world struct {
	o      options
	report *report
	dir    string // on the host's disk
	disk   string // the loop file system, which holds the data folder
	memory string // the cgroup of 4 GiB
	groups string // the group below which the server makes its own in the v2 hierarchy
	beside *servertest.Process
	ticks  string // container of the neighbour
	seen   int    // its ticks at the last look

	mu      sync.Mutex
	server  *servertest.Process
	changed chan struct{} // closed when another server has taken its place
	key     string
	kills   int
}

func newWorld(ctx context.Context, o options, r *report) (_ *world, err error) {
	w := &world{o: o, report: r, changed: make(chan struct{})}
	if w.dir, err = os.MkdirTemp("/var/tmp", "airlock-soak-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	if err := w.mountDisk(ctx); err != nil {
		return nil, err
	}
	if err := w.startNeighbour(ctx); err != nil {
		return nil, fmt.Errorf("the server beside it: %w", err)
	}
	// From here on this program and all it starts share the memory of the group.
	if err := w.enterGroups(); err != nil {
		return nil, err
	}
	if err := os.Mkdir(w.data(), 0o700); err != nil {
		return nil, err
	}
	s, err := w.start(ctx)
	if err != nil {
		return nil, err
	}
	w.server = s
	w.key, err = s.NewKey(ctx)
	return w, err
}

func (w *world) data() string { return filepath.Join(w.disk, "data") }

func (w *world) mountDisk(ctx context.Context) error {
	image := filepath.Join(w.dir, "disk")
	w.disk = filepath.Join(w.dir, "mnt")
	if err := os.Mkdir(w.disk, 0o700); err != nil {
		return err
	}
	for _, argv := range [][]string{
		{"truncate", "-s", strconv.Itoa(diskBytes), image},
		{"mkfs.ext4", "-q", "-m", "0", image},
		{"mount", "-o", "loop,nodev,nosuid", image, w.disk},
	} {
		if out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, out)
		}
	}
	return nil
}

// settings make life short, so that much of it fits into the time. The memory is the least with which a fork server runs.
func (w *world) settings() []string {
	return []string{
		"AIRLOCK_SANDBOX_DRIVER=" + w.o.driver,
		"AIRLOCK_SANDBOX_MEMORY_BYTES=536870912", "AIRLOCK_SANDBOX_DISK_BYTES=67108864", "AIRLOCK_SANDBOX_PROCESSES=64",
		"AIRLOCK_CONTAINER_IDLE_FREEZE=1s", "AIRLOCK_CONTAINER_IDLE_DESTROY=3s", "AIRLOCK_CONTAINER_PACK_AFTER=6s",
		"AIRLOCK_CONTAINER_SWEEP_EVERY=250ms",
		"AIRLOCK_DISK_CROWDED_PERCENT=85", "AIRLOCK_DISK_FULL_PERCENT=95", // the chaos fills the disk past both
		"AIRLOCK_CONTAINER_PER_APP=0", // the machine is to be the limit
		// Modules that are imported at once: members of the pool are made with what processor time nobody else wants.
		"AIRLOCK_SANDBOX_PRELOAD=uuid,random,tempfile", "AIRLOCK_SANDBOX_POOL=" + strconv.Itoa(poolSize),
	}
}

func (w *world) start(ctx context.Context) (*servertest.Process, error) {
	// The server outlives whoever had it started again.
	return servertest.Start(context.WithoutCancel(ctx), servertest.Options{
		Binary: w.o.binary, Data: w.data(), Log: filepath.Join(w.dir, "log"), Env: w.settings(),
	})
}

func (w *world) startNeighbour(ctx context.Context) error {
	data := filepath.Join(w.dir, "beside")
	if err := os.Mkdir(data, 0o700); err != nil {
		return err
	}
	p, err := servertest.Start(context.WithoutCancel(ctx), servertest.Options{
		Binary: w.o.binary, Data: data,
		Env: []string{"AIRLOCK_CONTAINER_IDLE_FREEZE=-1s", "AIRLOCK_CONTAINER_IDLE_DESTROY=24h", "AIRLOCK_SANDBOX_DRIVER=" + w.o.driver},
	})
	if err != nil {
		return err
	}
	w.beside = p
	if p.Key, err = p.NewKey(ctx); err != nil {
		return err
	}
	if w.ticks, err = p.Create(ctx); err != nil {
		return err
	}
	_, err = p.Exec(ctx, w.ticks, "(while :; do echo >> tick; sleep 0.2; done) >/dev/null 2>&1 &")
	return err
}

// lookBeside checks that the neighbour's background process has gone on since the last look.
func (w *world) lookBeside(ctx context.Context) {
	out, err := w.beside.Exec(ctx, w.ticks, "wc -c < tick")
	n, _ := strconv.Atoi(strings.TrimSpace(out)) // 0 is a failure below
	if err != nil || n <= w.seen {
		w.report.fault("neighbour", "ticks %d after %d, %v", n, w.seen, err)
	}
	w.seen = n
	w.report.count("looks at the server beside it")
}

// enterGroups makes the cgroups and moves this process into them.
func (w *world) enterGroups() error {
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return err
	}
	name := "soak" + strconv.Itoa(os.Getpid())
	for line := range strings.Lines(string(own)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case parts[1] == "memory":
			w.memory = filepath.Join("/sys/fs/cgroup/memory", parts[2], name)
		case parts[0] == "0":
			for _, mount := range []string{"/sys/fs/cgroup/unified", "/sys/fs/cgroup"} {
				if _, err := os.Stat(filepath.Join(mount, "cgroup.procs")); err == nil {
					w.groups = filepath.Join(mount, parts[2], name)
					break
				}
			}
		}
	}
	if w.memory == "" || w.groups == "" {
		return errors.New("the soak needs a memory hierarchy of cgroup v1 and a v2 hierarchy beside it")
	}
	for _, group := range []string{w.memory, w.groups} {
		if err := os.Mkdir(group, 0o755); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(w.memory, "memory.limit_in_bytes"), []byte(strconv.Itoa(memoryBytes)), 0o600); err != nil {
		return err
	}
	for _, group := range []string{w.memory, w.groups} {
		if err := os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// current is the server of the moment with a client, and a channel that says when it has been replaced.
func (w *world) current() (*servertest.Client, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.server.Client
	c.Key = w.key
	return &c, w.changed
}

var requestID = regexp.MustCompile(`req_[0-9A-Za-z]+`)

// why adds to an answer that says nothing what the server's log says about its request.
func (w *world) why(answer error) string {
	id := requestID.FindString(answer.Error())
	log, err := os.ReadFile(filepath.Join(w.dir, "log"))
	if id == "" || err != nil {
		return answer.Error()
	}
	text := []string{answer.Error()}
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, id) && strings.Contains(line, "error=") {
			text = append(text, "log: "+strings.TrimSpace(line))
		}
	}
	return strings.Join(text, "; ")
}

// kill ends the server the hard way and starts the next on the same folder, which must find a clean host.
func (w *world) kill(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.server.Kill(); err != nil {
		return err
	}
	began := time.Now()
	s, err := w.start(ctx)
	if err != nil {
		return fmt.Errorf("start after a kill: %w", err)
	}
	if took := time.Since(began); took > 10*time.Second {
		w.report.fault("start", "took %v after kill %d", took, w.kills)
	}
	w.server = s
	w.kills++
	w.report.count("kill -9 of the server")
	close(w.changed)
	w.changed = make(chan struct{})
	return nil
}

// stopAndCheck ends the server in order and starts the next; nothing of it may stay on the host, and no workspace without its
// container.
func (w *world) stopAndCheck(ctx context.Context) error {
	if err := w.orphans(ctx); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.end(ctx, w.server)
	s, err := w.start(ctx)
	if err != nil {
		return err
	}
	w.server = s
	close(w.changed)
	w.changed = make(chan struct{})
	return nil
}

// end stops a server in order and looks for what stayed of it.
func (w *world) end(ctx context.Context, p *servertest.Process) {
	if err := p.Stop(); err != nil {
		w.report.fault("stop", "the server ended with %v: %s", err, p.LogTail())
	}
	if err := p.WaitClean(context.WithoutCancel(ctx), 10*time.Second); err != nil {
		w.report.fault("leak", "after an orderly end: %v", err)
	}
	spare, err := filepath.Glob(filepath.Join(p.Data, "workspaces", "pool-*"))
	if err != nil || len(spare) > 0 {
		w.report.fault("leak", "images of the pool after an orderly end: %v, %v", spare, err)
	}
	if _, err := os.Stat(filepath.Join("/run/airlock/instances", p.Instance)); !errors.Is(err, os.ErrNotExist) {
		w.report.fault("leak", "the instance is claimed after an orderly end: %v", err)
	}
}

// orphans looks for images that belong to no container, which only the next start would remove.
func (w *world) orphans(ctx context.Context) error {
	c, _ := w.current()
	return w.imagesGo(ctx, w.data(), func() (kept []string, err error) { return c.Containers(ctx) })
}

// imagesGo waits until there are no images in a data folder but those of the pool and of the containers that known names.
func (w *world) imagesGo(ctx context.Context, data string, known func() ([]string, error)) error {
	for deadline := time.Now().Add(restLimit); ; {
		images, err := filepath.Glob(filepath.Join(data, "workspaces", "*.img"))
		if err != nil {
			return err
		}
		ids, err := known()
		if err != nil {
			return fmt.Errorf("list containers: %w", err)
		}
		left := slices.DeleteFunc(images, func(path string) bool {
			id := strings.TrimSuffix(filepath.Base(path), ".img")
			return strings.HasPrefix(id, "pool-") || slices.Contains(ids, id)
		})
		if len(left) == 0 {
			return nil
		}
		if time.Now().After(deadline) || !pause(ctx, time.Second) {
			w.report.fault("leak", "images without a container: %v", left)
			return ctx.Err()
		}
	}
}

// finalChecks ends both servers; close finds them gone.
func (w *world) finalChecks(ctx context.Context) {
	w.lookBeside(ctx)
	w.end(ctx, w.server)
	w.end(ctx, w.beside)
	b, err := os.ReadFile(filepath.Join(w.memory, "memory.max_usage_in_bytes"))
	if err != nil {
		w.report.fault("memory", "%v", err)
	}
	w.report.note("peak memory of server, load and sandboxes: %s of %d bytes", strings.TrimSpace(string(b)), memoryBytes)
}

// close ends what runs and gives the host back.
func (w *world) close() error {
	var errs []error
	for _, p := range []*servertest.Process{w.server, w.beside} {
		if p != nil {
			errs = append(errs, p.Stop())
		}
	}
	if w.memory != "" && w.groups != "" {
		for _, group := range []string{w.memory, w.groups} {
			errs = append(errs,
				os.WriteFile(filepath.Join(filepath.Dir(group), "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0o600),
				os.Remove(group))
		}
	}
	if w.disk != "" {
		if err := servertest.Unmount(w.disk); err != nil && !errors.Is(err, unix.EINVAL) {
			errs = append(errs, fmt.Errorf("unmount %s: %w", w.disk, err))
		}
	}
	return errors.Join(append(errs, os.RemoveAll(w.dir))...)
}
