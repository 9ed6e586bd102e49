package serve

import (
	"encoding/hex"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
)

// A put that ends with its guest, killed with the server or for lack of memory, would leave its temporary file in the
// workspace for good. So the guest notes each before it makes it: a link in the folder above the inputs, where code
// cannot write, points to the file. The next guest on the same disk follows the notes that are left.
const (
	tempPrefix = ".airlock-"
	tempSuffix = ".tmp"
	noteSuffix = ".put"
)

var noteFolder = path.Dir(guest.InputDir)

// promise names the temporary file and notes it. The name cannot be guessed, so that code cannot sit on it.
func (t *target) promise() error {
	// The kernel is asked because crypto/rand would cost each guest its start-up checks.
	var b [16]byte
	if _, err := unix.Getrandom(b[:], 0); err != nil {
		return err
	}
	stem := tempPrefix + hex.EncodeToString(b[:])
	t.temp = stem + tempSuffix
	note := path.Join(noteFolder, stem+noteSuffix)
	if err := unix.Symlink(path.Join(t.at, t.temp), note); err != nil {
		t.temp = ""
		return err
	}
	t.note = note
	return nil
}

// keepPromise takes the note back once there is no temporary file any more.
func (t *target) keepPromise() {
	if t.note != "" && t.temp == "" {
		_ = unix.Unlink(t.note) // one that stays is followed in vain by the next guest, and removed
	}
}

// clearPuts removes what puts have left that were cut off. It is best effort: a file that is not found where it was
// promised was moved by the code, whose file it is then.
func clearPuts() {
	names, err := noted()
	if err != nil {
		return // there is no such folder, and nothing was ever put
	}
	for _, name := range names {
		note := path.Join(noteFolder, name)
		temp, err := os.Readlink(note)
		if err == nil && path.Base(temp) == strings.TrimSuffix(name, noteSuffix)+tempSuffix {
			_ = removeTemp(temp)
		}
		_ = unix.Unlink(note)
	}
}

func noted() (names []string, err error) {
	d, err := os.Open(noteFolder)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	all, err := d.Readdirnames(-1)
	for _, name := range all {
		if strings.HasPrefix(name, tempPrefix) && strings.HasSuffix(name, noteSuffix) {
			names = append(names, name)
		}
	}
	return names, err
}

// removeTemp goes where the put went: with the code's rights, or through no link.
func removeTemp(temp string) error {
	own := strings.HasPrefix(temp, noteFolder+"/")
	return as(!own, func() error {
		dir, name, err := place{temp, own}.parent()
		if err != nil {
			return err
		}
		defer unix.Close(dir)
		return unix.Unlinkat(dir, name, 0)
	})
}
