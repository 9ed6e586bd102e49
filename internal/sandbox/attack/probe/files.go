package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// errnoOf is the errno below an error of package os, or the error itself.
func errnoOf(err error) error {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno
	}
	return err
}

// manyFiles makes empty files until that fails: files DIR COUNT.
func manyFiles(args []string) error {
	count, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	for n := range count {
		fd, err := unix.Open(filepath.Join(args[0], strconv.Itoa(n)), unix.O_CREAT|unix.O_WRONLY, 0o600)
		if err != nil {
			say(answer{Name: "files", Value: int64(n)}.with(err))
			return nil
		}
		_ = unix.Close(fd)
	}
	say(answer{Name: "files", Value: int64(count)})
	return nil
}

// deepFolders nests folders far beyond PATH_MAX: deep DIR LEVELS.
func deepFolders(args []string) error {
	levels, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	if err := unix.Chdir(args[0]); err != nil {
		return err
	}
	for n := range levels {
		err := unix.Mkdir("d", 0o700)
		if err == nil {
			err = unix.Chdir("d")
		}
		if err != nil {
			say(answer{Name: "deep", Value: int64(n)}.with(err))
			return nil
		}
	}
	say(answer{Name: "deep", Value: int64(levels)})
	return nil
}

// sparse makes files that look larger than they are, and tries to reserve
// more than there is: sparse DIR.
func sparse(args []string) error {
	open := func(name string) (int, error) {
		return unix.Open(filepath.Join(args[0], name), unix.O_CREAT|unix.O_RDWR, 0o644)
	}
	fd, err := open("exa")
	if err != nil {
		return err
	}
	say(answer{Name: "truncate 1 EiB"}.with(unix.Ftruncate(fd, 1<<60)))
	fd, err = open("apparent")
	if err != nil {
		return err
	}
	// The limit on one file is lifted by nothing; this stays below it.
	say(answer{Name: "truncate 1 GiB"}.with(unix.Ftruncate(fd, 1<<30)))
	fd, err = open("reserved")
	if err != nil {
		return err
	}
	say(answer{Name: "fallocate 1 GiB"}.with(unix.Fallocate(fd, 0, 0, 1<<30)))
	say(answer{Name: "punch hole"}.with(unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 1<<20)))
	return nil
}

// openPaths opens each path for reading and shows the beginning of it.
func openPaths(paths []string) error {
	for _, path := range paths {
		f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			say(answer{Name: path}.with(errnoOf(err)))
			continue
		}
		result := answer{Name: path}
		if info, err := f.Stat(); err == nil && info.IsDir() {
			names, err := f.Readdirnames(100)
			result.Text, result.Value = strings.Join(names, " "), int64(len(names))
			result = result.with(ignoreEOF(err))
		} else {
			b := make([]byte, 4096)
			n, err := f.Read(b)
			result.Text, result.Value = string(b[:max(n, 0)]), int64(n)
			result = result.with(errnoOf(ignoreEOF(err)))
		}
		_ = f.Close()
		say(result)
	}
	return nil
}

func ignoreEOF(err error) error {
	if err != nil && err.Error() == "EOF" {
		return nil
	}
	return err
}

// writePaths opens each path for writing and writes one line.
func writePaths(paths []string) error {
	for _, path := range paths {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err == nil {
			_, err = f.WriteString("1\n")
			_ = f.Close()
		}
		say(answer{Name: path}.with(errnoOf(err)))
	}
	return nil
}

// makeNodes tries to make the device nodes that give a machine away.
func makeNodes(args []string) error {
	nodes := []struct {
		name         string
		mode         uint32
		major, minor uint32
	}{
		{"mem", unix.S_IFCHR, 1, 1},
		{"null", unix.S_IFCHR, 1, 3},
		{"kvm", unix.S_IFCHR, 10, 232},
		{"fuse", unix.S_IFCHR, 10, 229},
		{"loop0", unix.S_IFBLK, 7, 0},
		{"vda", unix.S_IFBLK, 254, 0},
		{"sda", unix.S_IFBLK, 8, 0},
	}
	for _, n := range nodes {
		path := filepath.Join(args[0], "node-"+n.name)
		err := unix.Mknod(path, n.mode|0o666, int(unix.Mkdev(n.major, n.minor)))
		say(answer{Name: n.name}.with(err))
	}
	return nil
}

