package serve

import (
	"encoding/json"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
)

func itoa(n int) string { return strconv.Itoa(n) }

// maxDepth bounds a listing; each level holds one descriptor.
const maxDepth = 64

// lister collects entries, folders before their content.
type lister struct {
	k     *call
	limit int64
	found int64
	sent  int64
	full  bool
	buf   []byte
}

// list sends entries as JSON values in data frames.
func list(k *call, f *guest.FileSpec, p place) (*guest.Frame, error) {
	l := &lister{k: k, limit: f.Max}
	err := as(f.AsCode, func() error {
		fd, err := p.open(unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NONBLOCK)
		if err != nil {
			return err
		}
		return l.walk(fd, strings.TrimRight(p.path, "/"), min(f.Depth, maxDepth))
	})
	if err != nil {
		return nil, err
	}
	l.flush()
	if l.full {
		return nil, special("the folder has more entries than were asked for", guest.ErrTooLarge)
	}
	return &guest.Frame{Type: guest.TypeOK, N: l.sent}, nil
}

// walk lists an open folder, which it closes. A folder that vanishes or is
// closed to the code meanwhile is listed without content.
func (l *lister) walk(fd int, dir string, depth int) error {
	d := os.NewFile(uintptr(fd), "dir")
	defer d.Close()
	if depth <= 0 {
		return nil
	}
	names, err := l.names(d)
	if err != nil {
		return err
	}
	for _, name := range names {
		if l.full || l.k.isCanceled() {
			return nil
		}
		var st unix.Stat_t
		if err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			continue
		}
		e := entryOf(dir+"/"+name, &st)
		if !l.add(e) {
			return nil
		}
		if e.Type != guest.TypeDir || depth == 1 {
			continue
		}
		sub, err := openat2(fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0, unix.RESOLVE_NO_SYMLINKS)
		if err != nil {
			continue
		}
		if err := l.walk(sub, dir+"/"+name, depth-1); err != nil {
			return err
		}
	}
	return nil
}

// names reads no more names than can still be sent, one to see that there are more.
func (l *lister) names(d *os.File) ([]string, error) {
	var names []string
	for int64(len(names)) <= l.limit-l.found {
		part, err := d.Readdirnames(1024)
		names = append(names, part...)
		if isEOF(err) || (err == nil && len(part) == 0) {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	slices.Sort(names)
	return names, nil
}

func (l *lister) add(e *guest.Entry) bool {
	if l.found >= l.limit {
		l.full = true
		return false
	}
	l.found++
	line, err := json.Marshal(e)
	if err != nil {
		return false // an Entry holds nothing that cannot be encoded
	}
	l.buf = append(l.buf, line...)
	if len(l.buf) >= guest.MaxData/2 {
		l.flush()
	}
	return true
}

func (l *lister) flush() {
	l.k.send(0, l.buf)
	l.sent += int64(len(l.buf))
	l.buf = l.buf[:0]
}
