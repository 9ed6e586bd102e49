package main

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// eat takes memory and touches every page of it: eat MIB.
func eat(args []string) error {
	mib, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	say(answer{Name: "oom_score_adj", Text: string(readSome("/proc/self/oom_score_adj", 32))})
	for n := range mib {
		b, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			say(answer{Name: "eat", Value: int64(n)}.with(err))
			return nil
		}
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
	}
	say(answer{Name: "eat", Value: int64(mib)})
	return nil
}

// fillMemfd writes into anonymous files, which no mount limits: memfd MIB.
func fillMemfd(args []string) error {
	mib, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	block := make([]byte, 1<<20)
	for n := 0; n < mib; {
		fd, err := unix.MemfdCreate("probe", 0)
		if err != nil {
			say(answer{Name: "memfd", Value: int64(n)}.with(err))
			return nil
		}
		for range 64 {
			if _, err := unix.Write(fd, block); err != nil {
				say(answer{Name: "memfd", Value: int64(n)}.with(err))
				return nil
			}
			n++
		}
	}
	say(answer{Name: "memfd", Value: int64(mib)})
	return nil
}

// sharedMemory makes System V segments and queues: shm MIB.
func sharedMemory(args []string) error {
	mib, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	for n := 0; n < mib; n += 16 {
		id, err := unix.SysvShmGet(unix.IPC_PRIVATE, 16<<20, unix.IPC_CREAT|0o600)
		if err != nil {
			say(answer{Name: "shm", Value: int64(n)}.with(err))
			return nil
		}
		b, err := unix.SysvShmAttach(id, 0, 0)
		if err != nil {
			say(answer{Name: "shm", Value: int64(n)}.with(err))
			return nil
		}
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
	}
	say(answer{Name: "shm", Value: int64(mib)})
	return nil
}

// fill writes into one file until that fails: fill PATH MIB.
func fill(args []string) error {
	mib, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	f, err := os.Create(args[0])
	if err != nil {
		say(answer{Name: "create"}.with(errnoOf(err)))
		return nil
	}
	block := make([]byte, 1<<20)
	for i := range block {
		block[i] = byte(i)
	}
	written := int64(0)
	for range mib {
		n, err := f.Write(block)
		written += int64(n)
		if err != nil {
			say(answer{Name: "write", Value: written}.with(errnoOf(err)))
			return nil
		}
	}
	if err := f.Sync(); err != nil {
		say(answer{Name: "sync", Value: written}.with(errnoOf(err)))
		return nil
	}
	say(answer{Name: "write", Value: written})
	return nil
}

// fds opens one kind of object until that fails: fds KIND COUNT.
func fds(args []string) error {
	count, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	open, known := openers[args[0]]
	if !known {
		return fmt.Errorf("unknown kind %q", args[0])
	}
	for n := range count {
		if err := open(); err != nil {
			say(answer{Name: args[0], Value: int64(n)}.with(errnoOf(err)))
			return nil
		}
	}
	say(answer{Name: args[0], Value: int64(count)})
	return nil
}

var openers = map[string]func() error{
	"file": func() error { _, err := unix.Open("/dev/null", unix.O_RDONLY, 0); return err },
	"socket": func() error {
		_, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		return err
	},
	"pipe":    func() error { var p [2]int; return unix.Pipe2(p[:], 0) },
	"inotify": func() error { _, err := unix.InotifyInit1(0); return err },
	"epoll":   func() error { _, err := unix.EpollCreate1(0); return err },
	"timerfd": func() error { _, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, 0); return err },
	"eventfd": func() error { _, err := unix.Eventfd(0, 0); return err },
	"memfd":   func() error { _, err := unix.MemfdCreate("probe", 0); return err },
	"signalfd": func() error {
		_, err := unix.Signalfd(-1, &unix.Sigset_t{}, 0)
		return err
	},
}
