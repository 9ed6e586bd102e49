package serve

import (
	"bytes"
	"os"
	"strings"

	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
)

// defaultPath is what commands find, in the order of a Debian login shell.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// baseEnv is all that code sees of an environment unless the host adds to it.
// The second half keeps programs from asking a person.
var baseEnv = []string{
	"PATH=" + defaultPath, "HOME=" + guest.Home, "USER=airlock", "LOGNAME=airlock", "SHELL=/bin/bash",
	"LANG=C.UTF-8", "TERM=dumb", "INPUT_DIR=" + guest.InputDir, "MPLBACKEND=Agg", "PYTHONUNBUFFERED=1",
	"GIT_TERMINAL_PROMPT=0", "DEBIAN_FRONTEND=noninteractive", "PAGER=cat",
}

// environ returns base with the KEY=VALUE pairs of more in place of or after it.
func environ(base []string, more [][]byte) []string {
	if len(more) == 0 {
		return base
	}
	env := append(make([]string, 0, len(base)+len(more)), base...)
	at := make(map[string]int, len(base)+len(more))
	for i, kv := range env {
		k, _, _ := strings.Cut(kv, "=")
		at[k] = i
	}
	for _, kv := range more {
		k, _, ok := bytes.Cut(kv, []byte("="))
		if !ok || len(k) == 0 {
			continue
		}
		if i, ok := at[string(k)]; ok {
			env[i] = string(kv)
			continue
		}
		at[string(k)] = len(env)
		env = append(env, string(kv))
	}
	return env
}

// lookPath finds a program as a shell would.
func lookPath(name string, env []string) (string, bool) {
	if strings.Contains(name, "/") {
		return name, true
	}
	path := defaultPath
	for _, kv := range env {
		if p, ok := strings.CutPrefix(kv, "PATH="); ok {
			path = p
		}
	}
	for dir := range strings.SplitSeq(path, ":") {
		if !strings.HasPrefix(dir, "/") {
			continue // relative to a folder that is not the guest's
		}
		full := dir + "/" + name
		if fi, err := os.Stat(full); err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0 {
			return full, true
		}
	}
	return "", false
}
