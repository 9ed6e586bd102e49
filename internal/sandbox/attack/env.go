package attack

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
)

// Factory makes the driver under test.
type Factory struct {
	// Name is the driver's name in the settings.
	Name string
	// New makes a driver for a host instance; it is called more than once.
	New func(sandbox.Host) (sandbox.Driver, error)
	// RootFS is the folder of a root file system with bash, coreutils, tar and
	// python3.
	RootFS string
	// Part is a command that starts another process, which hands part to PlayPart. Without it rows 51 and 53 report
	// ErrNotTried.
	Part func(ctx context.Context, part string) *exec.Cmd
}

// ErrNotTried is the answer of an attempt that could not be made with what the
// Factory gives. It is neither held nor not held.
var ErrNotTried = errors.New("not tried")

// Env is a driver with its surroundings. Close ends it.
type Env struct {
	Factory
	// Host is the instance whose cgroups, folders and loop devices count as ours.
	Host sandbox.Host
	// Driver is ready to create.
	Driver sandbox.Driver
	// Capabilities are what the driver's probe has found.
	Capabilities sandbox.Capabilities
	// Workspaces lie below Dir.
	Workspaces *sandbox.Workspaces
	// Dir holds everything this Env puts on disk.
	Dir string
	// Secret stands for what a server knows. It is in this process's
	// environment, in a file that only the host sees, and nowhere inside.
	Secret string
	// SecretFile holds Secret, readable for every user of the host.
	SecretFile string

	mu    sync.Mutex
	boxes []*Box
}

var sequence atomic.Int64

// SecretVariable carries Env.Secret in the environment of this process.
const SecretVariable = "AIRLOCK_SANDBOXTEST_SECRET"

// Open makes a driver in a folder of its own below dir. On an error nothing is left.
func Open(ctx context.Context, f Factory, dir string) (_ *Env, err error) {
	id := fmt.Sprintf("test%dn%d", os.Getpid(), sequence.Add(1))
	e := &Env{Factory: f, Dir: filepath.Join(dir, id), Secret: "secret-" + rand.Text()}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.Close(ctx))
		}
	}()
	e.Host = sandbox.Host{ID: id, RunDir: filepath.Join(e.Dir, "run")}
	e.Workspaces = &sandbox.Workspaces{Dir: filepath.Join(e.Dir, "workspaces")}
	for _, folder := range []string{e.Host.RunDir, e.Workspaces.Dir} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return nil, err
		}
	}
	if err := e.hideSecret(); err != nil {
		return nil, err
	}
	driver, err := f.New(e.Host)
	if err != nil {
		return nil, err
	}
	e.Driver = driver
	if e.Capabilities, err = driver.Probe(ctx); err != nil {
		return nil, fmt.Errorf("probe: %w", err)
	}
	return e, nil
}

// hideSecret puts the secret where code must not find it. The folder of its file must be open to all, or the file's own
// mode would prove nothing; there the name must be one that nobody could have taken before with a link to somewhere else.
func (e *Env) hideSecret() error {
	file, err := os.CreateTemp("", "airlock-*.secret")
	if err != nil {
		return err
	}
	e.SecretFile = file.Name()
	_, err = file.WriteString(e.Secret)
	if err = errors.Join(err, file.Chmod(0o644), file.Close()); err != nil {
		return err
	}
	return os.Setenv(SecretVariable, e.Secret)
}

// forgetSecret takes it away again. The variable may be that of a later Env by now.
func (e *Env) forgetSecret() error {
	var err error
	if os.Getenv(SecretVariable) == e.Secret {
		err = os.Unsetenv(SecretVariable)
	}
	if e.SecretFile != "" {
		err = errors.Join(err, os.Remove(e.SecretFile))
	}
	return err
}

// DiesWhole tells whether the memory limit ends the sandbox and not one process of it: where the kernel inside is a process
// of the host, the host can only end that. Such a sandbox must be told as out of memory, and its workspace must be whole.
func (e *Env) DiesWhole() bool { return e.Capabilities.Kernel }

// Close destroys what is left and removes the folder.
func (e *Env) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	err := e.DestroyAll(ctx)
	if e.Driver != nil {
		err = errors.Join(err, e.Driver.Close(ctx))
	}
	return errors.Join(err, e.forgetSecret(), os.RemoveAll(e.Dir))
}

// Option changes a spec before the sandbox is made.
type Option func(*sandbox.Spec)

// Memory limits the sandbox to so many bytes.
func Memory(bytes int64) Option { return func(s *sandbox.Spec) { s.Limits.MemoryBytes = bytes } }

// Processes limits processes and threads.
func Processes(n int) Option { return func(s *sandbox.Spec) { s.Limits.Processes = n } }

