package codeexec

import (
	"path"
	"strings"

	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
)

const noteOutputDir = "path: $OUTPUT_DIR belongs to one bash call or cell and cannot be used here; write the file to /workspace and copy it to $OUTPUT_DIR with bash."

// variables are those a path may use; every sandbox sets them alike.
func variables(name string) (string, bool) {
	switch name {
	case "INPUT_DIR":
		return guest.InputDir, true
	case "HOME", "PWD":
		return guest.Home, true
	case "TMPDIR":
		return "/tmp", true
	}
	return "", false
}

// resolve turns the path of an editor call into an absolute one. It is only
// text; the file is opened inside the sandbox with the rights of the code.
func resolve(p string) (string, *ToolError) {
	if p == "" {
		return "", invalid("path: a path is required.")
	}
	p, bad := expand(p)
	if bad != nil {
		return "", bad
	}
	if p == "~" || strings.HasPrefix(p, "~/") {
		p = guest.Home + p[1:]
	}
	if !path.IsAbs(p) {
		p = path.Join(guest.Home, p)
	}
	return path.Clean(p), nil
}

// expand replaces $NAME and ${NAME}. A dollar sign before anything else stays.
func expand(p string) (string, *ToolError) {
	var b strings.Builder
	for {
		i := strings.IndexByte(p, '$')
		if i < 0 {
			b.WriteString(p)
			return b.String(), nil
		}
		b.WriteString(p[:i])
		name, rest := variable(p[i+1:])
		if name == "" {
			b.WriteByte('$')
			p = p[i+1:]
			continue
		}
		if name == "OUTPUT_DIR" {
			return "", invalid(noteOutputDir)
		}
		v, ok := variables(name)
		if !ok {
			return "", invalid("path: the variable $" + name + " is not known here; use an absolute path.")
		}
		b.WriteString(v)
		p = rest
	}
}

// variable reads a name, in braces or not, at the start of s.
func variable(s string) (name, rest string) {
	if braced, ok := strings.CutPrefix(s, "{"); ok {
		name, rest, ok = strings.Cut(braced, "}")
		if !ok || nameLen(name) != len(name) {
			return "", s
		}
		return name, rest
	}
	n := nameLen(s)
	return s[:n], s[n:]
}

func nameLen(s string) int {
	for i := range len(s) {
		c := s[i]
		if c != '_' && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (i == 0 || c < '0' || c > '9') {
			return i
		}
	}
	return len(s)
}
