package main

import (
	"encoding/binary"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// dnAccess is DN_ACCESS of linux/fcntl.h.
const dnAccess = 1

// watch says which files anybody opens in folders that all sandboxes share, until one called stop appears: watch STOP DIR...
func watch(args []string) error {
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK)
	answers := []answer{answer{Name: "inotify"}.with(err)}
	for _, dir := range args[1:] {
		d, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			return err
		}
		_, err = unix.FcntlInt(uintptr(d), unix.F_NOTIFY, dnAccess)
		answers = append(answers, answer{Name: "dnotify " + dir}.with(err))
		if fd >= 0 {
			if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_OPEN|unix.IN_ACCESS); err != nil {
				return err
			}
		}
	}
	// The first line says that the watches are set.
	for _, a := range answers {
		say(a)
	}
	buf := make([]byte, 1<<16)
	var st unix.Stat_t
	for unix.Stat(args[0], &st) != nil {
		n, err := unix.Read(fd, buf)
		if err != nil {
			// There is nothing to wait for where watching is refused.
			<-time.After(20 * time.Millisecond)
			continue
		}
		for i := 0; i+unix.SizeofInotifyEvent <= n; {
			length := int(binary.NativeEndian.Uint32(buf[i+12:]))
			name := strings.TrimRight(string(buf[i+16:i+16+length]), "\x00")
			say(answer{Name: "seen", Text: name})
			i += unix.SizeofInotifyEvent + length
		}
	}
	return nil
}