// makeSpecial leaves in a folder everything that is not a regular file, and
// one that is: special DIR.
func makeSpecial(args []string) error {
	in := func(name string) string { return filepath.Join(args[0], name) }
	steps := []struct {
		name string
		run  func() error
	}{
		{"fifo", func() error { return unix.Mkfifo(in("fifo"), 0o666) }},
		{"socket", func() error {
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
			if err != nil {
				return err
			}
			return unix.Bind(fd, &unix.SockaddrUnix{Name: in("socket")})
		}},
		{"folder", func() error { return os.Mkdir(in("folder"), 0o777) }},
		{"setuid", func() error {
			if err := os.WriteFile(in("setuid"), []byte("regular"), 0o755); err != nil {
				return err
			}
			return unix.Chmod(in("setuid"), 0o6755)
		}},
		{"link-shadow", func() error { return os.Symlink("/etc/shadow", in("link-shadow")) }},
		{"link-root", func() error { return os.Symlink("/proc/self/root/etc/shadow", in("link-root")) }},
		{"link-init", func() error { return os.Symlink("/proc/1/root/etc/shadow", in("link-init")) }},
		{"link-fd", func() error { return os.Symlink("/proc/self/fd/3", in("link-fd")) }},
		{"link-device", func() error { return os.Symlink("/dev/zero", in("link-device")) }},
		{"regular", func() error { return os.WriteFile(in("regular"), []byte("regular"), 0o644) }},
	}
	for _, s := range steps {
		say(answer{Name: s.name}.with(errnoOf(s.run())))
	}
	return nil
}

// link tries hard links to files that are not the code's: link DIR TARGET...
func link(args []string) error {
	for i, target := range args[1:] {
		say(answer{Name: target}.with(unix.Link(target, filepath.Join(args[0], fmt.Sprintf("hard-%d", i)))))
	}
	return nil
}

// race swaps, as fast as it can, a regular file with a link to a file that
// the code may not read, and a folder with a link to /etc: race DIR SECONDS.
func race(args []string) error {
	seconds, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	in := func(name string) string { return filepath.Join(args[0], name) }
	if err := os.WriteFile(in("file"), []byte("legal"), 0o644); err != nil {
		return err
	}
	if err := os.Symlink("/etc/shadow", in("file-link")); err != nil {
		return err
	}
	if err := os.Mkdir(in("sub"), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(in("sub/shadow"), []byte("legal"), 0o644); err != nil {
		return err
	}
	if err := os.Symlink("/etc", in("sub-link")); err != nil {
		return err
	}
	say(answer{Name: "racing"})
	swaps := int64(0)
	for end := time.Now().Add(time.Duration(seconds) * time.Second); time.Now().Before(end); swaps++ {
		err1 := unix.Renameat2(unix.AT_FDCWD, in("file"), unix.AT_FDCWD, in("file-link"), unix.RENAME_EXCHANGE)
		err2 := unix.Renameat2(unix.AT_FDCWD, in("sub"), unix.AT_FDCWD, in("sub-link"), unix.RENAME_EXCHANGE)
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
	}
	say(answer{Name: "raced", Value: swaps})
	return nil
}

// oddNames are file names that break programs which interpret them.
var oddNames = []string{
	"new\nline", "-rf", strings.Repeat("n", 255), "bad\xff\xfeutf8", " ", "...", "con", "nul.txt", "a;id", "$(id)",
	"`id`", "quote\"'", "back\\slash", "\u202egnp.exe", "раypal", "e\u0301", "tab\tname", "esc\x1b[31m",
}

// names makes files with odd names: names DIR.
func names(args []string) error {
	for _, name := range oddNames {
		err := os.WriteFile(filepath.Join(args[0], name), []byte(name), 0o644)
		say(answer{Name: strconv.QuoteToASCII(name)}.with(errnoOf(err)))
	}
	return nil
}

// dirty writes one file again and again and flushes it after each piece: dirty DIR MIB TIMES.
func dirty(args []string) error {
	size, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	times, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	fd, err := unix.Open(filepath.Join(args[0], "dirty"), unix.O_CREAT|unix.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	piece := make([]byte, 1<<20)
	for n := range times {
		for at := range size {
			piece[0] = byte(n)
			_, err := unix.Pwrite(fd, piece, int64(at)<<20)
			if err == nil && at%4 == 3 {
				err = unix.Fsync(fd)
			}
			if err != nil {
				say(answer{Name: "dirty", Value: int64(n)}.with(err))
				return nil
			}
		}
		say(answer{Name: "round", Value: int64(n)})
	}
	say(answer{Name: "dirty", Value: int64(times)})
	return nil
}

// missing asks for names that do not exist, which a kernel remembers, for a while: missing DIR FROM TO SECONDS.
func missing(args []string) error {
	var bounds [3]int
	for n := range bounds {
		var err error
		if bounds[n], err = strconv.Atoi(args[n+1]); err != nil {
			return err
		}
	}
	end := time.Now().Add(time.Duration(bounds[2]) * time.Second)
	asked := int64(0)
	var st unix.Stat_t
	for n := bounds[0]; n < bounds[1] && time.Now().Before(end); n++ {
		path := filepath.Join(args[0], "missing-"+strconv.Itoa(n))
		if err := unix.Lstat(path, &st); !errors.Is(err, unix.ENOENT) {
			say(answer{Name: "failed", Value: asked}.with(err))
			return nil
		}
		asked++
	}
	say(answer{Name: "missing", Value: asked})
	return nil
}
