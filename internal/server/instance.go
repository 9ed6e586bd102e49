package server

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/google/renameio/v2"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
)

// dataDir is the folder of one instance.
//
//	lock         held exclusively while a server runs on the folder
//	instance     the instance id, made once
//	admin.key    the admin key
//	server.json  where the running server answers
//	driver       the sandbox driver that served last
//	airlock.db   the database, unless another is set
//	blobs/       the bytes of files, unless another place is set
//	ballast      room that is given up when the disk is full
//	workspaces/  one image per container
//	snapshots/   variables of sandboxes that were put away, on gVisor
//	bases/       warm sandboxes for the next pool, on gVisor
//	run/         runtime files of sandboxes, emptied at each start
type dataDir struct {
	path     string
	instance string
	lock     io.Closer
	name     io.Closer // nil where the host-wide folder cannot be written
}

func (d *dataDir) file(name string) string { return filepath.Join(d.path, name) }

// openData makes the folder, takes its lock and reads or makes the instance id.
func openData(ctx context.Context, path string) (*dataDir, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	d := &dataDir{path: abs}
	if err := os.MkdirAll(abs, 0o700); err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	d.lock, err = sandbox.LockFileOfDying(ctx, d.file("lock"))
	if errors.Is(err, sandbox.ErrLocked) {
		return nil, fmt.Errorf("data folder %s is in use by another server", abs)
	}
	if err != nil {
		return nil, fmt.Errorf("lock data folder: %w", err)
	}
	if d.instance, err = d.readInstance(); err != nil {
		return nil, errors.Join(err, d.lock.Close())
	}
	if err := d.claimInstance(ctx); err != nil {
		return nil, errors.Join(err, d.lock.Close())
	}
	for _, sub := range []string{"workspaces", "run"} {
		if err := os.MkdirAll(d.file(sub), 0o700); err != nil {
			return nil, errors.Join(fmt.Errorf("data folder: %w", err), d.lock.Close())
		}
	}
	return d, nil
}

// The id becomes part of cgroup and folder names.
var instanceForm = regexp.MustCompile(`^[a-z0-9]{8,32}$`)

func (d *dataDir) readInstance() (string, error) {
	b, err := os.ReadFile(d.file("instance"))
	if err == nil {
		id := strings.TrimSpace(string(b))
		if !instanceForm.MatchString(id) {
			return "", fmt.Errorf("%s does not hold an instance id", d.file("instance"))
		}
		return id, nil
	}
	if !isMissing(err) {
		return "", fmt.Errorf("read instance id: %w", err)
	}
	id := strings.ToLower(rand.Text()[:12])
	if err := renameio.WriteFile(d.file("instance"), []byte(id+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("write instance id: %w", err)
	}
	return id, nil
}

// lastDriver is the sandbox driver that served this folder last; empty = none yet.
func (d *dataDir) lastDriver() (string, error) {
	b, err := os.ReadFile(d.file("driver"))
	if isMissing(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the last sandbox driver: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// noteDriver has lastDriver say this from now on.
func (d *dataDir) noteDriver(name string) error {
	if last, err := d.lastDriver(); err == nil && last == name {
		return nil
	}
	if err := renameio.WriteFile(d.file("driver"), []byte(name+"\n"), 0o600); err != nil {
		return fmt.Errorf("note the sandbox driver: %w", err)
	}
	return nil
}

// instancesDir holds one lock per instance id that serves on this host.
const instancesDir = "/run/airlock/instances"

// claimInstance refuses a copied data folder beside its original: both would have one id, and each would sweep away the
// other's sandboxes. A user who may not write the host-wide folder cannot touch another's cgroups either.
func (d *dataDir) claimInstance(ctx context.Context) error {
	if err := os.MkdirAll(instancesDir, 0o755); err != nil {
		return nil //nolint:nilerr // see above
	}
	l, err := sandbox.LockFileOfDying(ctx, filepath.Join(instancesDir, d.instance))
	if errors.Is(err, sandbox.ErrLocked) {
		return fmt.Errorf("data folder %s is a copy of one that another server uses (both are instance %s): "+
			"delete %s to make it a folder of its own", d.path, d.instance, d.file("instance"))
	}
	if err == nil {
		d.name = l
	}
	return nil
}

// runningServer is the content of server.json; client commands on the same machine read it.
type runningServer struct {
	URL      string `json:"url"`
	AdminURL string `json:"admin_url"`
	PID      int    `json:"pid"`
	Instance string `json:"instance"`
}

func (d *dataDir) announce(url, adminURL string) error {
	b, err := json.Marshal(runningServer{url, adminURL, os.Getpid(), d.instance})
	if err != nil {
		return fmt.Errorf("encode server.json: %w", err)
	}
	if err := renameio.WriteFile(d.file("server.json"), append(b, '\n'), 0o600); err != nil {
		return fmt.Errorf("write server.json: %w", err)
	}
	return nil
}

// withdraw removes server.json: nothing answers there any more.
func (d *dataDir) withdraw() error {
	if err := os.Remove(d.file("server.json")); err != nil && !isMissing(err) {
		return fmt.Errorf("remove server.json: %w", err)
	}
	return nil
}

func (d *dataDir) close() error {
	err := d.withdraw()
	if d.name != nil {
		err = errors.Join(err, os.Remove(filepath.Join(instancesDir, d.instance)), d.name.Close())
	}
	return errors.Join(err, d.lock.Close())
}