// Disk limits the workspace to so many bytes.
func Disk(bytes int64) Option { return func(s *sandbox.Spec) { s.Limits.DiskBytes = bytes } }

// Inodes limits the files of the workspace.
func Inodes(n int64) Option { return func(s *sandbox.Spec) { s.Limits.Inodes = n } }

// OpenFiles limits the descriptors of one process.
func OpenFiles(n int) Option { return func(s *sandbox.Spec) { s.Limits.OpenFiles = n } }

// FileBytes limits one file.
func FileBytes(n int64) Option { return func(s *sandbox.Spec) { s.Limits.FileBytes = n } }

// CPUs limits the processor time; 0.5 is half of one core.
func CPUs(n float64) Option { return func(s *sandbox.Spec) { s.Limits.CPUs = n } }

// Wall limits the time of one command.
func Wall(d time.Duration) Option { return func(s *sandbox.Spec) { s.Limits.Wall = d } }

// Environ adds variables to every command inside.
func Environ(env map[string]string) Option { return func(s *sandbox.Spec) { s.Env = env } }

// limits are what an attempt gets unless it asks for others: enough for the
// probe and a Python, little enough to be used up in a second.
func limits() sandbox.Limits {
	return sandbox.Limits{
		MemoryBytes: 256 << 20, CPUs: 1, Processes: 128,
		DiskBytes: 64 << 20, Inodes: 4096, FileBytes: 48 << 20, OpenFiles: 1024,
		Wall: time.Minute, OutputBytes: 1 << 20,
	}
}

// Start makes a sandbox with a new workspace on disk.
func (e *Env) Start(ctx context.Context, options ...Option) (*Box, error) {
	spec := e.NewSpec(options)
	ws, err := e.Workspaces.Create(ctx, spec.ID, spec.Limits)
	if err != nil {
		return nil, fmt.Errorf("create workspace: %w", err)
	}
	if err := ws.Attach(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("attach workspace: %w", err), e.Workspaces.Remove(spec.ID))
	}
	spec.Workspace = ws
	return e.create(ctx, spec)
}

// StartBlank makes a sandbox whose files lie in memory.
func (e *Env) StartBlank(ctx context.Context, options ...Option) (*Box, error) {
	return e.create(ctx, e.NewSpec(options))
}

// Restart makes a new sandbox on the workspace of one that has ended.
func (e *Env) Restart(ctx context.Context, old *Box) (*Box, error) {
	spec := old.Spec
	spec.ID = "s" + strconv.FormatInt(sequence.Add(1), 10)
	return e.create(ctx, spec)
}

// NewSpec is a spec with small limits and an id of its own; it has no workspace.
func (e *Env) NewSpec(options []Option) sandbox.Spec {
	spec := sandbox.Spec{
		ID:     "s" + strconv.FormatInt(sequence.Add(1), 10),
		RootFS: e.RootFS, Limits: limits(),
	}
	for _, option := range options {
		option(&spec)
	}
	return spec
}

// Restore continues a sandbox that was written to dir, on its workspace.
func (e *Env) Restore(ctx context.Context, old *Box, dir string, options ...Option) (*Box, error) {
	restorer, ok := e.Driver.(sandbox.Restorer)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	spec := old.Spec
	spec.ID = "s" + strconv.FormatInt(sequence.Add(1), 10)
	for _, option := range options {
		option(&spec)
	}
	sb, err := restorer.Restore(ctx, spec, dir)
	if err != nil {
		return nil, err
	}
	b := &Box{Sandbox: sb, env: e, Spec: spec}
	e.mu.Lock()
	e.boxes = append(e.boxes, b)
	e.mu.Unlock()
	return b, nil
}

func (e *Env) create(ctx context.Context, spec sandbox.Spec) (*Box, error) {
	sb, err := e.Driver.Create(ctx, spec)
	b := &Box{Sandbox: sb, env: e, Spec: spec}
	if err != nil {
		return nil, errors.Join(err, b.drop(ctx))
	}
	e.mu.Lock()
	e.boxes = append(e.boxes, b)
	e.mu.Unlock()
	return b, nil
}

// DestroyAll ends every sandbox of this Env and removes its workspace.
func (e *Env) DestroyAll(ctx context.Context) error {
	e.mu.Lock()
	boxes := e.boxes
	e.boxes = nil
	e.mu.Unlock()
	var errs []error
	for _, b := range boxes {
		errs = append(errs, b.Destroy(ctx))
	}
	// Two boxes may share a workspace, so the disks go last.
	for _, b := range boxes {
		errs = append(errs, b.drop(ctx))
	}
	return errors.Join(errs...)
}
