package sandbox

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// Snapshots keeps what ran in sandboxes that were put away: a folder per id, which a Checkpointer wrote. A snapshot goes
// with the workspace as it was then: it can be taken once Seal has said what the image looked like after its detaching,
// while it still looks so, and once only. Safe for concurrent use; of one id only one is kept at a time.
type Snapshots struct {
	Dir string
	// Max bounds all of them together, in bytes on disk; the oldest of the owner who has most make room. 0 = none is kept.
	Max int64

	room sync.Mutex // held while room is made
	due  int64      // bytes promised to those that are being written; guarded by room
}

// What a crash leaves begins with one of these: half-written and taken snapshots.
const (
	snapshotNew  = ".new-"
	snapshotGone = ".gone-"
)

// Files in a snapshot beside what was written: one tells its workspace, one whose it is.
const (
	sealName  = "workspace"
	ownerName = "owner"
)

// errNoSpace is the answer when a snapshot is larger than all may be together.
var errNoSpace = errors.New("it is larger than the space for snapshots")

// errShare is the answer when others would have to make room who all have less.
var errShare = errors.New("its owner has more of the space for snapshots than anybody else")

// Keep has write fill an empty folder, and keeps it under the id. An earlier one goes in every case. need is about how much
// it will take, in bytes. Nobody loses one to an owner who has more. An error keeps nothing.
func (s *Snapshots) Keep(id, owner string, need int64, write func(dir string) error) (err error) {
	if err := ValidID(id); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("keep snapshot %s: %w", id, err)
		}
	}()
	if err := s.Remove(id); err != nil {
		return err
	}
	leave, err := s.makeRoom(owner, need)
	if err != nil {
		return err
	}
	defer leave()
	half := filepath.Join(s.Dir, snapshotNew+id)
	err = os.RemoveAll(half)
	if err == nil {
		err = os.MkdirAll(half, 0o700)
	}
	if err == nil {
		err = write(half)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(half, ownerName), []byte(owner), 0o600)
	}
	if err == nil && folderSize(half) > s.Max {
		err = errNoSpace
	}
	if err == nil {
		err = os.Rename(half, s.path(id))
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(half))
	}
	return nil
}

// makeRoom removes snapshots until need fits beside the rest.
func (s *Snapshots) makeRoom(owner string, need int64) (leave func(), err error) {
	s.room.Lock()
	defer s.room.Unlock()
	if need > s.Max {
		return nil, errNoSpace
	}
	ids, err := s.List()
	if err != nil {
		return nil, err
	}
	slices.SortFunc(ids, func(a, b string) int { return cmp.Or(s.age(a).Compare(s.age(b)), cmp.Compare(a, b)) })
	sum, shares := s.due+need, map[string]int64{owner: need}
	for _, id := range ids {
		sum += s.Size(id)
		shares[s.owner(id)] += s.Size(id)
	}
	for sum > s.Max {
		n := s.mostOf(ids, shares)
		if n < 0 {
			return nil, errNoSpace
		}
		size, of := s.Size(ids[n]), s.owner(ids[n])
		if shares[of] < shares[owner] {
			return nil, errShare
		}
		if err := s.Remove(ids[n]); err != nil {
			return nil, err
		}
		ids = slices.Delete(ids, n, n+1)
		sum, shares[of] = sum-size, shares[of]-size
	}
	s.due += need
	return func() {
		s.room.Lock()
		defer s.room.Unlock()
		s.due -= need
	}, nil
}

// mostOf finds the oldest snapshot of the owner who has most; ids are sorted by age. -1 = there is none.
func (s *Snapshots) mostOf(ids []string, shares map[string]int64) int {
	found := -1
	for n, id := range ids {
		if found < 0 || shares[s.owner(id)] > shares[s.owner(ids[found])] {
			found = n
		}
	}
	return found
}

// owner is whose a snapshot is; it was written by us, not by what is in the snapshot.
func (s *Snapshots) owner(id string) string {
	name, _ := os.ReadFile(filepath.Join(s.path(id), ownerName)) // one without, or one that goes, is nobody's
	return string(name)
}

func (s *Snapshots) age(id string) time.Time {
	info, err := os.Stat(s.path(id))
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// Seal says what the workspace of a snapshot looks like, see Workspaces.Stamp; nothing is done if there is no snapshot.
func (s *Snapshots) Seal(id, stamp string) error {
	if err := ValidID(id); err != nil {
		return err
	}
	err := os.WriteFile(filepath.Join(s.path(id), sealName), []byte(stamp), 0o600)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("seal snapshot %s: %w", id, err)
	}
	return nil
}

// Take gives the caller the folder of an id, to be removed when it is not needed any more. No later Take gives it again,
// even after a crash of the host. os.ErrNotExist if there is none; ErrSnapshot, and there is none from then on, if it goes
// with another state of the workspace.
func (s *Snapshots) Take(id, stamp string) (dir string, err error) {
	if dir, err = s.away(id); err != nil {
		return "", err
	}
	sealed, err := os.ReadFile(filepath.Join(dir, sealName))
	if err == nil && string(sealed) != stamp {
		err = errors.New("the workspace has changed since")
	}
	if err == nil {
		err = syncFolder(s.Dir)
	}
	if err != nil {
		return "", errors.Join(fmt.Errorf("snapshot of %s: %w: %w", id, ErrSnapshot, err), os.RemoveAll(dir))
	}
	return dir, nil
}

// away takes a snapshot out of the sight of all others; of two who want it one gets it.
func (s *Snapshots) away(id string) (dir string, err error) {
	if err := ValidID(id); err != nil {
		return "", err
	}
	dir = filepath.Join(s.Dir, snapshotGone+id+"-"+rand.Text())
	if err := os.Rename(s.path(id), dir); err != nil {
		return "", fmt.Errorf("snapshot of %s: %w", id, err)
	}
	return dir, nil
}

// Remove drops the snapshot of an id; a missing one is no error.
func (s *Snapshots) Remove(id string) error {
	dir, err := s.away(id)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// List names all snapshots, sorted.
func (s *Snapshots) List() ([]string, error) {
	entries, err := os.ReadDir(s.Dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	var ids []string
	for _, e := range entries {
		if ValidID(e.Name()) == nil {
			ids = append(ids, e.Name())
		}
	}
	return ids, nil
}

// Size is what the snapshot of an id takes on disk; 0 if there is none.
func (s *Snapshots) Size(id string) int64 {
	if ValidID(id) != nil {
		return 0
	}
	return folderSize(s.path(id))
}

// Sweep removes what a crash left of snapshots that were being written or continued, or that it kept from being sealed.
// Nobody else may use the folder meanwhile.
func (s *Snapshots) Sweep() error {
	entries, err := os.ReadDir(s.Dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("sweep snapshots: %w", err)
	}
	var errs []error
	for _, e := range entries {
		_, unsealed := os.Stat(filepath.Join(s.path(e.Name()), sealName))
		if strings.HasPrefix(e.Name(), snapshotNew) || strings.HasPrefix(e.Name(), snapshotGone) || errors.Is(unsealed, os.ErrNotExist) {
			errs = append(errs, os.RemoveAll(filepath.Join(s.Dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}

func (s *Snapshots) path(id string) string { return filepath.Join(s.Dir, id) }

// folderSize sums what the files below a folder take; files that go meanwhile count nothing.
func folderSize(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			n += diskSize(path)
		}
		return nil
	})
	return n
}
