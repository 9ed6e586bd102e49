// Command probe is the hostile program of the escape suite. It is built once
// for a run, static, put into a sandbox, and tries there what code must not
// be able to do. It says what the kernel answered and judges nothing: every
// answer is one line of JSON on standard output.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// answer is one line of output.
type answer struct {
	Name  string `json:"name"`
	Errno string `json:"errno,omitempty"`
	Num   int    `json:"num,omitempty"`
	Value int64  `json:"value,omitempty"`
	Text  string `json:"text,omitempty"`
}

var commands = map[string]func(args []string) error{
	"call":    call,
	"calls":   calls,
	"sockets": sockets,
	"clones":  clones,
	"tty":     ttys,
	"fds":     fds,
	"eat":     eat,
	"memfd":   fillMemfd,
	"fill":    fill,
	"files":   manyFiles,
	"deep":    deepFolders,
	"dirty":   dirty,
	"missing": missing,
	"orphans": orphans,
	"daemons": daemons,
	"spin":    spin,
	"peek":    peek,
	"open":    openPaths,
	"write":   writePaths,
	"connect": connect,
	"unix":    connectUnix,
	"ifaces":  ifaces,
	"mknod":   makeNodes,
	"special": makeSpecial,
	"race":    race,
	"sparse":  sparse,
	"link":    link,
	"watch":   watch,
	"who":     who,
	"fdlist":  fdList,
	"frames":  frames,
	"crash":   crash,
	"stop":    stop,
	"kill":    kills,
	"names":   names,
	"setuid":  becomeRoot,
	"shm":     sharedMemory,
	"exec":    execWith,
}

func main() {
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "probe: unknown command")
		os.Exit(64)
	}
	// The runtime would end the program at the first write beyond the limit.
	signal.Ignore(syscall.SIGXFSZ)
	if err := commands[os.Args[1]](os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(65)
	}
}

// say writes one answer at once, so that the last line before a kill tells
// which attempt was answered with it.
func say(a answer) {
	b, err := json.Marshal(a)
	if err != nil {
		panic(err)
	}
	// A closed pipe ends the program by SIGPIPE; nothing is left to do.
	_, _ = os.Stdout.Write(append(b, '\n'))
}
