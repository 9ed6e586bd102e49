//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/server"
)

// rights is what this process may do, as far as it matters for sandboxes.
type rights struct {
	uid     int
	missing []string // capabilities that sandboxes need and this process lacks
}

func ownRights() rights {
	missing, err := sandbox.MissingRights()
	if err != nil {
		missing = nil // no /proc: nothing is known to be missing
	}
	return rights{uid: os.Geteuid(), missing: missing}
}

// adviceFor says what to do about an error of this machine; empty if there is nothing to say beyond it.
func adviceFor(err error) string {
	if !errors.Is(err, server.ErrNoSandbox) {
		return ""
	}
	if advice := ownRights().advice(os.Args); advice != "" {
		return advice
	}
	return "run: airlock doctor   (it names what is missing and the line to type)"
}

// advice names the right that is missing and the next line to type, which is args again in the way that works; empty if no
// right is missing.
func (r rights) advice(args []string) string {
	switch {
	case r.uid != 0 && len(r.missing) > 0:
		return fmt.Sprintf("sandboxes need root: user namespaces with ids of their own, loop devices and cgroups; this is uid %d\n"+
			"run: sudo -E %s\nor serve as the user of deploy/airlock.service, which has %s and no more", r.uid, shellLine(args), strings.Join(r.missing, ", "))
	case len(r.missing) > 0:
		return fmt.Sprintf("sandboxes need all of root's capabilities; this root lacks %s, as in a container\n"+
			"run it on the host, or start the container with: docker run --privileged --cgroupns=host", strings.Join(r.missing, ", "))
	}
	return ""
}

// shellLine writes a command so that a shell reads it as it was.
func shellLine(args []string) string {
	quoted := make([]string, len(args))
	for i, a := range args {
		quoted[i] = a
		if a == "" || strings.ContainsFunc(a, func(r rune) bool { return !strings.ContainsRune(plainInShell, r) }) {
			quoted[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
	}
	return strings.Join(quoted, " ")
}

const plainInShell = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=,@%+"
